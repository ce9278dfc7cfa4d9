"""Results compiled to answers: head, body, rotation, truncation.

Negative answers share their tails: all that differs is the SOA's serial, which changes with the cluster, and where
in the question the zone begins. A new serial rewrites the few tails, not every answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import pack, unpack_from
from typing import Final

from kdns.records.names import labels_of
from kdns.records.rrset import AAAA, A, RRset
from kdns.records.zone import Result, Status
from kdns.wire.encode import Names, encode_opt, encode_section
from kdns.wire.order import AS_IS, Order
from kdns.wire.query import (
    AA,
    BADVERS,
    CD,
    NOERROR,
    NXDOMAIN,
    OPCODE,
    PLAIN_PAYLOAD_BYTES,
    QR,
    RD,
    SERVFAIL,
    TC,
    Edns,
    Query,
    Refusal,
)
from kdns.wire.table import Answer, Kept, counted_type

MAX_MESSAGE_BYTES: Final = 65535
MAX_UDP_BYTES: Final = 4096
"""The largest UDP answer, whatever the client says it can take."""

RCODES: Final = {
    Status.SUCCESS: NOERROR,
    Status.NODATA: NOERROR,
    Status.NXDOMAIN: NXDOMAIN,
    Status.SERVFAIL: SERVFAIL,
}


@dataclass(frozen=True, slots=True)
class Message:
    """The sections of a response, in records; `zone` is the part of owners that the question is expected to hold."""

    rcode: int
    zone: str
    answer: tuple[RRset, ...] = ()
    authority: tuple[RRset, ...] = ()
    additional: tuple[RRset, ...] = ()
    is_truncated: bool = False


@dataclass(slots=True)
class Compiler:
    """Makes answers from results; `order` is the `loadbalance` directive."""

    order: Order = AS_IS
    _tails: dict[tuple[str, int, bytes], list[bytes]] = field(default_factory=dict)
    _turn: int = 0

    def answer(self, query: Query, result: Result, soa: RRset, limit_bytes: int, block_zone: str) -> Answer:
        """The answer for a look-up; `block_zone` is the server block's zone, for metrics."""
        rcode = RCODES[result.status]
        if result.status is Status.SUCCESS or result.answer:
            authority = (soa,) if result.status is not Status.SUCCESS else ()
            message = Message(rcode, result.zone, result.answer, authority, result.additional)
            return self.compile(query, message, limit_bytes, block_zone)
        tail = self._tail(soa, query)
        head = _head(query, rcode, (0, 1, query.edns is not None))
        return Answer(head, query.question_end, tail, _kept(query, block_zone, rcode, len(tail[0])))

    def compile(self, query: Query, message: Message, limit_bytes: int, block_zone: str) -> Answer:
        """The answer with these sections, at most `limit_bytes` long.

        Additional records are left out first, silently; then answers, with TC set (RFC 2181 §9).
        """
        opt = encode_opt(query.edns) if query.edns else b""
        names = Names.of_question(query.labels, labels_of(message.zone))
        at = query.question_end
        end = limit_bytes - len(opt)
        room = end - at
        rrsets = self.order.arranged(message.answer)
        encoded = encode_section(rrsets, names, at, end)
        answer, size = _fitting(encoded, room)
        is_cut = message.is_truncated or len(answer) < len(encoded)
        authority: list[bytes] = []
        extra: list[bytes] = []
        if not is_cut:
            authority, used = _fitting(encode_section(message.authority, names, at + size, end), room - size)
            size += used
            names.forget_from(at + size)
            additional = self.order.arranged(message.additional)
            extra, _ = _fitting(encode_section(additional, names, at + size, end), room - size)
        head = _head(query, message.rcode, (len(answer), len(authority), len(extra) + bool(opt)), TC if is_cut else 0)
        tail = b"".join((*authority, *extra, opt))
        bodies = self._bodies(answer, rrsets, tail)
        return Answer(head, at, bodies, _kept(query, block_zone, message.rcode, len(bodies[0])))

    def renew(self, soas: dict[str, RRset]) -> None:
        """Write the zones' new SOAs into all shared tails, in place."""
        for (zone, offset, opt), tail in self._tails.items():
            tail[0] = _soa_record(soas[zone], offset) + opt

    def _tail(self, soa: RRset, query: Query) -> list[bytes]:
        opt = encode_opt(query.edns) if query.edns else b""
        zone = labels_of(soa.owner)
        offset = Names.of_question(query.labels, zone).offsets[zone] if zone else 0
        key = (soa.owner, offset, opt)
        if key not in self._tails:
            self._tails[key] = [_soa_record(soa, offset) + opt]
        return self._tails[key]

    def _bodies(self, records: list[bytes], rrsets: tuple[RRset, ...], tail: bytes) -> list[bytes]:
        """The body in every order that its addresses take in turn; CNAMEs stay in front of them.

        Records may change places where their owner is written alike: all but the first point at the same name, and
        the first as well if the question or a CNAME holds it.
        """
        fixed = sum(len(rrset.rdata) for rrset in rrsets[:-1])
        front, movable = records[:fixed], records[fixed:]
        is_movable = len(movable) > 1 and rrsets[-1].rtype in {A, AAAA} and len({*map(len, movable)}) == 1
        if not is_movable:
            return [b"".join((*records, tail))]
        self._turn += 1
        turns = self.order.turns(rrsets[-1], len(movable), self._turn)
        made = {turn: b"".join((*front, *(movable[index] for index in turn), tail)) for turn in set(turns)}
        return [made[turn] for turn in turns]


def limit_of(query: Query, *, is_stream: bool) -> int:
    """The most bytes an answer may have: 64 KiB on streams, else what the client says it takes."""
    if is_stream:
        return MAX_MESSAGE_BYTES
    return min(query.edns.payload_bytes, MAX_UDP_BYTES) if query.edns else PLAIN_PAYLOAD_BYTES


def refusal(packet: bytes, why: Refusal) -> bytes | None:
    """The error response to a packet that is no query, None for silence."""
    if why.rcode is None:
        return None
    return error(packet, why.rcode, why.question_end, why.edns)


def error(packet: bytes, rcode: int, question_end: int, edns: Edns | None) -> bytes:
    """A response that only says `rcode`; the question is repeated where it could be read."""
    (flags,) = unpack_from("!H", packet, 2)
    flags = QR | (flags & (OPCODE | RD | CD)) | (rcode & 15)
    has_question = question_end > 12
    if rcode == BADVERS and edns:
        edns = Edns(edns.payload_bytes, False, 0)
    opt = encode_opt(edns, rcode >> 4) if edns else b""
    counts = pack("!HHHH", has_question, 0, 0, bool(opt))
    return packet[:2] + pack("!H", flags) + counts + packet[12:question_end] + opt


def _head(query: Query, rcode: int, counts: tuple[int, int, int], extra_flags: int = 0) -> bytes:
    flags = QR | AA | (query.flags & (RD | CD)) | rcode | extra_flags
    return pack("!HHHHH", flags, 1, *counts)


def _kept(query: Query, zone: str, rcode: int, body_bytes: int) -> Kept:
    do = query.edns is not None and query.edns.do
    return Kept(zone, counted_type(query.qtype), rcode, do, len(query.packet), query.question_end + body_bytes)


def _fitting(records: list[bytes], room_bytes: int) -> tuple[list[bytes], int]:
    """As many of the records, from the first, as fit; and their size."""
    size = 0
    for count, record in enumerate(records):
        if size + len(record) > room_bytes:
            return records[:count], size
        size += len(record)
    return records, size


def _soa_record(soa: RRset, offset: int) -> bytes:
    """The SOA whose owner, mname and rname lean on the question's zone at `offset`; the same bytes anywhere.

    The root zone leans on nothing: its names are written out.
    """
    zone = labels_of(soa.owner)
    records = encode_section((soa,), Names({zone: offset}), MAX_MESSAGE_BYTES)
    return records[0]
