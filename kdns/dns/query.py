"""Packets parsed as queries, or the error response.

RFC 1035 §4.1 for the form, RFC 6891 for EDNS. No bytes raise an exception here.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct, pack
from types import EllipsisType
from typing import Final, NamedTuple

from kdns.dns.names import Labels, encode_name, lowered, read_name, skip_name, text_of
from kdns.dns.types import (
    BADVERS,
    COOKIE,
    EXTENDED_ERROR,
    FORMERR,
    IN,
    NOTIMP,
    NXDOMAIN,
    OPT,
    PADDING,
    STALE_ANSWER,
    STALE_NXDOMAIN_ANSWER,
    TCP_KEEPALIVE,
)
from kdns.values import Value

HEADER_BYTES: Final = 12
MAX_MESSAGE_BYTES: Final = 65535
PLAIN_PAYLOAD_BYTES: Final = 512
"""The largest response that a client without EDNS accepts over UDP (RFC 1035 §2.3.4)."""

QR: Final = 0x8000
AA: Final = 0x0400
TC: Final = 0x0200
RD: Final = 0x0100
RA: Final = 0x0080
Z: Final = 0x0040
AD: Final = 0x0020
CD: Final = 0x0010
OPCODE: Final = 0x7800
NOTIFY: Final = 0x2000
"""The opcode NOTIFY (RFC 1996), at its position in the flags."""

_HEADER: Final = Struct("!HHHHH")
_QUESTION: Final = Struct("!HH")
_RECORD: Final = Struct("!HHBBHH")
BARE_OPT_BYTES: Final = 11
_OPT_START: Final = b"\x00\x00\x29"
_NO_OPTIONS: Final = b"\x00\x00"
_ONE_ADDITIONAL: Final = b"\x00\x00\x00\x00\x00\x01"

HOP_BY_HOP: Final = frozenset((COOKIE, TCP_KEEPALIVE, PADDING))
"""EDNS options between two neighbours (RFC 7873, RFC 7828, RFC 7830); they change no answer."""


class Edns(NamedTuple):
    """The OPT record of a query; an option is its code and its data (RFC 6891 §6.1.2)."""

    payload_bytes: int
    do: bool
    version: int
    options: tuple[tuple[int, bytes], ...] = ()


class Query(Value, frozen=True):
    """One question.

    `labels` are folded; `question_end` is the position behind the question in `packet`. `is_plain` says that nothing
    but the question and an OPT without options was there, so that equal bytes mean an equal query.
    """

    packet: bytes
    flags: int
    labels: Labels
    qtype: int
    qclass: int
    question_end: int
    edns: Edns | None
    is_plain: bool

    @property
    def name(self) -> str:
        return text_of(self.labels)

    @property
    def spelled_name(self) -> str:
        return text_of(read_name(self.packet, HEADER_BYTES)[0])

    @property
    def has_key(self) -> bool:
        """Whether the answer table may keep its answer: it is plain, or has hop-by-hop options only."""
        edns = self.edns
        if edns is None or not edns.options:
            return self.is_plain
        size_bytes = self.question_end + BARE_OPT_BYTES + sum(4 + len(data) for _, data in edns.options)
        is_alone = len(self.packet) == size_bytes and self.packet[6:HEADER_BYTES] == _ONE_ADDITIONAL
        return is_alone and all(code in HOP_BY_HOP for code, _ in edns.options)

    @property
    def do(self) -> bool:
        return self.edns is not None and self.edns.do

    def changed(
        self,
        labels: Labels | None = None,
        qtype: int | None = None,
        *,
        qclass: int | None = None,
        flags: int | None = None,
        edns: Edns | EllipsisType | None = ...,
    ) -> Query:
        """The new packet has nothing but question and OPT; ValueError for a name that is too long."""
        name = self.packet[HEADER_BYTES : self.question_end - 4] if labels is None else encode_name(labels)
        qtype = self.qtype if qtype is None else qtype
        qclass = self.qclass if qclass is None else qclass
        flags = self.flags if flags is None else flags
        edns = self.edns if isinstance(edns, EllipsisType) else edns
        header = self.packet[:2] + pack("!HHHHH", flags, 1, 0, 0, edns is not None)
        question = name + _QUESTION.pack(qtype, qclass)
        return Query(
            b"".join((header, question, _opt(edns) if edns else b"")),
            flags,
            self.labels if labels is None else lowered(labels),
            qtype,
            qclass,
            HEADER_BYTES + len(question),
            edns,
            edns is None or not edns.options,
        )


def query_for(labels: Labels, qtype: int, *, flags: int = RD) -> Query:
    """An internal query, with the id 0 and without EDNS; ValueError for a name that is too long."""
    question = encode_name(labels) + _QUESTION.pack(qtype, IN)
    packet = b"\0\0" + pack("!HHHHH", flags, 1, 0, 0, 0) + question
    return Query(packet, flags, lowered(labels), qtype, IN, len(packet), None, is_plain=True)


def _opt(edns: Edns) -> bytes:
    options = encode_options(edns.options)
    return pack("!BHHBBHH", 0, OPT, edns.payload_bytes, 0, edns.version, QR if edns.do else 0, len(options)) + options


class Malformed(NamedTuple):
    """A packet that is not a valid query: `rcode` is None if it gets no response (a response, or too short)."""

    rcode: int | None
    question_end: int = HEADER_BYTES
    edns: Edns | None = None


def read_query(packet: bytes) -> Query | Malformed:
    if len(packet) < HEADER_BYTES:
        return Malformed(None)
    flags, questions, answers, authorities, additionals = _HEADER.unpack_from(packet, 2)
    if flags & QR:
        return Malformed(None)
    if flags & OPCODE and flags & OPCODE != NOTIFY:
        return Malformed(NOTIMP)
    if questions != 1:
        return Malformed(FORMERR)
    try:
        labels, end = read_name(packet.lower(), HEADER_BYTES)
        end += 4
        size = len(packet)
        if end > size:
            return Malformed(FORMERR)
        if additionals == 1 and size == end + BARE_OPT_BYTES and not (answers or authorities):
            tail = packet[end:]
            edns = bare_edns(tail)
            last = size if edns else 0
        else:
            edns, last = None, end if not (answers or authorities or additionals) else 0
        if not last:
            edns, last = _read_records(packet, end, answers + authorities, additionals)
    except ValueError:
        return Malformed(FORMERR)
    qtype, qclass = _QUESTION.unpack_from(packet, end - 4)
    if edns and edns.version:
        return Malformed(BADVERS, end, edns)
    if qtype == OPT:
        return Malformed(FORMERR, end, edns)
    bare = size == last and (size == end + BARE_OPT_BYTES if edns else size == end)
    return Query(packet, flags, labels, qtype, qclass, end, edns, bare)


@lru_cache(1024)
def bare_edns(record: bytes) -> Edns | None:
    """`record` has `BARE_OPT_BYTES`; None unless it is an OPT without options."""
    if record[:3] != _OPT_START or record[9:] != _NO_OPTIONS:
        return None
    _, payload_bytes, _rcode, version, extended, _ = _RECORD.unpack_from(record, 1)
    return Edns(max(payload_bytes, PLAIN_PAYLOAD_BYTES), bool(extended & QR), version)


def _read_records(packet: bytes, position: int, others: int, additionals: int) -> tuple[Edns | None, int]:
    """The OPT among the records behind the question; ValueError for a missing record or a second OPT."""
    edns = None
    for number in range(others + additionals):
        start = position
        position = skip_name(packet, position) + 10
        if position > len(packet):
            raise ValueError("a record runs out of the packet")
        rtype, payload_bytes, _rcode, version, extended, rdata_bytes = _RECORD.unpack_from(packet, position - 10)
        position += rdata_bytes
        if position > len(packet):
            raise ValueError("rdata runs out of the packet")
        if rtype == OPT:
            if edns or packet[start] != 0 or number < others:
                raise ValueError("OPT belongs once, to the root, in the additional section")
            options = options_of(packet[position - rdata_bytes : position])
            edns = Edns(max(payload_bytes, PLAIN_PAYLOAD_BYTES), bool(extended & QR), version, options)
    return edns, position


def options_of(rdata: bytes) -> tuple[tuple[int, bytes], ...]:
    """An incomplete last option is ignored."""
    options = []
    position = 0
    while position + 4 <= len(rdata):
        code, size = _QUESTION.unpack_from(rdata, position)
        position += 4
        if position + size > len(rdata):
            break
        options.append((code, rdata[position : position + size]))
        position += size
    return tuple(options)


def extended_error(code: int, text: str = "") -> tuple[int, bytes]:
    """RFC 8914 §2."""
    return EXTENDED_ERROR, code.to_bytes(2, "big") + text.encode("utf-8")


def stale_mark(rcode: int, text: str = "") -> tuple[int, bytes]:
    return extended_error(STALE_NXDOMAIN_ANSWER if rcode == NXDOMAIN else STALE_ANSWER, text)


def encode_options(options: tuple[tuple[int, bytes], ...]) -> bytes:
    return b"".join(pack("!HH", code, len(data)) + data for code, data in options)
