"""Mode userspace on this machine: how it starts, with the capture that works here, and cleans up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kdns import logs
from kdns.proxy.iptables.io.clean_up import remove_chains
from kdns.proxy.nftables.io.clean_up import remove_tables
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Mode, RunningMode
from kdns.runtime.requirements import CAPABILITY

if TYPE_CHECKING:
    from kdns.proxy.userspace.io.capture import Capture

log = logs.get(__name__)


async def _unsupported(settings: Settings) -> str:
    """Relays need no rules: without them fronts at this machine's own addresses are served."""
    del settings
    return ""


async def _start(settings: Settings) -> RunningMode:
    from kdns.proxy.iptables.io.capture import iptables_capture  # noqa: PLC0415 - clean-ups need none of it
    from kdns.proxy.nftables.io.capture import nftables_capture  # noqa: PLC0415
    from kdns.proxy.userspace.io.proxier import UserspaceProxier  # noqa: PLC0415

    capture: Capture | None
    capture, refusal = await nftables_capture()
    if not capture and CAPABILITY not in refusal:  # which iptables takes too
        capture, other_refusal = await iptables_capture()
        refusal = f"{refusal}; {other_refusal}"
    if not capture:
        log.warning("only fronts at this machine's own addresses are served: others are not captured", reason=refusal)
    return UserspaceProxier(capture, ports=settings.relay_ports, udp_idle_s=settings.udp_idle_timeout_s)


def _can_reconfigure(mode: RunningMode, settings: Settings) -> bool:
    """Relays stay, with their connections, unless they are to have other ports."""
    from kdns.proxy.userspace.io.proxier import UserspaceProxier  # noqa: PLC0415 - clean-ups need none of it

    return isinstance(mode, UserspaceProxier) and mode.reconfigure(
        ports=settings.relay_ports, udp_idle_s=settings.udp_idle_timeout_s
    )


MODE: Final = Mode(
    "userspace",
    unsupported=_unsupported,
    start=_start,
    cleanups=(remove_tables, remove_chains),
    sync_failures="kdns_proxy_userspace_sync_failures",
    cleanup_failures="kdns_proxy_userspace_cleanup_failures",
    can_reconfigure=_can_reconfigure,
)
