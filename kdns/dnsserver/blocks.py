"""All server blocks of one listening address: the choice of the block for a packet, and the table in front of them.

The block with the closest enclosing zone wins. A name in no block is REFUSED; a name that no directive of its block
answers is SERVFAIL, as in CoreDNS.
"""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from kdns.answers.answer import (
    Answer,
    compile_answer,
    error_answer,
    is_rotated,
    limit_of,
    with_room,
)
from kdns.answers.chain import (
    NOT_SERVED,
    UNHANDLED,
    Block,
    Observer,
    Orderer,
    Reply,
    Request,
    Serve,
    ServeResult,
    for_one_client,
    then,
)
from kdns.answers.response import NEVER, NO_METADATA, PRIVATE, Encoded, Message, Response
from kdns.answers.table import AnswerTable, Generations, Partition, packet_key
from kdns.dns.names import Labels, is_below, labels_of
from kdns.dns.query import HEADER_BYTES, MAX_MESSAGE_BYTES, OPCODE, Malformed, Query, Z, read_query
from kdns.dns.types import DS, HINFO, IN, REFUSED, SERVFAIL
from kdns.serverblocks.listener_options import DEFAULTS
from kdns.values import Value, evolve

MAX_DEPTH: Final = 10
"""The deepest nesting of internal queries, each caused by the one before."""
NOT_KEPT: Final = -1
"""The epoch of an answer that must not go into the table."""
MAX_PLAIN_TYPE: Final = 127
"""Higher types are about messages and zones, or rare (RFC 6895 §3.1)."""
NOT_PLAIN: Final = frozenset((DS, HINFO))
"""DS may belong to another block, HINFO to `loop`."""
MAX_TURNS_KEPT: Final = 10_000
"""The most names with a counter of their own for rotation, for answers that are not in the table."""

_ONE_ANSWER: Final = b"\0\1"

Client: TypeAlias = tuple[str, int]


class WireResponse(Value, frozen=True):
    """The bytes of a response, b"" to send nothing, with its request and observers.

    `request` is None if no block answered. `more_messages` are further messages of a zone transfer, encoded on demand.
    """

    wire: bytes
    response: Response | None = None
    request: Request | None = None
    observers: tuple[Observer, ...] = ()
    more_messages: Iterator[bytes] | None = None

    def sent(self, now_s: float) -> None:
        if self.request and self.response:
            for observer in self.observers:
                observer.sent(self.request, self.response, self.wire, now_s - self.request.received_s)


SILENCE: Final = WireResponse(b"")
"""The packet is not a query: send nothing."""

Outcome: TypeAlias = WireResponse | Coroutine[Any, Any, WireResponse]


class Server:
    """All blocks of one listening address; `label` is its name in metrics and logs, such as `dns://:53`.

    `local` and `port` are the bound address.
    """

    def __init__(
        self,
        label: str,
        blocks: Iterable[Block],
        local: str = "",
        generations: Generations | None = None,
        port: int = 0,
    ) -> None:
        self.label = label
        self.local = local
        self.port = port
        self.options = DEFAULTS
        self.table = AnswerTable(generations)
        self.blocks: tuple[Block, ...] = ()
        self._by_zone: tuple[tuple[Labels, Block], ...] = ()
        self._turn = 0
        self._turns: dict[tuple[Labels, int], int] = {}
        self._routes: dict[Labels, Route] = {}
        self._depths: list[int] = []
        self.swap(blocks)

    def swap(self, blocks: Iterable[Block]) -> None:
        """Replaces the blocks; pending queries are finished by the old ones."""
        self.blocks = tuple(blocks)
        by_zone = ((labels_of(block.zone), block) for block in self.blocks)
        self._by_zone = tuple(sorted(by_zone, key=lambda pair: -len(pair[0])))
        self._routes = routes_of(self._by_zone, self.label)
        self._depths = sorted({len(zone) for zone in self._routes}, reverse=True)
        self.table.clear()

    def block_of(self, request: Request) -> tuple[Block | None, bool]:
        """The block with the closest enclosing zone, of several the first whose view accepts the query.

        The flag says whether the choice depends on the packet only.
        """
        if request.query.qtype == DS:
            return self._block_of_delegation(request)
        _, block, is_of_packet = next(self._blocks_of(request))
        return block, is_of_packet

    def _blocks_of(self, request: Request) -> Iterator[tuple[Labels, Block | None, bool]]:
        """Zones and blocks that enclose the name and accept the query, the closest first; None at the end.

        The flag says whether the choice up to there depends on the packet only.
        """
        labels, is_of_packet = request.query.labels, True
        for zone, block in self._by_zone:
            if is_below(labels, zone):
                if view := block.chain.view:
                    is_of_packet = is_of_packet and view.is_of_packet
                    if not view.accepts(evolve(request, zone=block.zone, view=view.view_name)):
                        continue
                yield zone, block, is_of_packet
        yield (), None, is_of_packet

    def _block_of_delegation(self, request: Request) -> tuple[Block | None, bool]:
        """The block for DS: at a zone's apex that of the parent side, if it is served (RFC 4035 §3.1.4.1)."""
        labels, child, is_of_packet = request.query.labels, None, True
        for zone, block, is_of_packet in self._blocks_of(request):
            if block is None or (child is not None and zone == labels):
                continue
            if any(plugin.parent_zone(labels) for plugin in block.chain.parents):
                return block, is_of_packet
            if zone != labels and not any(plugin.zone_of(labels) for plugin in block.chain.parents):
                return child or block, is_of_packet
            child = child or block
        return child, is_of_packet

    def respond(
        self,
        packet: bytes,
        partition: Partition,
        client: Client = ("", 0),
        received_s: float = 0.0,
        key: bytes | None = None,
    ) -> Outcome:
        """Answers a miss of the table; returns a coroutine if a plugin waits.

        `key` is the packet's key in the table, if the caller has it already.
        """
        if key is None:
            key = packet_key(packet)
        query = read_query(packet)
        if isinstance(query, Malformed):
            return SILENCE if query.rcode is None else self._error(query.rcode, query, packet, partition)
        route = self._route(query)
        if route is not None:
            block, serve = route
            local, port, label, transport = self.local, self.port, self.label, partition.transport
            request = Request(query, client[:2], local, transport, block.zone, received_s, NO_METADATA, label, "", port)
            epoch = self.table.epoch
        else:
            request, chosen, is_of_packet = self._received(query, client, partition, received_s)
            if chosen is None:
                return self._error(REFUSED, query, packet, partition)
            block, serve = chosen, chosen.chain.notify if query.flags & OPCODE else chosen.chain.serve
            epoch = self.table.epoch if is_of_packet else NOT_KEPT
        # the epoch was read before: a subject that is forgotten from now on makes the reply stale
        reply = serve(request)
        if reply is None or isinstance(reply, Response):
            return self._wire_response(request, reply, block, partition, key, epoch)
        return self._wire_response_later(request, reply, block, partition, key, epoch)

    def _route(self, query: Query) -> Route | None:
        """The route of a plain question: class IN, at most an OPT without options, no rare type; None for any other."""
        if not query.is_plain or query.qclass != IN or query.qtype > MAX_PLAIN_TYPE or query.flags & OPCODE:
            return None
        if query.qtype in NOT_PLAIN:
            return None
        labels, routes = query.labels, self._routes
        count = len(labels)
        for depth in self._depths:
            if depth <= count and (route := routes.get(labels[count - depth :])) is not None:
                return route
        return None

    def resolve(self, request: Request) -> ServeResult:
        """Answers an internal query as if a client had sent it; SERVFAIL beyond MAX_DEPTH."""
        block, is_of_packet = self.block_of(request)
        if block is None:
            return NOT_SERVED if is_of_packet else for_one_client(NOT_SERVED)
        if request.depth >= MAX_DEPTH:
            return UNHANDLED
        chain = block.chain
        reply = chain.serve(evolve(request, zone=block.zone, view=chain.view_name, depth=request.depth + 1))
        reply = then(reply, partial(_ordered, chain.orderer))
        if not is_of_packet:
            return then(reply, for_one_client)
        return reply if chain.is_cacheable else then(reply, _for_once)

    def _received(
        self, query: Query, client: Client, partition: Partition, received_s: float
    ) -> tuple[Request, Block | None, bool]:
        """The request, its block, and whether the choice of the block depends on the packet only."""
        local, port, label, transport = self.local, self.port, self.label, partition.transport
        request = Request(query, client[:2], local, transport, ".", received_s, NO_METADATA, label, "", port)
        block, is_of_packet = self.block_of(request)
        if block is not None and (block.chain.view or block.zone != "."):
            request = evolve(request, zone=block.zone, view=block.chain.view_name)
        return request, block, is_of_packet

    def failed(
        self, packet: bytes, partition: Partition, client: Client = ("", 0), received_s: float = 0.0
    ) -> tuple[WireResponse, Block | None]:
        """SERVFAIL for a query that raised an exception, and the block that it was in."""
        query = read_query(packet)
        if isinstance(query, Malformed):
            return self._error(SERVFAIL, query, packet, partition), None
        request, block, _ = self._received(query, client, partition, received_s)
        if block is None:
            return self._error(SERVFAIL, query, packet, partition), None
        return self._wire_response(request, Response(SERVFAIL), block, partition, b"", NOT_KEPT), block

    def overloaded(self, packet: bytes, partition: Partition) -> WireResponse:
        """SERVFAIL without calling any directive: too many queries are pending."""
        return self._error(SERVFAIL, read_query(packet), packet, partition)

    async def _wire_response_later(
        self, request: Request, reply: Awaitable[Reply], block: Block, partition: Partition, key: bytes, epoch: int
    ) -> WireResponse:
        return self._wire_response(request, await reply, block, partition, key, epoch)

    def _wire_response(
        self, request: Request, reply: Reply, block: Block, partition: Partition, key: bytes, epoch: int
    ) -> WireResponse:
        """Encodes a reply, and puts it into the table if every plugin and the reply allow it."""
        chain = block.chain
        reply = _ordered(chain.orderer, reply)
        if reply is None:
            return WireResponse(b"", None, request)
        query = request.query
        reuse = reply.reuse
        # with the table on, observers see failures only
        observers = chain.observers if reply.rcode == SERVFAIL or reply.error or not chain.is_cacheable else ()
        is_reusable = reuse is not NEVER and reuse is not PRIVATE and reply.signer is None and chain.is_cacheable
        if observers:
            is_reusable = False
        if reuse.repeat and not isinstance(reply.body, Message):
            is_reusable = False  # parsed records have this client's spelling of the name
        has_key = query.is_plain or query.has_key
        # another epoch: the cluster changed meanwhile
        is_kept = is_reusable and has_key and not query.flags & Z and epoch == self.table.epoch
        answer = self._answer(request, reply, block, partition, once=not is_kept)
        is_bare = reply.signer is None and not partition.pads
        wire = answer.wire(query.packet) if is_bare else self._wire(answer, request, reply, partition)
        is_of_source = reply.soa is not None or isinstance(reply.body, Encoded)
        if not (is_kept and is_of_source):  # a source's answer is counted with its later hits
            partition.count(answer)
        if is_kept:
            if reuse.repeat:
                answer.repeat(reuse.repeat, reply)
            self.table.remember(partition, key, answer, reuse)
        more_messages = (
            self._more_messages(request, reply, block, partition)
            if reply.more_messages and partition.is_stream
            else None
        )
        return WireResponse(wire, reply, request, observers, more_messages)

    def _more_messages(self, request: Request, reply: Response, block: Block, partition: Partition) -> Iterator[bytes]:
        for response in reply.more_messages:
            answer = self._answer(request, response, block, partition, once=True)
            wire = self._wire(answer, request, reply, partition)
            partition.count(answer)
            yield wire

    def _wire(self, answer: Answer, request: Request, reply: Response, partition: Partition) -> bytes:
        """Pads, then signs."""
        signer = reply.signer
        limit_bytes = MAX_MESSAGE_BYTES - (signer.size_bytes if signer else 0)
        wire = partition.wire(answer, request.query.packet, limit_bytes)
        return signer(wire) if signer else wire

    def _answer(
        self, request: Request, response: Response, block: Block, partition: Partition, *, once: bool
    ) -> Answer:
        query = request.query
        limit_bytes = limit_of(query.edns, block.udp_bytes, is_stream=partition.is_stream)
        if response.signer:
            limit_bytes -= response.signer.size_bytes
        if response.options or isinstance(response.body, Message):
            response = with_room(query, response, limit_bytes)
        turn = self._next_turn(query, once=once) if response.order.rotate and is_rotated(response) else 0
        return compile_answer(
            query,
            response,
            limit_bytes,
            block.zone,
            turn,
            once=once,
            now_s=request.received_s,
            view=block.chain.view_name,
        )

    def _next_turn(self, query: Query, *, once: bool) -> int:
        """The index of the first order of addresses; without the table, each name has its own counter."""
        if not once:
            self._turn += 1
            return self._turn
        key = (query.labels, query.qtype)
        if len(self._turns) >= MAX_TURNS_KEPT:
            self._turns.clear()
        self._turns[key] = turn = self._turns.get(key, 0) + 1
        return turn

    def _error(self, rcode: int, query: Query | Malformed, packet: bytes, partition: Partition) -> WireResponse:
        """With the question: resolvers drop an answer without it (RFC 5452 §9.1)."""
        if len(packet) < HEADER_BYTES:
            return SILENCE
        answer = error_answer(packet, rcode, query.question_end, query.edns)
        partition.counts.add(answer.kind)
        return WireResponse(partition.wire(answer, packet))


class Route(NamedTuple):
    """The block of a zone, and its chain for plain questions about the zone's names."""

    block: Block
    serve: Serve


def routes_of(by_zone: Sequence[tuple[Labels, Block]], server: str) -> dict[Labels, Route]:
    """Zone → route of plain questions about the names below it, up to the next zone.

    Zones are those of blocks (`by_zone`, the longest first) and of their plugins. No routes if any block has a view.
    """
    if any(block.chain.view for _, block in by_zone):
        return {}
    routes: dict[Labels, Route] = {}
    for own, block in reversed(by_zone):  # the first of several blocks of one zone wins
        routes = {zone: route for zone, route in routes.items() if not is_below(zone, own)}
        for zone in {own, *block.chain.zones_below(own)}:
            routes[zone] = Route(block, block.chain.for_zone(zone, server))
    return routes


def _ordered(orderer: Orderer | None, reply: Reply) -> Reply:
    """Sets the block's order of addresses, except for zone transfers."""
    if reply is None or orderer is None or reply.more_messages:
        return reply
    body = reply.body
    if body is not None:  # only its answer section rotates
        has_turns = len(body.answer) > 1 if isinstance(body, Encoded) else body.wire[6:8] > _ONE_ANSWER
    else:
        has_turns = bool(reply.answer or reply.additional)
    return evolve(reply, order=orderer.order) if has_turns else reply


def _for_once(reply: Reply) -> Reply:
    """In a block whose directives see every query, a reply is for this query only."""
    return reply and evolve(reply, reuse=NEVER.and_then(reply.reuse))


@contextmanager
def unawaited() -> Iterator[None]:
    """Suppresses Python's warning about coroutines that never started and are dropped within."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        yield
