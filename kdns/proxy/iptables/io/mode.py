"""Mode iptables on this machine: how it starts and cleans up."""

from __future__ import annotations

from typing import Final

from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Mode, RunningMode
from kdns.proxy.xtables.io.clean_up import remove_chains
from kdns.proxy.xtables.io.programs import choose


async def _unsupported(settings: Settings) -> str:
    """Returns why this machine cannot have the rules, or this process may not change them, or ""."""
    del settings
    _, reason = await choose()
    return reason


async def _start(settings: Settings) -> RunningMode:
    from kdns.proxy.iptables.io.start import start  # noqa: PLC0415 - clean-ups need none of it

    return await start(settings)


MODE: Final = Mode(
    "iptables",
    unsupported=_unsupported,
    start=_start,
    cleanups=(remove_chains,),
    sync_failures="kubeproxy_sync_proxy_rules_iptables_restore_failures",
    cleanup_failures="kdns_proxy_iptables_cleanup_failures",
)
