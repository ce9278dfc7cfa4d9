"""The modes that can run: one row each. A mode's folder holds the rest of it, and proxy/plan/modes.py its semantics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kdns import logs
from kdns.proxy.iptables.io import requirements as iptables
from kdns.proxy.iptables.io.clean_up import remove_chains, remove_marks
from kdns.proxy.ipvs.io import probe as ipvs
from kdns.proxy.ipvs.io.clean_up import remove_ipvs
from kdns.proxy.nftables.io import requirements as nftables
from kdns.proxy.nftables.io.clean_up import remove_tables
from kdns.proxy.nftables.io.proxier import NftablesProxier
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import CleanUp, Mode, RunningMode
from kdns.runtime.requirements import CAPABILITY

log = logs.get(__name__)


async def _start_nftables(settings: Settings) -> RunningMode:
    del settings  # what the mode needs of them is in the plan
    return NftablesProxier()


async def _start_ipvs(settings: Settings) -> RunningMode:
    from kdns.proxy.ipvs.io.start import start  # noqa: PLC0415 - other modes need none of it

    return await start(settings)


async def _anywhere(settings: Settings) -> str:
    """Relays need no rules: without them fronts at this machine's own addresses are served."""
    del settings
    return ""


async def _start_userspace(settings: Settings) -> RunningMode:
    from kdns.proxy.iptables.io.capture import iptables_capture  # noqa: PLC0415 - other modes need none of it
    from kdns.proxy.nftables.io.capture import nftables_capture  # noqa: PLC0415
    from kdns.proxy.userspace.io.capture import Capture  # noqa: PLC0415
    from kdns.proxy.userspace.io.proxier import UserspaceProxier  # noqa: PLC0415

    capture: Capture | None
    capture, refusal = await nftables_capture()
    if not capture and CAPABILITY not in refusal:  # which iptables takes too
        capture, other_refusal = await iptables_capture()
        refusal = f"{refusal}; {other_refusal}"
    if not capture:
        log.warning("only fronts at this machine's own addresses are served: others are not captured", reason=refusal)
    return UserspaceProxier(capture, ports=settings.relay_ports, udp_idle_s=settings.udp_idle_timeout_s)


def _userspace_goes_on(mode: RunningMode, settings: Settings) -> bool:
    """Relays stay, with their connections, unless they are to have other ports."""
    from kdns.proxy.userspace.io.proxier import UserspaceProxier  # noqa: PLC0415 - other modes need none of it

    return isinstance(mode, UserspaceProxier) and mode.reconfigure(
        ports=settings.relay_ports, udp_idle_s=settings.udp_idle_timeout_s
    )


_ROWS: Final = (
    Mode(
        "nftables",
        unsupported=nftables.unsupported,
        start=_start_nftables,
        cleanups=(remove_tables,),
        sync_failures="kubeproxy_sync_proxy_rules_nftables_sync_failures",
        cleanup_failures="kubeproxy_sync_proxy_rules_nftables_cleanup_failures",
    ),
    Mode(
        "iptables",
        unsupported=iptables.unsupported,
        start=iptables.start,
        cleanups=(remove_chains,),
        sync_failures="kubeproxy_sync_proxy_rules_iptables_restore_failures",
        cleanup_failures="kdns_proxy_iptables_cleanup_failures",
    ),
    Mode(
        "ipvs",
        unsupported=ipvs.unsupported,
        start=_start_ipvs,
        cleanups=(remove_chains, remove_ipvs),
        sync_failures="kubeproxy_sync_proxy_rules_iptables_restore_failures",
        cleanup_failures="kdns_proxy_ipvs_cleanup_failures",
        fallbacks=("iptables", "nftables"),
    ),
    Mode(
        "userspace",
        unsupported=_anywhere,
        start=_start_userspace,
        cleanups=(remove_tables, remove_chains),
        sync_failures="kdns_proxy_userspace_sync_failures",
        cleanup_failures="kdns_proxy_userspace_cleanup_failures",
        can_reconfigure=_userspace_goes_on,
    ),
)
MODES: Final[Mapping[str, Mode]] = {row.name: row for row in _ROWS}

CLEAN_UPS: Final[tuple[CleanUp, ...]] = (*dict.fromkeys(each for row in _ROWS for each in row.cleanups), remove_marks)
"""The clean-ups of everything that a proxy of any mode may have left."""
