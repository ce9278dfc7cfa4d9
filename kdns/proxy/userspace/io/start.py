"""Starts mode userspace, with the rules that work here."""

from __future__ import annotations

from typing import Final

from kdns import logs
from kdns.proxy.iptables.io.start import RUNTIME as IPTABLES
from kdns.proxy.nftables.io.start import RUNTIME as NFTABLES
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import RunningMode, Runtime
from kdns.proxy.userspace.io.proxier import UserspaceProxier
from kdns.proxy.userspace.mode import MODE, UserspaceSettings
from kdns.runtime.requirements import CAPABILITY

log = logs.get(__name__)


async def unsupported(settings: Settings) -> str:
    """Relays need no rules: without them fronts at this machine's own addresses are served."""
    del settings
    return ""


async def start(settings: Settings) -> RunningMode:
    own = settings.section(UserspaceSettings)
    kernel: RunningMode | None = None
    reasons: list[str] = []
    for capturing in (NFTABLES, IPTABLES):
        if not (reason := await capturing.unsupported(settings)):
            kernel = await capturing.start(settings)
            break
        reasons.append(reason)
        if CAPABILITY in reason:  # which iptables takes too
            break
    if not kernel:
        reason = "; ".join(reasons)
        log.warning("only fronts at this machine's own addresses are served: others are not captured", reason=reason)
    return UserspaceProxier(kernel, ports=own.relay_ports or range(0), udp_idle_s=own.udp_idle_timeout_s)


RUNTIME: Final = Runtime(MODE, unsupported, start)
