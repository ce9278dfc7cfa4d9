"""Answers for authoritative zones, of files, the Corefile or primaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kdns.answers.chain import (
    NOT_SERVED,
    Plugin,
    Reply,
    Request,
    Sees,
    Serve,
    ServeResult,
    has_parent_behind,
    is_unanswered,
    joined,
    then,
    unhandled,
)
from kdns.answers.response import NEVER, PRIVATE, Response, Reuse, Subject
from kdns.dns.names import Labels, ZoneSet, labels_of, lowered
from kdns.dns.query import AA, RA, TC
from kdns.dns.types import CNAME, DS, IN, NOERROR, NS, REFUSED, SERVFAIL, TRANSFERS
from kdns.dns.zone.difference import Difference, difference
from kdns.dns.zone.lookup import Lookup, lookup
from kdns.dns.zone.zone import Zone
from kdns.plugins.sources.transfer import Transfer
from kdns.serverblocks.directive import World
from kdns.values import evolve

MAX_DIFFERENCES: Final = 20
"""The most versions of a zone that an incremental transfer can start from."""
MAX_DIFFERENCE_RECORDS: Final = 100_000
"""The most records in all differences of one zone."""
FREED_AT_ONCE: Final = 1000
"""Names of an old zone to free at a time, in less than a millisecond."""


NO_ZONES: Final = ZoneSet(())


@dataclass(slots=True, eq=False)
class ServedZone:
    """A zone and its current version, None if it is not loaded yet or expired.

    Missing names in the zones of `fallthrough` go to the next directive. `differences` lead from earlier versions to
    the current one. `digest` is the hash of its file, if any.
    """

    name: str
    fallthrough: ZoneSet = NO_ZONES
    zone: Zone | None = None
    differences: tuple[Difference, ...] = ()
    digest: bytes = b""
    labels: Labels = field(init=False)

    def __post_init__(self) -> None:
        self.labels = labels_of(self.name)

    def since(self, serial: int) -> tuple[Difference, ...]:
        """The differences from a serial to the current one; () for an unknown serial."""
        for index, step in enumerate(self.differences):
            if step.old_serial == serial:
                return self.differences[index:]
        return ()


def differences_to(served: ServedZone, zone: Zone) -> tuple[Difference, ...]:
    """The differences of `served` when `zone` is its next version; takes long, for a thread."""
    if served.zone is None:
        return ()
    steps = (*served.differences, difference(served.zone, zone))[-MAX_DIFFERENCES:]
    while steps and sum(step.size for step in steps) > MAX_DIFFERENCE_RECORDS:
        steps = steps[1:]
    return steps


class Authority(Plugin):
    """Answers for zones; `name` is the directive's. Each zone is a subject of its answers.

    Targets of CNAMEs outside of these zones are resolved by the whole server.
    """

    sees = Sees.PACKET

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self._world = world
        self.zones: tuple[ServedZone, ...] = ()
        """The longest names first."""
        self._by_labels: dict[Labels, ServedZone] = {}
        self._listeners: list[Callable[[str], None]] = []

    def serve_zones(self, zones: Iterable[ServedZone]) -> None:
        before = {id(served) for served in self.zones}
        self.zones = tuple(sorted(zones, key=lambda served: -len(served.labels)))
        self._by_labels = {served.labels: served for served in reversed(self.zones)}
        changed = before ^ {id(served) for served in self.zones}
        if changed:
            self._world.forget((self._subject(None),))

    def renew(self, served: ServedZone, zone: Zone | None, differences: tuple[Difference, ...] = ()) -> None:
        is_new = zone is not None and (served.zone is None or served.zone.serial != zone.serial)
        if served.zone is not None and len(served.zone.nodes) > FREED_AT_ONCE:
            self._world.spawn(partial(self._free, served.zone.parts()))
        served.zone, served.differences = zone, differences
        self._world.forget((self._subject(served),))
        if is_new:
            for changed in self._listeners:
                changed(served.name)

    async def _free(self, parts: list[object]) -> None:
        """In steps: freeing a large zone at once would delay answers."""
        while parts:
            del parts[-FREED_AT_ONCE:]
            await self._world.sleep(0)

    def closest_zone(self, labels: Labels, qtype: int) -> ServedZone | None:
        """The zone that answers a question; for DS the parent, if it is served (RFC 4035 §3.1.4.1)."""
        served = self.zone_of(labels)
        is_apex = served is not None and served.labels == labels
        return (self.parent_zone(labels) or served) if qtype == DS and is_apex else served

    def parent_zone(self, labels: Labels) -> ServedZone | None:
        return self.zone_of(labels[1:]) if labels else None

    def zone_of(self, labels: Labels) -> ServedZone | None:
        names = (labels[start:] for start in range(len(labels) + 1))
        return next((served for name in names if (served := self._by_labels.get(name))), None)

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        """SERVFAIL for a zone without content; names in none of the zones are passed on.

        If no directive follows they are REFUSED, and so are classes other than IN for names of the zones.
        """
        query = request.query
        if query.qclass != IN:
            return next(request) if self.zone_of(query.labels) is None else NOT_SERVED
        served = self.closest_zone(query.labels, query.qtype)
        if served and query.qtype == DS and served.labels == query.labels:
            served = None if has_parent_behind(self, self._world.plugins(), served.labels) else served
        if served is None and next is unhandled:
            return NOT_SERVED
        if served is None:
            return self._depending(next(request), None)
        if query.qtype in TRANSFERS:
            return Response(REFUSED, plugin=self.name)
        if served.zone is None:
            error = f"the zone {served.name} has no content"
            return Response(SERVFAIL, reuse=PRIVATE, plugin=self.name, error=error)
        result = self._up_to_closer(served, lookup(served.zone, query.labels, query.qtype, do=query.do))
        if result.is_bare and query.labels in served.fallthrough:
            return self._depending(next(request), served)
        response = self._response(result, served)
        if result.target is None:
            return response
        try:
            onward = request.about(result.target)
        except ValueError:
            return response
        return then(self._world.resolve(onward), partial(_followed, response, request.received_s))

    def _up_to_closer(self, served: ServedZone, result: Lookup) -> Lookup:
        """Cuts the answer after a CNAME to a name in a zone below this one (RFC 1034 §4.3.2)."""
        if len(self.zones) < 2:
            return result
        for count, rrset in enumerate(result.answer, start=1):
            if rrset.rtype == CNAME:
                target = labels_of(str(rrset.rdata[0]))
                closer = self.zone_of(lowered(target))
                if closer is not None and len(closer.labels) > len(served.labels):
                    ns = served.zone.apex.rrsets.get(NS) if served.zone else None
                    return result._replace(
                        rcode=NOERROR,
                        answer=result.answer[:count],
                        authority=(ns,) if ns else (),
                        additional=(),
                        is_authoritative=True,
                        target=target,
                        is_bare=False,
                    )
        return result

    def transfer_zones(self) -> tuple[str, ...]:
        return tuple(served.name for served in self.zones if served.zone)

    def transfer(self, zone: str, serial: int | None) -> Transfer | None:
        served = next((served for served in self.zones if served.name == zone), None)
        if served is None or served.zone is None:
            return None
        steps = served.since(serial) if serial is not None else ()
        changes = (rrset for step in steps for rrset in step.records()) if steps else None
        return Transfer(served.zone.soa, served.zone.records(), changes)

    def on_zone_change(self, changed: Callable[[str], None]) -> None:
        self._listeners.append(changed)

    def _subject(self, served: ServedZone | None) -> Subject:
        """The subject of a zone's answers; with None that of the set of zones."""
        return ("zone", id(self), id(served) if served else 0)

    def _depending(self, reply: ServeResult, served: ServedZone | None) -> ServeResult:
        return then(reply, partial(_reused_until, Reuse((self._subject(served),))))

    def _response(self, result: Lookup, served: ServedZone) -> Response:
        return Response(
            result.rcode,
            AA if result.is_authoritative else 0,
            result.answer,
            result.authority,
            result.additional,
            reuse=Reuse((self._subject(served), self._subject(None))),
            plugin=self.name,
            zone=served.name,
            wildcard=result.wildcard,
        )


def _reused_until(reuse: Reuse, reply: Reply) -> Reply:
    """Adds subjects to a reusable reply."""
    if reply is None or reply.reuse is NEVER or reply.reuse is PRIVATE:
        return reply
    return evolve(reply, reuse=reply.reuse.and_then(reuse))


def _followed(response: Response, now_s: float, target: Reply) -> Reply:
    """Completes the CNAMEs of a zone with the server's answer for their target.

    If no directive answers for it, the CNAMEs are the answer, and a resolver continues (RFC 1034 §4.3.2 step 3a).
    """
    if target is None:  # a directive drops this client's queries: others may get an answer
        return evolve(response, reuse=PRIVATE)
    reuse = NEVER.and_then(target.reuse)
    if target.rcode == REFUSED or is_unanswered(target):
        return evolve(response, reuse=reuse)
    if target.rcode == SERVFAIL:
        return evolve(response, rcode=SERVFAIL, reuse=reuse, error=target.error)
    return evolve(joined(response, target, TC | RA, now_s), order=target.order)
