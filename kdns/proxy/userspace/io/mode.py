"""Mode userspace on this machine: how it starts, with the rules that work here, and cleans up."""

from __future__ import annotations

from typing import Final

from kdns import logs
from kdns.proxy.iptables.io import mode as iptables
from kdns.proxy.nftables.io import mode as nftables
from kdns.proxy.nftables.io.clean_up import remove_tables
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Mode, RunningMode
from kdns.proxy.xtables.io.clean_up import remove_chains
from kdns.runtime.requirements import CAPABILITY

log = logs.get(__name__)


async def _unsupported(settings: Settings) -> str:
    """Relays need no rules: without them fronts at this machine's own addresses are served."""
    del settings
    return ""


async def _start(settings: Settings) -> RunningMode:
    from kdns.proxy.userspace.io.proxier import UserspaceProxier  # noqa: PLC0415 - clean-ups need none of it

    kernel: RunningMode | None = None
    reasons: list[str] = []
    for mode in (nftables.MODE, iptables.MODE):
        if not (reason := await mode.unsupported(settings)):
            kernel = await mode.start(settings)
            break
        reasons.append(reason)
        if CAPABILITY in reason:  # which iptables takes too
            break
    if not kernel:
        reason = "; ".join(reasons)
        log.warning("only fronts at this machine's own addresses are served: others are not captured", reason=reason)
    return UserspaceProxier(kernel, ports=settings.relay_ports, udp_idle_s=settings.udp_idle_timeout_s)


MODE: Final = Mode(
    "userspace",
    unsupported=_unsupported,
    start=_start,
    cleanups=(remove_tables, remove_chains),
    sync_failures="kdns_proxy_userspace_sync_failures",
    cleanup_failures="kdns_proxy_userspace_cleanup_failures",
)
