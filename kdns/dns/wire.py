"""Messages of other servers: the positions and values of their records.

The bytes are from the network, so every error has to be handled.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from struct import Struct, pack
from typing import Final

from kdns.dns.names import MAX_NAME_BYTES, Labels, skip_name
from kdns.dns.query import HEADER_BYTES, TC, options_of
from kdns.dns.rdata import name_at
from kdns.dns.types import AAAA, OPT, A
from kdns.values import Value

ANSWER: Final = 1
AUTHORITY: Final = 2
ADDITIONAL: Final = 3
SECTIONS: Final = (ANSWER, AUTHORITY, ADDITIONAL)

CACHED_MESSAGES: Final = 16

_COUNTS: Final = Struct("!HHHH")
_RECORD: Final = Struct("!HHIH")
_OPT: Final = rb"(\x00\x00\x29.{6}\x00\x00)?\Z"
"""An OPT without options, or none, ends the message."""
_ADDRESSES: Final = re.compile(
    rb"((?:\xc0\x0c\x00\x01\x00\x01.{4}\x00\x04.{4})+|(?:\xc0\x0c\x00\x1c\x00\x01.{4}\x00\x10.{16})+)" + _OPT,
    re.DOTALL,
)
"""Records A or AAAA of class IN whose owner is a pointer to the question."""
_ADDRESS_RECORD_BYTES: Final = {A: 16, AAAA: 28}
_LABELS: Final = b"(?:" + b"|".join(b"\\x%02x.{%d}" % (size, size) for size in range(1, 64)) + b")*"
_NAME: Final = rb"(" + _LABELS + rb"(?:\x00|\xc0([\x0c-\xff])))"
_DENIAL: Final = re.compile(
    rb"(?:\x00|\xc0([\x0c-\xff]))\x00\x06\x00\x01.{4}(..)" + _NAME + _NAME + rb".{20}" + _OPT, re.DOTALL
)
"""One SOA of class IN; its names end at the root or in a pointer to the first 256 bytes."""
_NUMBERS_BYTES: Final = 20
_ADDRESS_TTL_AT: Final = 6
"""The TTL's position in a record whose owner is a pointer."""
_NO_ANSWER: Final = bytes(2)


class Shape(Value, frozen=True):
    """Where the records are in a message of the usual forms: addresses of the question, or the SOA of a denial.

    The records end at `stop`; an OPT without options may follow. `step` is the size of each address record, 0 for a
    denial.
    """

    ttls_at: Sequence[int]
    stop: int
    step: int

    def ttl_s(self, packet: bytes) -> int:
        """The smallest TTL; for a denial at most MINIMUM, the last number of its SOA (RFC 2308 §5)."""
        at, stop = self.ttls_at[0], self.stop
        ttl = packet[at : at + 4]
        if not self.step:
            ttl = min(ttl, packet[stop - 4 : stop])
        elif len(self.ttls_at) > 1:
            ttl = min([packet[position : position + 4] for position in self.ttls_at])
        return int.from_bytes(ttl)


class Record(Value, frozen=True):
    """The position of a record in a message, with its section, type, class and TTL."""

    section: int
    owner_at: int
    rtype: int
    rclass: int
    ttl: int
    ttl_at: int
    rdata_at: int
    end: int


_known: Final[dict[bytes, tuple[Record, ...]]] = {}
"""Records of the last few messages: several directives read the same upstream's message."""


def records(packet: bytes) -> tuple[Record, ...]:
    scanned = _known.get(packet)
    if scanned is None:
        scanned = _scanned(packet)
        if len(_known) >= CACHED_MESSAGES:
            _known.clear()
        _known[packet] = scanned
    return scanned


def shape_of(packet: bytes, question_end: int) -> Shape | None:
    """None for a message of any other form; one pattern is cheaper than a loop over records."""
    is_denial = packet[6:8] == _NO_ANSWER
    match = (_DENIAL if is_denial else _ADDRESSES).match(packet, question_end)
    if match is None:
        return None
    if is_denial:
        stop, counts = match.end(5) + _NUMBERS_BYTES, (1, 0, 1)
        shape = Shape((match.start(2) - 4,), stop, 0)
        if not _is_sound(packet, question_end, match):
            return None
    else:
        stop, step = match.end(1), _ADDRESS_RECORD_BYTES[packet[question_end + 3]]
        shape = Shape(range(question_end + _ADDRESS_TTL_AT, stop, step), stop, step)
        counts = (1, len(shape.ttls_at), 0)
    return shape if packet.startswith(_COUNTS.pack(*counts, stop < len(packet)), 4) else None


def _is_sound(packet: bytes, question_end: int, match: re.Match[bytes]) -> bool:
    """Whether the pointers of a denial lead to labels of the question, and its names are not too long."""
    label_starts = set()
    name_end = question_end - 5
    at = HEADER_BYTES
    while at < name_end:
        label_starts.add(at)
        at += 1 + packet[at]
    mname_at, mname_end = match.span(3)
    rname_end = match.end(5)
    return (
        label_starts.issuperset(b"".join(filter(None, match.group(1, 4, 6))))
        and rname_end + _NUMBERS_BYTES - mname_at == int.from_bytes(match[2])
        and max(mname_end - mname_at, rname_end - mname_end) + name_end <= MAX_NAME_BYTES
    )


def _scanned(packet: bytes) -> tuple[Record, ...]:
    if len(packet) < HEADER_BYTES:
        raise ValueError("a message has at least 12 bytes")
    questions, *counts = _COUNTS.unpack_from(packet, 4)
    position = HEADER_BYTES
    size = len(packet)
    for _ in range(questions):
        position = skip_name(packet, position) + 4
    scanned: list[Record] = []
    for section, count in enumerate(counts, ANSWER):
        for _ in range(count):
            owner_at = position
            first = packet[position] if position < size else 1
            if first >= 0xC0:  # a pointer, as nearly always
                position += 2
            else:
                position = skip_name(packet, position) if first else position + 1
            rdata_at = position + 10
            if rdata_at > size:
                raise ValueError("a record runs out of the packet")
            rtype, rclass, ttl, rdata_bytes = _RECORD.unpack_from(packet, position)
            end = rdata_at + rdata_bytes
            if end > size:
                raise ValueError("rdata runs out of the packet")
            scanned.append(Record(section, owner_at, rtype, rclass, ttl, position + 4, rdata_at, end))
            position = end
    return tuple(scanned)


def cut(packet: bytes, size_bytes: int) -> bytes:
    """The message up to the last record that fits; TC if a record of the answer does not.

    Compression pointers lead backwards, so no record needs one that was cut off.
    ValueError for a message that is shorter than its counts say.
    """
    scanned = records(packet)
    fitting = [record for record in scanned if record.end <= size_bytes]
    if len(fitting) == len(scanned):
        return packet[: scanned[-1].end] if scanned else packet
    cut_off = scanned[len(fitting)]
    flags = int.from_bytes(packet[2:4], "big") | (TC if cut_off.section == ANSWER else 0)
    counts = Counter(record.section for record in fitting)
    head = packet[:2] + pack("!H", flags) + packet[4:6] + pack("!HHH", *(counts[section] for section in SECTIONS))
    return head + packet[HEADER_BYTES : cut_off.owner_at]


def owner_of(packet: bytes, record: Record) -> Labels:
    """With its case unchanged; ValueError for an invalid name."""
    return name_at(packet, record.owner_at)[0]


def without_opt(packet: bytes, scanned: Sequence[Record]) -> tuple[bytes, tuple[tuple[int, bytes], ...], int]:
    """The message, the OPT's options and upper rcode bits. An OPT before other records stays: offsets would change."""
    if not scanned:
        return packet, (), 0
    last = scanned[-1]
    if last.rtype != OPT or last.section != ADDITIONAL:
        return packet, (), 0
    additionals = int.from_bytes(packet[10:HEADER_BYTES], "big")
    bare = packet[:10] + (additionals - 1).to_bytes(2, "big") + packet[HEADER_BYTES : last.owner_at]
    if last.end == len(packet):  # bytes after it are not part of the message, and are dropped
        _known[bare] = tuple(scanned[:-1])
    return bare, options_of(packet[last.rdata_at : last.end]), last.ttl >> 24 << 4
