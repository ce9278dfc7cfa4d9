"""The kernel's connection tracking: its UDP flows, and the deletion of those that lead to the wrong place."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

from kdns import logs
from kdns.aio.dataplane import Synced
from kdns.aio.netlink import NETFILTER, Requests, attribute, attributes
from kdns.metrics import Histogram
from kdns.proxy.config import FAMILIES, Family
from kdns.proxy.plan import Plan
from kdns.proxy.staleflows import Flow, Fronts, merged, stale, udp_fronts

BUCKETS_S: Final = tuple(0.001 * 2**k for k in range(15))
AGAIN_S: Final = 5.0

log = logs.get(__name__)

_GET, _DELETE = (1 << 8 | kind for kind in (1, 2))
_AF: Final = {"IPv4": socket.AF_INET, "IPv6": socket.AF_INET6}
_GENERIC: Final = struct.Struct("=BBH")
_ORIGINAL, _REPLY, _ID, _ZONE, _FILTER = 1, 2, 12, 18, 25
_ADDRESSES, _PROTOCOL = 1, 2
_SOURCE_OF: Final = {"IPv4": 1, "IPv6": 3}
_DESTINATION_OF: Final = {"IPv4": 2, "IPv6": 4}
_NUMBER, _SOURCE_PORT, _DESTINATION_PORT = 1, 2, 3
_BY_PROTOCOL: Final = 1 << 3
_ABSENT: Final = frozenset({errno.EPROTONOSUPPORT, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOENT, errno.EPERM})


@dataclass(slots=True)
class FlowStats:
    """How long a look at the flows took, and how many were deleted, by family."""

    durations: dict[Family, Histogram] = field(
        default_factory=lambda: {each: Histogram(BUCKETS_S) for each in FAMILIES}
    )
    deleted: dict[Family, int] = field(default_factory=lambda: dict.fromkeys(FAMILIES, 0))


class FlowKeeper:
    """Deletes stale UDP flows after the plan has changed; `run` works until it is cancelled."""

    def __init__(self) -> None:
        self.stats = FlowStats()
        self._plan: Plan | None = None
        self._fronts: dict[Family, Fronts] = {}
        self._wanted = asyncio.Event()

    def synced(self, news: Synced) -> None:
        """Note whose flows are to be looked at."""
        self._plan = news.plan
        for family in FAMILIES:
            difference = news.differences[family] if news.differences else None
            found = udp_fronts(news.plan.of(family), difference)
            if found:
                self._fronts[family] = merged(self._fronts.get(family, {}), found)
        if self._fronts:
            self._wanted.set()

    async def run(self) -> None:
        """Look at the flows whenever there is reason; what fails is tried again."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            work, self._fronts = self._fronts, {}
            for family, fronts in work.items():
                try:
                    await self._settle(family, fronts)
                except OSError as error:
                    if error.errno in _ABSENT:
                        log.warning(
                            "stale UDP flows stay until they time out",
                            reason=f"connection tracking cannot be asked: {error.strerror}",
                            wanted="kernel module nf_conntrack_netlink, and the capability CAP_NET_ADMIN",
                        )
                        return
                    log.info("stale UDP flows are looked at again", reason=str(error), again_in_s=AGAIN_S)
                    self._fronts[family] = merged(fronts, self._fronts.get(family, {}))
                    self._wanted.set()
                    await asyncio.sleep(AGAIN_S)

    async def _settle(self, family: Family, fronts: Fronts) -> None:
        assert self._plan  # noqa: S101 - there is no work without it
        half = self._plan.of(family)
        started_s = time.monotonic()
        flows = await asyncio.to_thread(udp_flows, family)
        wrong = stale(flows, fronts, half)
        if wrong:
            deleted = await asyncio.to_thread(delete_flows, family, wrong)
            self.stats.deleted[family] += deleted
            log.info("stale UDP flows deleted", family=family, flows=deleted)
        self.stats.durations[family].add(time.monotonic() - started_s)


def udp_flows(family: Family) -> list[Flow]:
    """The UDP flows of a family."""
    found: list[Flow] = []

    def entry(body: bytes) -> None:
        if flow := _flow(body, family):
            found.append(flow)

    protocol = attribute(_NUMBER, bytes([socket.IPPROTO_UDP]))
    only_udp = attribute(_ORIGINAL, attribute(_PROTOCOL, protocol, nested=True), nested=True)
    only_udp += attribute(_FILTER, attribute(1, struct.pack("=I", _BY_PROTOCOL)) + attribute(2, bytes(4)), nested=True)
    requests = Requests(NETFILTER)
    try:
        requests.dump(_GET, _GENERIC.pack(_AF[family], 0, 0) + only_udp, entry)
    finally:
        requests.close()
    return found


def delete_flows(family: Family, flows: Iterable[Flow]) -> int:
    """Delete these flows; how many of them were still there."""
    requests = Requests(NETFILTER)
    try:
        return sum(_deleted(requests, family, flows))
    finally:
        requests.close()


def _deleted(requests: Requests, family: Family, flows: Iterable[Flow]) -> Iterator[int]:
    for flow in flows:
        try:
            requests.do(_DELETE, _GENERIC.pack(_AF[family], 0, 0) + flow.handle)
        except FileNotFoundError:
            continue
        yield 1


def _flow(body: bytes, family: Family) -> Flow | None:
    """The flow of a message; None for other protocols, and for zones other than the node's own."""
    row = attributes(body, _GENERIC.size)
    original = attributes(row.get(_ORIGINAL, b""))
    reply = attributes(row.get(_REPLY, b""))
    if _ZONE in row or _PROTOCOL not in original or _PROTOCOL not in reply:
        return None
    sent, answered = attributes(original[_PROTOCOL]), attributes(reply[_PROTOCOL])
    if sent[_NUMBER][:1] != bytes([socket.IPPROTO_UDP]):
        return None
    return Flow(
        (_address(original[_ADDRESSES], _DESTINATION_OF[family]), int.from_bytes(sent[_DESTINATION_PORT], "big")),
        (_address(reply[_ADDRESSES], _SOURCE_OF[family]), int.from_bytes(answered[_SOURCE_PORT], "big")),
        attribute(_ORIGINAL, row[_ORIGINAL], nested=True) + attribute(_ID, row[_ID]),
    )


def _address(buffer: bytes, kind: int) -> str:
    return str(ip_address(attributes(buffer)[kind]))
