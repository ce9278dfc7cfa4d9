"""Which server block answers, and what happens when its zones cannot: the path of every query that the table misses.

The closest enclosing zone among a listener's blocks wins. A name in no block is REFUSED; a name that a block has
nobody to answer for is SERVFAIL, as in CoreDNS.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from kdns.plugins.cluster_zones import ClusterZones
from kdns.records.names import is_below, labels_of
from kdns.records.rrset import RRset
from kdns.records.zone import Result, Status
from kdns.wire.query import AXFR, IN, IXFR, REFUSED, SERVFAIL, Query, Refusal, read_query
from kdns.wire.respond import RCODES, Compiler, Message, error, limit_of, refusal
from kdns.wire.table import AnswerTable, Kept, Lane, counted_type, key_of


@dataclass(frozen=True, slots=True)
class Reply:
    """What a directive behind `kubernetes` found; `is_truncated` when its source could not send all of it."""

    status: Status
    answer: tuple[RRset, ...] = ()
    authority: tuple[RRset, ...] = ()
    additional: tuple[RRset, ...] = ()
    is_truncated: bool = False


class Handler(Protocol):
    """A directive that answers what `kubernetes` does not; None when it is not its name either."""

    async def respond(self, name: str, qtype: int) -> Reply | None:
        """The records of a name (lower case, trailing dot)."""


@dataclass(slots=True)
class Block:
    """One server block at work: its zone (labels), its cluster zones, and the handlers behind them."""

    zone: str
    cluster: ClusterZones | None = None
    behind: tuple[Handler, ...] = ()
    sees_every_query: bool = False

    async def elsewhere(self, name: str, qtype: int) -> Reply | None:
        """The first handler's reply."""
        for handler in self.behind:
            if reply := await handler.respond(name, qtype):
                return reply
        return None


@dataclass(slots=True)
class Server:
    """All blocks of one listening address; `label` is its name in metrics and logs, such as `dns://:53`.

    `stacktrace` is the option of `errors`: a failure that nobody expected is logged with its stack.
    """

    label: str
    blocks: tuple[Block, ...]
    stacktrace: bool = False
    others: AnswerTable = field(default_factory=AnswerTable)
    _by_zone: tuple[tuple[tuple[str, ...], Block], ...] = ()

    def __post_init__(self) -> None:
        by_zone = ((labels_of(block.zone), block) for block in self.blocks)
        self._by_zone = tuple(sorted(by_zone, key=lambda pair: -len(pair[0])))

    def lanes(self, proto: str, family: int) -> tuple[Lane, ...]:
        """The lanes a listener may answer from without asking a block; none where a block sees every query."""
        if any(block.sees_every_query for block in self.blocks):
            return ()
        return tuple(cluster.table.lane(proto, family) for cluster in self.clusters)

    @property
    def clusters(self) -> tuple[ClusterZones, ...]:
        """The cluster zones of all blocks, each once."""
        return tuple(dict.fromkeys(block.cluster for block in self.blocks if block.cluster))

    def lane(self, block: Block | None, proto: str, family: int) -> Lane:
        """Where answers of this block are kept and counted."""
        table = block.cluster.table if block and block.cluster else self.others
        return table.lane(proto, family)

    def block_of(self, labels: tuple[str, ...]) -> Block | None:
        """The block with the closest enclosing zone."""
        for zone, block in self._by_zone:
            if is_below(labels, zone):
                return block
        return None

    def respond(self, packet: bytes, proto: str, family: int) -> bytes | Coroutine[Any, Any, bytes] | None:
        """The response to any bytes; None for silence; a coroutine where somebody else must be asked first."""
        query = read_query(packet)
        if isinstance(query, Refusal):
            return refusal(packet, query)
        block = self.block_of(query.labels)
        lane = self.lane(block, proto, family)
        if block is None or query.qclass != IN or query.qtype in {AXFR, IXFR}:
            return self._error(query, REFUSED, lane, block)
        result = None
        if block.cluster:
            known = lane.answers.get(key_of(packet)) if query.is_plain else None
            if known:
                return known.wire(packet)
            result = block.cluster.result(query)
            if result and block.cluster.falls_through(query, result):
                result = None
            elif result and not (result.pursue and block.behind):
                return block.cluster.answer(query, result, lane, block.zone).wire(packet)
        if block.behind:
            return self._elsewhere(query, result, lane, block)
        return self._error(query, SERVFAIL, lane, block)

    async def _elsewhere(self, query: Query, result: Result | None, lane: Lane, block: Block) -> bytes:
        """The response from behind: to the question itself, or for the name at which a CNAME left the zones."""
        name = result.pursue.lower() if result else ".".join((*query.labels, ""))
        reply = await block.elsewhere(name, query.qtype)
        if result is None and reply is None:
            return self._error(query, SERVFAIL, lane, block)
        reply = reply or Reply(Status.SUCCESS)
        rcode = RCODES[reply.status]
        if result:
            message = Message(rcode, result.zone, result.answer + reply.answer, is_truncated=reply.is_truncated)
        else:
            sections = (reply.answer, reply.authority, reply.additional)
            message = Message(rcode, block.zone, *sections, is_truncated=reply.is_truncated)
        compiled = Compiler().compile(query, message, limit_of(query, is_stream=lane.is_stream), block.zone)
        lane.tally.add(compiled.kept, 1)
        return compiled.wire(query.packet)

    def _error(self, query: Query, rcode: int, lane: Lane, block: Block | None) -> bytes:
        response = error(query.packet, rcode, query.question_end, query.edns)
        do = query.edns is not None and query.edns.do
        zone = block.zone if block else "dropped"
        lane.tally.add(Kept(zone, counted_type(query.qtype), rcode, do, len(query.packet), len(response)), 1)
        return response
