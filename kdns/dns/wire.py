"""Messages of other servers: the positions and values of their records.

The bytes are from the network, so every error has to be handled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from struct import Struct, pack, unpack_from
from typing import Final

from kdns.dns.names import Labels, skip_name
from kdns.dns.query import AA, AD, HEADER_BYTES, RA, TC, options_of
from kdns.dns.rdata import name_at
from kdns.dns.types import AAAA, OPT, A
from kdns.values import Value

ANSWER: Final = 1
AUTHORITY: Final = 2
ADDITIONAL: Final = 3

CACHED_MESSAGES: Final = 16

_COUNTS: Final = Struct("!HHHH")
_RECORD: Final = Struct("!HHIH")
_SETTABLE: Final = AA | TC | RA | AD
_ADDRESSES: Final = re.compile(
    rb"((?:\xc0\x0c\x00\x01\x00\x01.{4}\x00\x04.{4})+|(?:\xc0\x0c\x00\x1c\x00\x01.{4}\x00\x10.{16})+)"
    rb"(?:\x00\x00\x29.{6}\x00\x00)?\Z",
    re.DOTALL,
)
"""Records A or AAAA of class IN whose owner is a pointer to the question, and an OPT without options."""
_ADDRESS_RECORD_BYTES: Final = {A: 16, AAAA: 28}


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
"""Caches the records of the last few messages: several directives read an upstream's message."""


def records(packet: bytes) -> tuple[Record, ...]:
    """Returns all records behind the questions, OPT included.

    ValueError for a message that is shorter than it says.
    """
    found = _known.get(packet)
    if found is None:
        found = _scanned(packet)
        if len(_known) >= CACHED_MESSAGES:
            _known.clear()
        _known[packet] = found
    return found


def addresses(packet: bytes, question_end: int) -> range | None:
    """Returns the positions of the records of a message that has only addresses, all of the question and of one type.

    It may also have an OPT without options. None for any other message. The positions stop where the addresses end.
    Most messages are such, and one match is cheaper than a loop over their records.
    """
    found = _ADDRESSES.match(packet, question_end)
    if found is None:
        return None
    places = range(question_end, found.end(1), _ADDRESS_RECORD_BYTES[packet[question_end + 3]])
    counts = _COUNTS.pack(1, len(places), 0, places.stop < len(packet))
    return places if packet.startswith(counts, 4) else None


def _scanned(packet: bytes) -> tuple[Record, ...]:
    if len(packet) < HEADER_BYTES:
        raise ValueError("a message has at least 12 bytes")
    questions, *counts = _COUNTS.unpack_from(packet, 4)
    position = HEADER_BYTES
    size = len(packet)
    for _ in range(questions):
        position = skip_name(packet, position) + 4
    found: list[Record] = []
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
            found.append(Record(section, owner_at, rtype, rclass, ttl, position + 4, rdata_at, end))
            position = end
    return tuple(found)


def cut(packet: bytes, size_bytes: int) -> bytes:
    """Returns the message with as many of its records, from the first, as fit; TC where one of the answer does not.

    Pointers lead backwards, so what is left does not lean on what went. Records behind those that fit are not read.
    ValueError for a message that is shorter than it says.
    """
    questions, *counts = _COUNTS.unpack_from(packet, 4)
    end = HEADER_BYTES
    for _ in range(questions):
        end = skip_name(packet, end) + 4
    kept = [0, 0, 0]
    for section, count in enumerate(counts):
        for _ in range(count):
            position = skip_name(packet, end) + _RECORD.size
            if position > len(packet):
                raise ValueError("a record runs out of the packet")
            position += int.from_bytes(packet[position - 2 : position], "big")
            if position > min(size_bytes, len(packet)):
                (flags,) = unpack_from("!H", packet, 2)
                flags |= 0 if section else TC
                head = packet[:2] + pack("!HHHHH", flags, questions, *kept)
                return head + packet[HEADER_BYTES:end]
            end = position
            kept[section] += 1
    return packet[:end]


def owner_of(packet: bytes, record: Record) -> Labels:
    """Returns the labels of a record's owner, their case unchanged; ValueError if the name is not a domain name."""
    return name_at(packet, record.owner_at)[0]


def without_opt(packet: bytes, found: Sequence[Record]) -> tuple[bytes, tuple[tuple[int, bytes], ...], int]:
    """Returns the message without its OPT, the options of that, and the upper bits of the rcode.

    `found` are its records. An OPT in front of other records stays, because pointers depend on its position; as a rule
    it is the last one.
    """
    if not found:
        return packet, (), 0
    last = found[-1]
    if last.rtype != OPT or last.section != ADDITIONAL:
        return packet, (), 0
    additionals = int.from_bytes(packet[10:HEADER_BYTES], "big")
    bare = packet[:10] + (additionals - 1).to_bytes(2, "big") + packet[HEADER_BYTES : last.owner_at]
    if last.end == len(packet):  # bytes after it are not part of the message, and are dropped
        _known[bare] = tuple(found[:-1])
    return bare, options_of(packet[last.rdata_at : last.end]), last.ttl >> 24 << 4
