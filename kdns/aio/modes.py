"""The modes of the dataplane: what each is made with, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kdns import logs
from kdns.aio import leftovers, nftablesmode
from kdns.aio.dataplane import Backend
from kdns.aio.nftablesmode import NftablesMode
from kdns.proxy.plan import PortName
from kdns.proxy.relaying import PortCounters
from kdns.proxy.settings import Settings

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Running:
    """A mode at work. `close` undoes what must not outlive the process, `remove` what may; `counters` are of relays.

    `has_rules` says that there is something in the kernel that somebody else may change.
    """

    backend: Backend
    has_rules: bool = True
    close: Callable[[], Awaitable[None]] | None = None
    remove: Callable[[], Awaitable[None]] | None = None
    counters: Callable[[], Mapping[PortName, PortCounters]] = dict


async def _nftables(settings: Settings) -> Running:
    await nftablesmode.check()
    await leftovers.tell()
    return Running(NftablesMode(mark=settings.mark), remove=nftablesmode.clean_up)


async def _userspace(settings: Settings) -> Running:
    from kdns.aio.userspacemode import UserspaceMode, may_capture  # noqa: PLC0415 - other modes need none of it

    mode = UserspaceMode(ports=port_range(settings.port_range), udp_idle_s=settings.udp_idle_timeout_s)
    captures = may_capture()
    if captures:
        await leftovers.tell()
    else:
        log.info("only what is at this machine's own addresses is served", wanted="CAP_NET_ADMIN to capture the rest")
    return Running(mode, captures, close=mode.close, counters=lambda: mode.counters)


BACKENDS: Final[Mapping[str, Callable[[Settings], Awaitable[Running]]]] = {
    "nftables": _nftables,
    "userspace": _userspace,
}
"""The modes that there are; each makes its backend, or says with ApplyError why it cannot work here."""


def port_range(text: str) -> range:
    """300-2000 or 300+1700 as kube-proxy writes a range of ports; "" and 0 for the kernel's choice."""
    for sign, length in (("-", 0), ("+", 1)):
        first, found, last = text.partition(sign)
        if found:
            return range(int(first), int(first) * length + int(last) + 1)
    return range(int(text or 0), int(text or 0) + 1) if int(text or 0) else range(0)
