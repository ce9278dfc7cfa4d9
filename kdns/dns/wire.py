"""Messages of other servers: the positions and values of their records.

The bytes are from the network, so every error has to be handled.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, pack, unpack_from
from typing import Final, NamedTuple

from kdns.dns.names import Labels, skip_name
from kdns.dns.query import AA, AD, HEADER_BYTES, RA, TC, options_of
from kdns.dns.rdata import name_at
from kdns.dns.types import OPT

ANSWER: Final = 1
AUTHORITY: Final = 2
ADDITIONAL: Final = 3

CACHED_MESSAGES: Final = 16

_COUNTS: Final = Struct("!HHHH")
_RECORD: Final = Struct("!HHIH")
_SETTABLE: Final = AA | TC | RA | AD


class Record(NamedTuple):
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
            if position < size and packet[position] >= 0xC0:  # a pointer, as nearly always
                position += 2
            else:
                position = skip_name(packet, position)
            ttl_at, rdata_at = position + 4, position + 10
            if rdata_at > size:
                raise ValueError("a record runs out of the packet")
            rtype, rclass, ttl, rdata_bytes = _RECORD.unpack_from(packet, position)
            position = rdata_at + rdata_bytes
            if position > size:
                raise ValueError("rdata runs out of the packet")
            found.append(Record(section, owner_at, rtype, rclass, ttl, ttl_at, rdata_at, position))
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
    opt = found[-1] if found else None
    if opt is None or opt.rtype != OPT or opt.section != ADDITIONAL:
        return packet, (), 0
    (additionals,) = unpack_from("!H", packet, 10)
    bare = packet[:10] + (additionals - 1).to_bytes(2, "big") + packet[HEADER_BYTES : opt.owner_at]
    if opt.end == len(packet):  # bytes after it are not part of the message, and are dropped
        _known[bare] = tuple(found[:-1])
    options = options_of(packet[opt.rdata_at : opt.end]) if opt.end > opt.rdata_at else ()
    return bare, options, opt.ttl >> 24 << 4
