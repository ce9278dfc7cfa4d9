"""Authority over zones: what `file`, `auto` and `secondary` do with queries, wherever their zones come from."""

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
"""Versions of a zone back to which incremental transfers reach."""
MAX_DIFFERENCE_RECORDS: Final = 100_000
"""Records of all kept differences of one zone."""
FREED_AT_ONCE: Final = 1000
"""Names of an unused zone that are freed at a time, in less than a millisecond."""


NO_ZONES: Final = ZoneSet(())


@dataclass(slots=True, eq=False)
class ServedZone:
    """A zone that is served: its present version, None for a zone that cannot be answered for (yet, or any more).

    `fallthrough` are the names at or below which the next directive answers for names without records.
    `differences` lead from earlier versions to the present one. `digest` is of the text that it was read from, if any.
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
        """Returns the differences from a serial to the present one; () for one that is not known any more."""
        for place, step in enumerate(self.differences):
            if step.old_serial == serial:
                return self.differences[place:]
        return ()


def differences_to(served: ServedZone, zone: Zone) -> tuple[Difference, ...]:
    """Returns the differences that are kept when this zone takes the place of the present one; for a thread."""
    if served.zone is None:
        return ()
    steps = (*served.differences, difference(served.zone, zone))[-MAX_DIFFERENCES:]
    while steps and sum(step.size for step in steps) > MAX_DIFFERENCE_RECORDS:
        steps = steps[1:]
    return steps


class Authority(Plugin):
    """Answers for zones. Every answer depends on its zone and is forgotten with it.

    `name` is the directive's. Where the target of a CNAME is in none of these zones, the whole server resolves it.
    """

    sees = Sees.PACKET

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self._world = world
        self.zones: tuple[ServedZone, ...] = ()
        """Those with the longest names first."""
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
        """Frees the parts of a zone, a few at a time: freeing a large one at once would delay answers."""
        while parts:
            del parts[-FREED_AT_ONCE:]
            await self._world.sleep(0)

    def closest_zone(self, labels: Labels, qtype: int) -> ServedZone | None:
        """Returns the zone that answers a question; for DS the parent's, if it is served (RFC 4035 §3.1.4.1)."""
        served = self.zone_of(labels)
        is_apex = served is not None and served.labels == labels
        return (self.parent_zone(labels) or served) if qtype == DS and is_apex else served

    def parent_zone(self, labels: Labels) -> ServedZone | None:
        return self.zone_of(labels[1:]) if labels else None

    def zone_of(self, labels: Labels) -> ServedZone | None:
        names = (labels[start:] for start in range(len(labels) + 1))
        return next((served for name in names if (served := self._by_labels.get(name))), None)

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        """Returns the zone's answer; SERVFAIL for a zone without content, `next` for names in none of the zones.

        Where no directive follows, a name in none of the zones is REFUSED, as servers of zones only answer. So are
        classes other than IN for names of the zones.
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
        found = self._up_to_closer(served, lookup(served.zone, query.labels, query.qtype, do=query.do))
        if found.is_bare and query.labels in served.fallthrough:
            return self._depending(next(request), served)
        response = self._response(found, served)
        if found.target is None:
            return response
        try:
            onward = request.about(found.target)
        except ValueError:
            return response
        return then(self._world.resolve(onward), partial(_followed, response, request.received_s))

    def _up_to_closer(self, served: ServedZone, found: Lookup) -> Lookup:
        """Returns the answer up to a CNAME whose target is in a zone below this one (RFC 1034 §4.3.2)."""
        if len(self.zones) < 2:
            return found
        for count, rrset in enumerate(found.answer, start=1):
            if rrset.rtype == CNAME:
                target = labels_of(str(rrset.rdata[0]))
                closer = self.zone_of(lowered(target))
                if closer is not None and len(closer.labels) > len(served.labels):
                    ns = served.zone.apex.rrsets.get(NS) if served.zone else None
                    return found._replace(
                        rcode=NOERROR,
                        answer=found.answer[:count],
                        authority=(ns,) if ns else (),
                        additional=(),
                        is_authoritative=True,
                        target=target,
                        is_bare=False,
                    )
        return found

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
        """Returns the subject that answers of a zone depend on; None for those that depend on which zones there are."""
        return ("zone", id(self), id(served) if served else 0)

    def _depending(self, reply: ServeResult, served: ServedZone | None) -> ServeResult:
        return then(reply, partial(_reused_until, Reuse((self._subject(served),))))

    def _response(self, found: Lookup, served: ServedZone) -> Response:
        return Response(
            found.rcode,
            AA if found.is_authoritative else 0,
            found.answer,
            found.authority,
            found.additional,
            reuse=Reuse((self._subject(served), self._subject(None))),
            plugin=self.name,
            zone=served.name,
            wildcard=found.wildcard,
        )


def _reused_until(reuse: Reuse, reply: Reply) -> Reply:
    """Returns a reply that also depends on this; one that is never reused is returned as it is."""
    if reply is None or reply.reuse is NEVER or reply.reuse is PRIVATE:
        return reply
    return evolve(reply, reuse=reply.reuse.and_then(reuse))


def _followed(response: Response, now_s: float, found: Reply) -> Reply:
    """Returns the CNAMEs of a zone with what the server says to the name that they lead to.

    If no directive answers for that name, the CNAMEs are the answer and a resolver continues (RFC 1034 §4.3.2 step 3a).
    """
    if found is None:  # a directive dropped the query of this client: others may get an answer
        return evolve(response, reuse=PRIVATE)
    reuse = NEVER.and_then(found.reuse)
    if found.rcode == REFUSED or is_unanswered(found):
        return evolve(response, reuse=reuse)
    if found.rcode == SERVFAIL:
        return evolve(response, rcode=SERVFAIL, reuse=reuse, error=found.error)
    return evolve(joined(response, found, TC | RA, now_s), order=found.order)
