"""A packet read as a query, or the reason why it gets an error or silence.

RFC 1035 §4.1 for the form, RFC 6891 for EDNS. Nothing here raises for any bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import unpack_from
from typing import Final

from kdns.wire.name import read_name, skip_name

HEADER_BYTES: Final = 12
PLAIN_PAYLOAD_BYTES: Final = 512
"""What a client without EDNS can take over UDP (RFC 1035 §2.3.4)."""

QR: Final = 0x8000
AA: Final = 0x0400
TC: Final = 0x0200
RD: Final = 0x0100
CD: Final = 0x0010
OPCODE: Final = 0x7800

NOERROR: Final = 0
FORMERR: Final = 1
SERVFAIL: Final = 2
NXDOMAIN: Final = 3
NOTIMP: Final = 4
REFUSED: Final = 5
BADVERS: Final = 16

IN: Final = 1
OPT: Final = 41
AXFR: Final = 252
IXFR: Final = 251


@dataclass(frozen=True, slots=True)
class Edns:
    """The OPT record of a query: the client's UDP payload size in bytes, DNSSEC OK, version."""

    payload_bytes: int
    do: bool
    version: int


@dataclass(frozen=True, slots=True)
class Query:
    """One question.

    `labels` are lower case; `question_end` is the position behind the question in `packet`. `is_plain` says that
    nothing but the question and a bare OPT was there, so that equal bytes mean an equal query.
    """

    packet: bytes
    flags: int
    labels: tuple[str, ...]
    qtype: int
    qclass: int
    question_end: int
    edns: Edns | None
    is_plain: bool

    @property
    def name(self) -> str:
        """The name as the client spelled it, with a trailing dot."""
        labels, _ = read_name(self.packet, HEADER_BYTES)
        return ".".join(label.decode("latin-1") for label in labels) + "."


@dataclass(frozen=True, slots=True)
class Refusal:
    """A packet that is no query to answer: `rcode` None means silence (an answer, or too short to be anything)."""

    rcode: int | None
    question_end: int = HEADER_BYTES
    edns: Edns | None = None


def read_query(packet: bytes) -> Query | Refusal:
    """The query in a packet; a Refusal for everything that is none."""
    if len(packet) < HEADER_BYTES:
        return Refusal(None)
    flags, questions, answers, authorities, additionals = unpack_from("!HHHHH", packet, 2)
    if flags & QR:
        return Refusal(None)
    if flags & OPCODE:
        return Refusal(NOTIMP)
    if questions != 1:
        return Refusal(FORMERR)
    try:
        raw, end = read_name(packet, HEADER_BYTES)
        end += 4
        if end > len(packet):
            return Refusal(FORMERR)
        edns, last = _read_records(packet, end, answers + authorities, additionals)
    except ValueError:
        return Refusal(FORMERR)
    qtype, qclass = unpack_from("!HH", packet, end - 4)
    if edns and edns.version:
        return Refusal(BADVERS, end, edns)
    if qtype == OPT:
        return Refusal(FORMERR, end, edns)
    bare = len(packet) == (end + 11 if edns else end) == last
    labels = tuple(label.decode("latin-1").lower() for label in raw)
    return Query(packet, flags, labels, qtype, qclass, end, edns, bare)


def _read_records(packet: bytes, position: int, others: int, additionals: int) -> tuple[Edns | None, int]:
    """The OPT among the records behind the question; ValueError when they run out, or for a second OPT."""
    edns = None
    for number in range(others + additionals):
        start = position
        position = skip_name(packet, position) + 10
        if position > len(packet):
            raise ValueError("a record runs out of the packet")
        rtype, payload_bytes, _rcode, version, extended = unpack_from("!HHBBH", packet, position - 10)
        position += unpack_from("!H", packet, position - 2)[0]
        if position > len(packet):
            raise ValueError("rdata runs out of the packet")
        if rtype == OPT:
            if edns or packet[start] != 0 or number < others:
                raise ValueError("OPT belongs once, to the root, in the additional section")
            edns = Edns(max(payload_bytes, PLAIN_PAYLOAD_BYTES), bool(extended & QR), version)
    return edns, position
