"""loop: detects upstreams that send queries back to this server.

Each upstream of `forward` is queried for HINFO of a random name. If that query arrives here, the upstream forms a loop:
it gets no queries until such a query no longer arrives.
Differs: CoreDNS exits, and with it go the names of the cluster, which need no upstream.
Differs: one return is enough; CoreDNS waits for the third, because it counts its own first query.
Differs: upstreams from a changed file or name are checked too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Final, NamedTuple

from kdns.answers.chain import Plugin, Request, Sees, Serve, ServeResult
from kdns.dns.names import Labels, is_below, labels_of
from kdns.dns.query import query_for
from kdns.dns.types import HINFO
from kdns.plugins.sources.forward.group import Group, Member
from kdns.plugins.sources.forward.plugin import Forward
from kdns.serverblocks.directive import Directive, NoConfig, World
from kdns.upstream.upstream import UpstreamError

EVERY_S: Final = 1.0
"""The interval of checks for new upstreams."""
RETRY_S: Final = 30.0
"""When an upstream that loops, or did not answer, is queried again."""
TIMEOUT_S: Final = 2.0
EXPECTED_S: Final = 30.0
"""How long a query may take to return."""
REMEDY: Final = (
    "forward to servers that do not ask this one: where resolv.conf names 127.0.0.53, systemd-resolved has the real "
    "upstreams in /run/systemd/resolve/resolv.conf, which kubelet's resolvConf or `forward` can name"
)


class Route(NamedTuple):
    """One upstream of one stanza, and the zone of the names to query it for."""

    group: Group
    member: Member
    zone: Labels


class Loop(Plugin):
    """Detects its own queries, and passes all queries on."""

    sees = Sees.PACKET

    def __init__(self, _config: NoConfig, world: World) -> None:
        self._world = world
        self._expected: dict[Labels, tuple[float, Callable[[], None]]] = {}
        self._due_s: dict[Member, float] = {}
        self._looping: dict[Group, frozenset[Member]] = {}
        world.expose(
            "kdns_loop_upstreams", "1 for an upstream that sends queries back and is not used.", ("to",), self._samples
        )
        world.spawn(self._follow)

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        query = request.query
        if query.qtype == HINFO and query.labels in self._expected:
            until_s, returned = self._expected[query.labels]
            if self._world.now_s() < until_s:
                returned()
        return next(request)

    def plain_zones(self) -> tuple[Labels, ...]:
        return ()  # no plain question is for HINFO

    def expect(self, labels: Labels, returned: Callable[[], None]) -> None:
        """Calls `returned` for each query for HINFO of a name in the next EXPECTED_S."""
        now_s = self._world.now_s()
        self._expected = {name: expected for name, expected in self._expected.items() if expected[0] > now_s}
        self._expected[labels] = now_s + EXPECTED_S, returned

    async def _follow(self) -> None:
        while True:
            now_s = self._world.now_s()
            routes = list(self._routes())
            self._due_s = {route.member: self._due_s.get(route.member, now_s) for route in routes}
            self._looping = {group: members & {*group.members} for group, members in self._looping.items()}
            for route in routes:
                if self._due_s[route.member] <= now_s:
                    self._due_s[route.member] = now_s + RETRY_S
                    self._world.spawn(partial(self._check, route))
            await self._world.sleep(EVERY_S)

    def _routes(self) -> Iterator[Route]:
        plugins = [plugin for plugin in self._world.plugins() if isinstance(plugin, Forward)]
        forwarders = [forwarder for plugin in plugins for forwarder in plugin.forwarders]
        zones = [labels_of(zone) for zone in self._world.zones]
        for forwarder in forwarders:
            common = [
                max(own, zone, key=len)
                for own in zones
                for zone in forwarder.zones
                if is_below(own, zone) or is_below(zone, own)
            ]
            for member in forwarder.group.members if common else ():
                yield Route(forwarder.group, member, common[0])

    async def _check(self, route: Route) -> None:
        random, member = self._world.random, route.member
        labels = (b"%016x" % random.randrange(1 << 64), b"%016x" % random.randrange(1 << 64), *route.zone)
        returns: list[Route] = []

        def returned() -> None:
            returns.append(route)
            if self._mark(route, is_looping=True):
                facts = {"effect": "upstream not used", "remedy": REMEDY}
                self._world.log("error", "forwarding loop detected", upstream=member.name, **facts)

        self.expect(labels, returned)
        try:
            await member.upstream.exchange(query_for(labels, HINFO), "udp", TIMEOUT_S)
        except (UpstreamError, ValueError):  # ValueError: the zone leaves no room for the name
            return
        if not returns:
            self._due_s[member] = inf
            if self._mark(route, is_looping=False):
                self._world.log("info", "forwarding loop resolved", upstream=member.name)

    def _mark(self, route: Route, *, is_looping: bool) -> bool:
        before = self._looping.get(route.group, frozenset())
        looping = before | {route.member} if is_looping else before - {route.member}
        self._looping[route.group] = looping
        route.group.disable(looping)
        return looping != before

    def _samples(self) -> list[tuple[tuple[str, ...], float]]:
        return [((member.name,), 1.0) for members in self._looping.values() for member in members]


DIRECTIVE: Final = Directive("loop", NoConfig, Loop)
