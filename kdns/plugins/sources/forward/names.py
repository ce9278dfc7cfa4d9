"""Upstreams that are written as host names: their addresses are resolved, and resolved again when their TTL expires.

Differs: CoreDNS does not start while a name has no address; kdns starts, logs, and asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kdns.answers.decode import from_wire
from kdns.dns.names import labels_of
from kdns.dns.query import query_for
from kdns.dns.rrset import RRset
from kdns.dns.types import AAAA, NOERROR, NXDOMAIN, A
from kdns.errors import CorefileError
from kdns.net import HostPort, unpacked
from kdns.plugins.sources.forward.bailiwick import checked
from kdns.plugins.sources.forward.config import ForwardConfig
from kdns.plugins.sources.forward.targets import Target, resolv_conf
from kdns.serverblocks.directive import World
from kdns.upstream.upstream import Upstream, UpstreamError, UpstreamSpec

RESOLV_CONF: Final = "/etc/resolv.conf"
TIMEOUT_S: Final = 2.0
SHORTEST_S: Final = 5.0
LONGEST_S: Final = 3600.0
RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 60.0


class Name:
    """One host name. `update` is called with its addresses when they change."""

    def __init__(
        self, target: Target, config: ForwardConfig, world: World, update: Callable[[tuple[Target, ...]], None]
    ) -> None:
        self._target = target
        self._world = world
        self._update = update
        self._resolvers: tuple[Upstream, ...] = ()
        self._is_known = False
        if config.resolvers:
            self._use(config.resolvers)
        else:
            world.watch_file("resolv.conf", RESOLV_CONF, 30.0, self._read)
        world.spawn(self._follow)

    def _read(self, text: str) -> None:
        addresses = [target.address for target in resolv_conf(text).targets]
        if not addresses:
            raise CorefileError(
                RESOLV_CONF, 0, "", f"expected a line `nameserver ADDRESS` to resolve {self._target.host} with"
            )
        self._use(addresses)

    def _use(self, addresses: Iterable[HostPort]) -> None:
        for upstream in self._resolvers:
            self._world.call_later(2 * TIMEOUT_S, upstream.close)
        self._resolvers = tuple(self._world.upstream(UpstreamSpec(address)) for address in addresses)

    async def _follow(self) -> None:
        pause_s = RETRY_S
        while True:
            addresses, ttl_s = await self._addresses()
            if addresses:
                pause_s = RETRY_S
                self._take(addresses)
                await self._world.sleep(min(max(ttl_s, SHORTEST_S), LONGEST_S))
                continue
            self._world.log("warning", "upstream name not resolved", name=self._target.host, retry_s=pause_s)
            await self._world.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_RETRY_S)

    def _take(self, addresses: tuple[str, ...]) -> None:
        try:
            self._update(tuple(map(self._target.at, addresses)))
        except CorefileError as error:
            self._world.log("warning", "upstream addresses not usable", name=self._target.host, error=str(error))

    async def _addresses(self) -> tuple[tuple[str, ...], float]:
        """Returns the addresses that the name has now, and how many seconds that holds; () if no resolver answered.

        A resolver that fails for one of the two types says nothing about the other: what is known counts on.
        """
        found: list[RRset] = []
        for qtype in (A, AAAA):
            rrsets = await self._rrsets(qtype)
            if rrsets is None and self._is_known:
                return (), 0.0
            found += rrsets or ()
        packed = {rdata for rrset in found for rdata in rrset.rdata if isinstance(rdata, bytes)}
        self._is_known = self._is_known or bool(packed)
        return tuple(map(unpacked, sorted(packed))), float(min((rrset.ttl for rrset in found), default=0))

    async def _rrsets(self, qtype: int) -> list[RRset] | None:
        """Returns the addresses of one family as the first resolver that answers has them; None if none answers."""
        query = query_for(labels_of(self._target.host), qtype)
        for resolver in self._resolvers:
            try:
                wire = await resolver.exchange(query, "udp", TIMEOUT_S)
                response = from_wire(checked(wire, query, ""))
            except (UpstreamError, ValueError):
                continue
            if response.rcode in {NOERROR, NXDOMAIN}:
                return [rrset for rrset in response.answer if rrset.rtype == qtype]
        return None
