"""Mode kernelspace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kdns.proxy.kernelspace.settings import KernelspaceSettings, windows_network
from kdns.proxy.mode import Mode
from kdns.proxy.plan.semantics import TCP_UDP, Semantics
from kdns.proxy.xtables.settings import IptablesSettings

if TYPE_CHECKING:
    from kdns.proxy.plan.plan import Plan
    from kdns.proxy.settings.settings import Settings

KERNELSPACE: Final = Semantics(
    "kernelspace",
    protocols=TCP_UDP,
    has_one_list=True,
    refuses=False,
    treats_clients_alike=True,
    restricts_sources=False,
    restricts_node_ports=False,
    times_affinity=False,
    has_one_target_port=True,
    supported_endpoints=64,
)


def _text(plan: Plan, settings: Settings) -> str:
    from kdns.proxy.kernelspace.text import requests_text  # noqa: PLC0415 - nothing else is imported for the mode's row

    return requests_text(plan, windows_network(settings))


def _masquerades_all(mode: Mode, settings: Settings) -> bool:
    """Without DSR every packet is translated."""
    has_dsr = settings.section(KernelspaceSettings).enable_dsr
    return not has_dsr or settings.section(mode.masquerading).masquerade_all


MODE: Final = Mode(
    KERNELSPACE,
    "kdns.proxy.kernelspace",
    _text,
    IptablesSettings,
    own=(KernelspaceSettings,),
    sync_failures="kdns_proxy_kernelspace_sync_failures",
    cleanup_failures="kdns_proxy_kernelspace_cleanup_failures",
    is_of_windows=True,
    masquerades_all=_masquerades_all,
)
