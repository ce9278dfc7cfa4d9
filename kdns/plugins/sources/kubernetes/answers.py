"""A plugin that answers for the zones of a watched cluster: the common part of `kubernetes` and `k8s_external`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import Final

from kdns.answers.chain import (
    NOT_SERVED,
    Plugin,
    Request,
    Sees,
    Serve,
    ServeResult,
    follow,
    has_parent_behind,
    then,
)
from kdns.answers.response import PRIVATE, Response, Reuse, Subject, ZoneSoa
from kdns.dns.names import Labels, ZoneSet, labels_of
from kdns.dns.query import AA, stale_mark
from kdns.dns.types import DS, IN, NOERROR, NXDOMAIN, SERVFAIL, TRANSFERS
from kdns.plugins.sources.kubernetes.subjects import APEX, REVERSE, STALE
from kdns.plugins.sources.kubernetes.zone import Result, Status, Zones
from kdns.values import evolve

RCODES: Final = {
    Status.SUCCESS: NOERROR,
    Status.NODATA: NOERROR,
    Status.NXDOMAIN: NXDOMAIN,
    Status.SERVFAIL: SERVFAIL,
}
OF_SNAPSHOT: Final = Reuse((STALE,))
UNLISTED: Final = "the cluster is not listed yet"
_UNKNOWN: Final = frozenset((Status.NXDOMAIN, Status.SERVFAIL))


class ZoneAnswers(Plugin):
    """Answers for its zones from a State, with the subjects of each answer in `Response.reuse`.

    Missing and not yet known names in the zones of `fallthrough` go to the next directive, and so do empty
    non-terminals of reverse zones, because other servers may have zones there.
    DS of a zone goes to a later directive of `plugins` that has the parent zone, if there is one.
    `resolve` answers for targets of CNAMEs outside of the zones; None: the next directive does.
    """

    sees = Sees.PACKET

    def __init__(self, name: str, zones: Zones, fallthrough: Iterable[str] = ()) -> None:
        self.zones = zones
        self.resolve: Serve | None = None
        self.plugins: Callable[[], tuple[Plugin, ...]] = tuple
        self._name = name
        self._fallthrough = ZoneSet(fallthrough)
        self._soas = {zone: ZoneSoa(self.zones.soa(zone)) for zone in zones.options.zones}

    def touch(self, subjects: Collection[Subject], serial: int) -> None:
        """After a change: forgets the subjects, and sets the serial of the zones."""
        self.zones.forget(subjects)
        self.renew(serial)

    def renew(self, serial: int) -> None:
        if serial != self.zones.serial:
            self.zones.serial = serial
            for zone, soa in self._soas.items():
                soa.renew(self.zones.soa(zone))

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        """Passes on zone transfers. Other classes are REFUSED for names of the zones, which are not for upstreams."""
        query = request.query
        if query.qclass != IN:
            return next(request) if self.zones.zone_of(query.labels) is None else NOT_SERVED
        if query.qtype in TRANSFERS:
            return next(request)
        if query.qtype == DS and self._is_of_parent(query.labels):
            return next(request)
        result = self.zones.lookup(query.labels, query.qtype)
        if result is None:
            return next(request)
        if (result.status in _UNKNOWN or REVERSE in result.subjects) and self._falls_through(request, result):
            reuse = _reuse(result)
            return then(next(request), lambda reply: reply and evolve(reply, reuse=reuse.and_then(reply.reuse)))
        response = self._response(result, request)
        return follow(request, response, self.resolve or next) if result.leaves_zones else response

    def plain_zones(self) -> Iterable[Labels]:
        return map(labels_of, self.zones.options.zones)

    def _is_of_parent(self, labels: Labels) -> bool:
        zone = self.zones.zone_of(labels)
        return zone is not None and zone.labels == labels and has_parent_behind(self, self.plugins(), labels)

    def _falls_through(self, request: Request, result: Result) -> bool:
        return not result.answer and request.query.labels in self._fallthrough

    def _response(self, result: Result, request: Request) -> Response:
        """A subclass may add more for the client of the request."""
        del request
        status, zone, answer, additional, _, _ = result
        reuse, state = _reuse(result), self.zones.state
        options: tuple[tuple[int, bytes], ...] = ()
        if state.stale:
            reuse = reuse.and_then(OF_SNAPSHOT)
            saved = datetime.fromtimestamp(state.as_of_s, UTC).isoformat(timespec="seconds")
            options = (stale_mark(RCODES[status], f"no API answers; as of {saved}"),)
        if status is Status.SUCCESS:
            return Response(NOERROR, AA, answer, (), additional, None, reuse, self._name, zone, options=options)
        response = Response(
            RCODES[status], AA, answer, (), (), self._soas[zone], reuse, self._name, zone, options=options
        )
        return evolve(response, error=UNLISTED) if status is Status.SERVFAIL else response


def _reuse(result: Result) -> Reuse:
    """A dangling CNAME has its own copy of the SOA, which each change makes stale."""
    if result.status is Status.SERVFAIL:
        return PRIVATE
    if result.answer and result.status is not Status.SUCCESS:
        return Reuse((*result.subjects, APEX))
    return Reuse(result.subjects)
