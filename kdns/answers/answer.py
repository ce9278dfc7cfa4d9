"""Responses compiled to bytes: header, body, rotation, truncation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf
from struct import Struct, pack, pack_into, unpack_from
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from kdns.answers.decode import from_wire
from kdns.answers.order import AS_IS, MOVING, Order
from kdns.answers.response import NO_HEADER, RESPONSE_FLAGS, Encoded, Message, Repeat, Response, Subject
from kdns.dns.encode import QUESTION_POINTER, Names, encode_opt, encode_section
from kdns.dns.names import POINTER, labels_of, text_of
from kdns.dns.query import (
    AA,
    BARE_OPT_BYTES,
    CD,
    HEADER_BYTES,
    MAX_MESSAGE_BYTES,
    OPCODE,
    PLAIN_PAYLOAD_BYTES,
    QR,
    RD,
    TC,
    Edns,
    Query,
)
from kdns.dns.rrset import RRset
from kdns.dns.types import AAAA, BADVERS, METRIC_TYPES, MX, OPT, A
from kdns.dns.wire import ANSWER, Record, cut, owner_of, records
from kdns.tally import Tally
from kdns.values import evolve

MAX_UDP_BYTES: Final = 1232
"""The largest UDP answer without a configured limit, also if the client accepts more.

It fits the smallest IPv6 packet, so it is not fragmented (DNS flag day 2020). Differs: CoreDNS sends as much as the
client accepts, which amplifies a query with a forged source up to 70-fold.
"""
OPTIONS_SHARE: Final = 4
"""EDNS options get at most 1/4 of the size limit."""
CACHED_KINDS: Final = 4096
"""Interned kinds of responses: equal kinds are one object in all answers."""

_TTL: Final = Struct("!HI")
TTL_BYTES: Final = _TTL.size
"""Memory of a TTL and its position."""
_NO_ID: Final = bytes(2)
_NO_QUESTION: Final = bytes(2)
_ONE_ANSWER: Final = b"\0\1"
_HEADER: Final = Struct("!HHHHH")
_A_RECORD_BYTES: Final = 16
"""Size of an A record whose owner is a pointer; an AAAA record has 28 bytes."""
encode_head: Final = lru_cache(1024)(_HEADER.pack)
"""Flags and the four counts of records → bytes."""
_REPEATED: Final = OPCODE | RD | CD
_ADDRESSES: Final = frozenset((A, AAAA))


Records = TypeVar("Records", tuple[bytes, ...], list[bytes])
HeadAndBodies: TypeAlias = tuple[bytes, tuple[bytes, ...] | list[bytes]]
"""`head` and `bodies` of an Answer."""


class ResponseKind(NamedTuple):
    """Metric labels of a response, the same each time the answer is sent."""

    zone: str
    qtype: int
    rcode: int
    do: bool
    request_bytes: int
    response_bytes: int
    plugin: str = ""
    view: str = ""


response_kind = lru_cache(CACHED_KINDS)(ResponseKind)
_PLUGIN_AT: Final = ResponseKind._fields.index("plugin")


class Answer(msgspec.Struct, eq=False, gc=False):
    """A compiled response: the id, `head`, the question, and one of `bodies`.

    The bodies are one answer with its addresses rotated; `hits` counts uses and picks the next body. A list of bodies
    is shared with other answers.
    From `until_s` on the answer needs `renew` before it is used again. TTLs count down from `aged_from_s`, None: they
    are constant. `ttls` are their values and positions, for each body or the same for all, filled by the first `renew`.
    The fields from `key` on are the table's: `subjects` and `expires_s` invalidate the answer, `counted` are the hits
    that the counters include.
    There may be 100,000 answers, so the garbage collector skips them (gc=False): none may be in a reference cycle.
    """

    head: bytes
    question_end: int
    bodies: tuple[bytes, ...] | list[bytes]
    kind: ResponseKind
    hits: int = 0
    tallies: tuple[Tally, ...] = ()
    until_s: float = inf
    aged_from_s: float | None = None
    ttls: tuple[bytes, ...] = ()
    key: bytes = b""
    subjects: tuple[Subject, ...] = ()
    expires_s: float = inf
    counted: int = 0
    weight_bytes: int = 0
    generation: int = 0

    def wire(self, packet: bytes) -> bytes:
        self.hits = hits = self.hits + 1
        bodies = self.bodies
        return b"".join((packet[:2], self.head, packet[12 : self.question_end], bodies[hits % len(bodies)]))

    def renew(self, now_s: float) -> bool:
        """Whether the answer may be used at this time; counts its TTLs down in whole seconds."""
        if now_s >= self.expires_s:
            return False
        if self.aged_from_s is not None:
            age_s = int(now_s - self.aged_from_s)
            if age_s > 0:
                self._count_down(age_s)
            self.until_s = min(self.expires_s, self.aged_from_s + max(0, age_s) + 1)
        return True

    def _count_down(self, age_s: int) -> None:
        if not self.ttls:
            ttls = tuple(_ttls(self.head, body) for body in self.bodies)
            self.ttls = ttls if len(set(ttls)) > 1 else ttls[:1]
        last = len(self.ttls) - 1
        self.bodies = tuple(_aged(body, self.ttls[min(number, last)], age_s) for number, body in enumerate(self.bodies))

    def repeat(self, repeat: Repeat, response: Response) -> None:
        """Turns the answer to the first query, sent and counted, into the answer to later ones."""
        if self.head[0] << 8 & AA and not response.header[0] & AA:
            self.head = bytes((self.head[0] & ~(AA >> 8),)) + self.head[1:]
        self.kind = response_kind(*self.kind[:_PLUGIN_AT], repeat.plugin, self.kind.view)
        self.tallies = repeat.tallies + response.tallies[repeat.replaced :]
        self.aged_from_s = repeat.aged_from_s
        if repeat.aged_from_s is not None:
            self.until_s = repeat.aged_from_s + 1


def _aged(body: bytes, ttls: bytes, age_s: int) -> bytes:
    changed = bytearray(body)
    for position, ttl in _TTL.iter_unpack(ttls):
        pack_into("!I", changed, position, max(0, ttl - age_s))
    return bytes(changed)


def limit_of(edns: Edns | None, udp_bytes: int, *, is_stream: bool) -> int:
    """An answer's maximum size: 64 KiB on streams, else the client's payload size, at most `udp_bytes`."""
    if is_stream:
        return MAX_MESSAGE_BYTES
    return min(edns.payload_bytes, udp_bytes) if edns else PLAIN_PAYLOAD_BYTES


def compile_answer(
    query: Query,
    response: Response,
    limit_bytes: int,
    block_zone: str,
    turn: int = 0,
    *,
    once: bool = False,
    now_s: float = 0.0,
    view: str = "",
) -> Answer:
    """At most `limit_bytes` long: additional records are left out first, silently; then answers, with TC (RFC 2181 §9).

    An upstream's message must have passed `with_room`. `block_zone` and `view` are the server block's, for metrics.
    `turn` is the index of the first order of addresses; `once` makes a body for that one only. TTLs are counted down to
    `now_s`, on the clock of `Response.aged_from_s`.
    """
    body = response.body
    if isinstance(body, Message) and body.shape is None and response.order.rotate and moving_of(body.wire) is None:
        response, body = from_wire(response), None
    if isinstance(body, Encoded):
        head, bodies = _encoded(query, response, body, limit_bytes, turn, once=once)
    elif body is not None:
        head, bodies = _message(query, response, body, turn, once=once)
    elif response.order.mixes(response.answer):
        head, bodies = _mixed(query, response, limit_bytes, turn, once=once)
    else:
        head, bodies = _records(query, response, limit_bytes, turn, once=once)
    if response.header is not NO_HEADER:
        (flags,) = unpack_from("!H", head)
        to_set, to_clear = response.header
        head = pack("!H", flags & ~to_clear | to_set) + head[2:]
    end, edns = query.question_end, query.edns
    qtype = query.qtype if query.qtype in METRIC_TYPES else 0
    do = edns is not None and edns.do
    response_bytes = end + len(bodies[0])
    kind = response_kind(
        block_zone, qtype, response.rcode, do, len(query.packet), response_bytes, response.plugin, view
    )
    answer = Answer(head, end, bodies, kind, tallies=response.tallies)
    if response.aged_from_s is not None:
        answer.aged_from_s = response.aged_from_s
        answer.renew(now_s)
    return answer


def _ttls(head: bytes, body: bytes) -> bytes:
    """Position and value of each TTL in a body; pointers, which lead out of the body, are not followed."""
    scanned = records(b"".join((_NO_ID, head[:2], _NO_QUESTION, head[4:], body)))
    return b"".join(_TTL.pack(record.ttl_at - HEADER_BYTES, record.ttl) for record in scanned if record.rtype != OPT)


def _mixed(query: Query, response: Response, limit_bytes: int, turn: int, *, once: bool) -> HeadAndBodies:
    """Encodes the whole body for each order, because more than one RRset rotates, which changes pointers.

    A body with another number of records, because they do not fit, is left out.
    """
    orders = response.order.arrangements(response.answer, turn, once=once)
    plain = evolve(response, order=AS_IS, additional=response.order.arranged(response.additional))
    encoded = [_records(query, evolve(plain, answer=order), limit_bytes, 0, once=True) for order in orders]
    first = encoded[0][0]
    return first, tuple(bodies[0] for head, bodies in encoded if head == first)


@lru_cache(8)  # called twice for one answer
def moving_of(wire: bytes) -> list[Record] | None:
    """The addresses of a message's answer, if their bytes can be swapped; [] if nothing rotates, None if they cannot.

    They can if all are equally long and have the same pointer as owner: no pointer leads to them, and the records
    behind them stay in place.
    """
    if int.from_bytes(wire[6:8], "big") < 2:
        return []
    moving = [record for record in records(wire) if record.section == ANSWER and record.rtype in MOVING]
    if len(moving) < 2:
        return []
    first = moving[0]
    owner = wire[first.owner_at : first.owner_at + 2]
    if first.rtype == MX or owner[0] < POINTER >> 8:
        return None
    at = first.owner_at
    for record in moving:
        is_like = record.rtype == first.rtype and record.end - record.owner_at == first.end - first.owner_at
        if not is_like or record.owner_at != at or wire[at : at + 2] != owner:
            return None
        at = record.end
    return moving


def _records(query: Query, response: Response, limit_bytes: int, turn: int, *, once: bool) -> HeadAndBodies:
    edns = query.edns
    opt = encode_opt(edns, response.rcode >> 4, response.options) if edns else b""
    at = query.question_end
    soa = response.soa
    if soa is not None and not response.answer:
        return _head(query, response, 0, 1, edns is not None), soa.tail(at - 4, opt)
    end = limit_bytes - len(opt)
    rrsets = response.answer
    answer = _own_addresses(query, response, end) if len(rrsets) == 1 else None
    authority: list[bytes] = []
    additional: list[bytes] = []
    is_cut = False
    if answer is None:
        names = Names(query.labels, query.name, labels_of(response.zone))
        rrsets = response.order.arranged(rrsets)
        encoded = encode_section(rrsets, names, at, end)
        answer, size = fitting(encoded, end - at)
        is_cut = len(answer) < len(encoded)
        if not is_cut:
            encoded = encode_section((soa.rrset,) if soa else response.authority, names, at + size, end)
            authority, more = fitting(encoded, end - at - size)
            size += more
            names.forget_from(at + size)
            encoded = encode_section(response.order.arranged(response.additional), names, at + size, end)
            additional, _ = fitting(encoded, end - at - size)
    bodies = _bodies(response, answer, rrsets, b"".join((*authority, *additional, opt)), turn, once=once)
    head = _head(
        query, response, len(answer), len(authority), len(additional) + (edns is not None), TC if is_cut else 0
    )
    return head, bodies


def is_rotated(response: Response) -> bool:
    """Whether an answer with rotated addresses may differ at its next use."""
    body = response.body
    if isinstance(body, Encoded):
        return body.are_addresses and len(body.answer) > 1
    if body is not None:
        return body.wire[6:8] > _ONE_ANSWER
    return sum(len(rrset.rdata) for rrset in response.answer if rrset.rtype in MOVING) > 1


def error_answer(packet: bytes, rcode: int, question_end: int = HEADER_BYTES, edns: Edns | None = None) -> Answer:
    """Only `rcode`, and the question if it could be read."""
    (flags,) = unpack_from("!H", packet, 2)
    flags = QR | (flags & (OPCODE | RD | CD)) | (rcode & 15)
    has_question = question_end > HEADER_BYTES
    if rcode == BADVERS and edns:
        edns = Edns(edns.payload_bytes, False, 0)
    opt = encode_opt(edns, rcode >> 4) if edns else b""
    head = encode_head(flags, has_question, 0, 0, bool(opt))
    qtype = int.from_bytes(packet[question_end - 4 : question_end - 2], "big") if has_question else 0
    do = edns is not None and edns.do
    counted = qtype if qtype in METRIC_TYPES else 0
    kind = response_kind("dropped", counted, rcode, do, len(packet), question_end + len(opt))
    return Answer(head, question_end, (opt,), kind)


def _head(query: Query, response: Response, answers: int, authorities: int, additionals: int, flags: int = 0) -> bytes:
    flags |= QR | (query.flags & _REPEATED) | (response.flags & RESPONSE_FLAGS) | (response.rcode & 15)
    return encode_head(flags, 1, answers, authorities, additionals)


def _own_addresses(query: Query, response: Response, end: int) -> list[bytes] | None:
    """The records of an answer that has only addresses of the question name; None for any other answer."""
    (rrset,) = response.answer
    if rrset.rtype not in _ADDRESSES or response.authority or response.additional or response.soa is not None:
        return None
    if response.order.prefer or not query.labels or rrset.owner != query.name:
        return None
    rdata: tuple[bytes, ...] = rrset.rdata  # type: ignore[assignment] # A and AAAA hold packed addresses
    size_bytes = len(rdata[0])
    if query.question_end + len(rdata) * (len(QUESTION_POINTER) + 10 + size_bytes) > end:
        return None
    start = QUESTION_POINTER + pack("!HHIH", rrset.rtype, 1, rrset.ttl, size_bytes)
    return [start + address for address in rdata]


def _encoded(
    query: Query, response: Response, body: Encoded, limit_bytes: int, turn: int, *, once: bool
) -> HeadAndBodies:
    edns, end, records, additional = query.edns, query.question_end, body.answer, body.additional
    opt = encode_opt(edns, 0, response.options) if edns else b""
    flags = 0
    room_bytes = limit_bytes - end - len(opt)
    size_bytes = sum(map(len, records))
    if size_bytes > room_bytes:
        (records, _), additional, flags = fitting(records, room_bytes), (), TC
    elif additional and size_bytes + sum(map(len, additional)) > room_bytes:
        additional, _ = fitting(additional, room_bytes - size_bytes)
    if body.are_addresses and len(records) > 1:
        bodies = _in_turns(response.order, query, records, (b"", opt), turn, once=once)
    else:
        bodies = (b"".join((*records, *additional, opt)),)
    return _head(query, response, len(records), 0, len(additional) + (edns is not None), flags), bodies


def _message(query: Query, response: Response, body: Message, turn: int, *, once: bool) -> HeadAndBodies:
    """An upstream's message, already cut by `with_room`."""
    edns, wire, shape, end = query.edns, body.wire, body.shape, query.question_end
    opt = encode_opt(edns, response.rcode >> 4, response.options) if edns else b""
    flags, _, answers, authorities, additionals = _HEADER.unpack_from(wire, 2)
    flags = QR | (flags & (RESPONSE_FLAGS | 15)) | (query.flags & _REPEATED)
    head = encode_head(flags, 1, answers, authorities, additionals + (edns is not None))
    bodies: tuple[bytes, ...] = (wire[end:] + opt,)
    order = response.order
    if answers > 1 and order.rotate:
        if shape is not None:
            texts = [wire[at : at + shape.step] for at in range(end, shape.stop, shape.step)]
            bodies = _in_turns(order, query, texts, (b"", opt), turn, once=once)
        elif moving := moving_of(wire):
            owner = text_of(owner_of(wire, moving[0])) if order.weights else ""
            texts = [wire[record.owner_at : record.end] for record in moving]
            around = wire[end : moving[0].owner_at], wire[moving[-1].end :] + opt
            bodies = _in_turns(order, owner, texts, around, turn, once=once)
    return head, bodies


def _in_turns(
    order: Order, owner: Query | str, records: Sequence[bytes], around: tuple[bytes, bytes], turn: int, *, once: bool
) -> tuple[bytes, ...]:
    """A body for each order of `records`, addresses of one owner and size, between the bytes `around` them."""
    front, back = around
    if order.looks_at_addresses:
        rdata_at = -4 if len(records[0]) <= _A_RECORD_BYTES else -16
        ranked = order.ranked([record[rdata_at:] for record in records])
        records = [records[index] for index in ranked]
        name = owner.name if isinstance(owner, Query) else owner
        turns = order.turns((name,), [record[rdata_at:] for record in records], turn)
    else:
        turns = order.turns((), records, turn)
    if once:
        turns = turns[:1]
    if order.weights:  # they repeat orders
        bodies = {indexes: b"".join([front, *map(records.__getitem__, indexes), back]) for indexes in set(turns)}
        return tuple([bodies[indexes] for indexes in turns])
    return tuple([b"".join([front, *map(records.__getitem__, indexes), back]) for indexes in turns])


def with_room(query: Query, response: Response, limit_bytes: int) -> Response:
    """Fits an upstream's message and EDNS options into this client's limit.

    A message with another question is parsed into records, one that is too long is cut at a record. Options that take
    more than their share are dropped (RFC 8914 §3 allows it for the text of an error).
    """
    options = response.options
    if options and sum(4 + len(data) for _, data in options) > limit_bytes // OPTIONS_SHARE:
        options = ()
        response = evolve(response, options=options)
    body = response.body
    if not isinstance(body, Message):
        return response
    wire, end = body.wire, query.question_end
    question = query.packet[HEADER_BYTES:end]
    is_same = wire.startswith(question, HEADER_BYTES) or wire[HEADER_BYTES:end].lower() == question.lower()
    if wire[4:6] != b"\0\1" or not is_same:
        return from_wire(response)
    room_bytes = limit_bytes
    if query.edns:
        room_bytes -= BARE_OPT_BYTES + (sum(4 + len(data) for _, data in options) if options else 0)
    return response if len(wire) <= room_bytes else evolve(response, body=Message(cut(wire, room_bytes)))


def _bodies(
    response: Response, records: list[bytes], rrsets: tuple[RRset, ...], tail: bytes, turn: int, *, once: bool
) -> tuple[bytes, ...]:
    """A body for each order of the addresses; CNAMEs stay in front of them.

    Only addresses of equal length are swapped: their owners are the same pointer. The first is longer if its owner is
    written out, because neither the question nor a CNAME has the name.
    """
    fixed = sum(len(rrset.rdata) for rrset in rrsets[:-1])
    movable = records[fixed:]
    if len(movable) < 2 or rrsets[-1].rtype not in _ADDRESSES or len({*map(len, movable)}) > 1:
        return (b"".join((*records, tail)),)
    around = b"".join(records[:fixed]), tail
    return _in_turns(response.order, rrsets[-1].owner, movable, around, turn, once=once)


def fitting(records: Records, room_bytes: int) -> tuple[Records, int]:
    size = 0
    for count, record in enumerate(records):
        if size + len(record) > room_bytes:
            return records[:count], size
        size += len(record)
    return records, size
