"""What the `kubernetes` directive does to a query: look up, compile, remember, and forget what a change touches."""

from __future__ import annotations

from collections.abc import Iterable

from kdns.cluster.state import AnyChange, State
from kdns.records.names import is_below, labels_of
from kdns.records.options import Options
from kdns.records.subjects import APEX, touched
from kdns.records.zone import Result, Status, Zones
from kdns.wire.order import AS_IS, Order
from kdns.wire.query import Query
from kdns.wire.respond import Compiler, limit_of
from kdns.wire.table import Answer, AnswerTable, Lane, key_of


class ClusterZones:
    """The zones of one `kubernetes` directive and their answers.

    `fallthrough` are the zones, as labels, whose NXDOMAIN goes to the next directive instead.
    """

    def __init__(
        self, state: State, options: Options, *, order: Order = AS_IS, fallthrough: tuple[tuple[str, ...], ...] = ()
    ) -> None:
        self.zones = Zones(state, options)
        self.table = AnswerTable()
        self._compiler = Compiler(order)
        self._fallthrough = fallthrough

    def changed(self, changes: Iterable[AnyChange], now_s: float) -> None:
        """Forget what the changes touch; the SOA serial becomes the time of the last change (Unix seconds)."""
        subjects = {subject for change in changes for subject in touched(change, self.zones.state)}
        self.zones.forget(subjects)
        serial = int(now_s) & 0xFFFFFFFF
        if serial != self.zones.serial:
            self.zones.serial = serial
            self._compiler.renew({zone: self.zones.soa(zone) for zone in self.zones.options.zones})
        self.table.forget(subjects)

    def reorder(self, order: Order) -> None:
        """Give addresses another order from now on, as `loadbalance` says."""
        self._compiler.order = order
        self.table.clear()

    def result(self, query: Query) -> Result | None:
        """The look-up's outcome, None for a name outside the zones."""
        return self.zones.lookup(query.labels, query.qtype)

    def falls_through(self, query: Query, result: Result) -> bool:
        """Whether the next directive is asked: the name does not exist, or cannot be known yet."""
        if result.status not in {Status.NXDOMAIN, Status.SERVFAIL} or result.answer:
            return False
        return any(is_below(query.labels, zone) for zone in self._fallthrough)

    def answer(self, query: Query, result: Result, lane: Lane, block_zone: str) -> Answer:
        """The compiled answer, remembered for the next such packet where that is safe."""
        soa = self.zones.soa(result.zone)
        limit_bytes = limit_of(query, is_stream=lane.is_stream)
        answer = self._compiler.answer(query, result, soa, limit_bytes, block_zone)
        if query.is_plain and result.status is not Status.SERVFAIL:
            subjects = result.subjects
            if result.answer and result.status is not Status.SUCCESS:  # a CNAME to nothing has an SOA of its own
                subjects = (*subjects, APEX)
            self.table.remember(lane, key_of(query.packet), answer, subjects)
        else:
            lane.tally.add(answer.kept, 1)
        return answer


def fallthrough_labels(zones: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Zone names as the labels that `falls_through` compares."""
    return tuple(labels_of(zone) for zone in zones)
