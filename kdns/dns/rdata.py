"""Rdata between messages and values: which types have names in them, and where (RFC 3597 §4).

A type without a row has no names, or is unknown: its rdata are bytes that nobody looks into.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import pack, unpack_from
from types import MappingProxyType
from typing import Final

from kdns.dns.names import MAX_LABEL_BYTES, MAX_NAME_BYTES, POINTER, Labels, encode_name, labels_of, skip_name, text_of
from kdns.dns.rrset import Mx, Rdata, Soa, Srv
from kdns.dns.types import AAAA, CNAME, DNAME, HTTPS, MX, NAPTR, NS, NSEC, PTR, RRSIG, SOA, SRV, SVCB, A

NAME: Final = "name"
STRING: Final = "string"

# fmt: off
LAYOUTS: Final = MappingProxyType({
    NS: (NAME,), CNAME: (NAME,), PTR: (NAME,), DNAME: (NAME,), SOA: (NAME, NAME, 20), MX: (2, NAME),
    3: (NAME,), 4: (NAME,), 7: (NAME,), 8: (NAME,), 9: (NAME,), 14: (NAME, NAME), 17: (NAME, NAME), 18: (2, NAME),
    21: (2, NAME), 24: (18, NAME), 26: (2, NAME, NAME), 30: (NAME,), SRV: (6, NAME),
    NAPTR: (4, STRING, STRING, STRING, NAME), 36: (2, NAME), RRSIG: (18, NAME), NSEC: (NAME,), 58: (NAME, NAME),
    SVCB: (2, NAME), HTTPS: (2, NAME), 107: (2, NAME),
})
# fmt: on
"""Type → its first parts: a name, a character string, or a number of bytes. What follows them has no names.

MD, MF, MB, MG, MR, MINFO, RP, AFSDB, RT, SIG, PX, NXT, KX, TALINK and LP have numbers only.
"""

ONLY_A_NAME: Final = frozenset((NS, CNAME, PTR, DNAME))
_NOTHING_BEHIND: Final = ONLY_A_NAME | {SRV, MX, SOA}
ADDRESS_BYTES: Final = MappingProxyType({A: 4, AAAA: 16})
MAX_POINTERS: Final = 127
"""The most pointers in one name: a name has at most 127 labels."""
_WRONG_POINTER: Final = "its pointers lead forward, or are too many"


def name_at(packet: bytes, position: int) -> tuple[Labels, int]:
    """Labels of a name that may be compressed, and the position behind it.

    Pointers lead backwards only (RFC 1035 §4.1.4); ValueError otherwise.
    """
    labels, end, target = _labels_at(packet, position, packet)
    pointers = 0
    while target >= 0:
        pointers += 1
        if target >= position or pointers > MAX_POINTERS:
            raise ValueError(_WRONG_POINTER)
        position = target
        others, _, target = _labels_at(packet, position, packet)
        labels += others
    name = tuple(labels)
    _check_size(name)
    return name, end


class NamesAt:
    """The names of a message in lower case. Shared suffixes are read once: 5,000 names may share 126 labels."""

    __slots__ = ("_names", "_text", "_wire")

    def __init__(self, wire: bytes) -> None:
        self._wire, self._text = wire, wire.lower()
        self._names: dict[int, Labels] = {}

    def at(self, position: int, pointers: int = 0) -> Labels:
        """`pointers` were followed so far; ValueError as in `name_at`."""
        name = self._names.get(position)
        if name is None:
            labels, _, target = _labels_at(self._wire, position, self._text)
            name = tuple(labels)
            if target >= 0:
                if target >= position or pointers == MAX_POINTERS:
                    raise ValueError(_WRONG_POINTER)
                name += self.at(target, pointers + 1)
                _check_size(name)
            self._names[position] = name
        return name


def _labels_at(packet: bytes, start: int, text: bytes) -> tuple[list[bytes], int, int]:
    """The labels up to a pointer or the root, the position behind, and the target of the pointer, -1 for the root.

    `text` has the letters of the packet, maybe in lower case.
    """
    labels: list[bytes] = []
    position = start
    target = -1
    try:
        while length := packet[position]:
            position += 1
            if length >= 0xC0:
                target = (length << 8 | packet[position]) - POINTER
                break
            if length > MAX_LABEL_BYTES:
                raise ValueError("a label of an unknown kind")
            end = position + length
            labels.append(text[position:end])
            position = end
    except IndexError:
        raise ValueError("the name runs out of the packet") from None
    if position - start > MAX_NAME_BYTES:
        raise ValueError("the name is too long")
    return labels, position + 1, target


def _check_size(labels: Labels) -> None:
    if sum(map(len, labels)) + len(labels) >= MAX_NAME_BYTES:
        raise ValueError("the name is too long")


def expanded(rtype: int, packet: bytes, start: int, end: int) -> bytes:
    """The rdata between two positions, without compression; ValueError if it is invalid."""
    layout = LAYOUTS.get(rtype)
    return packet[start:end] if layout is None else _with_names(layout, packet, start, end, lambda labels: labels)


def check_rdata(rtype: int, packet: bytes, start: int, end: int, names: NamesAt) -> None:
    """Raises ValueError where `rdata_of` does, without making values; `names` are those of the whole message."""
    if rtype in ADDRESS_BYTES and end - start != ADDRESS_BYTES[rtype]:
        raise ValueError("an address of the wrong length")
    position = start
    for part in LAYOUTS.get(rtype, ()):
        if part == NAME:
            names.at(position)
            position = skip_name(packet, position)
        elif position < end:
            position += 1 + packet[position] if part == STRING else int(part)
        else:
            raise ValueError("rdata of the wrong length")
    if position > end or (position < end and rtype in _NOTHING_BEHIND):
        raise ValueError("rdata of the wrong length")


def renamed(rtype: int, rdata: Rdata, change: Callable[[Labels], Labels]) -> Rdata:
    """Changes each name in the rdata; ValueError for a name that becomes too long."""
    layout = LAYOUTS.get(rtype)
    if layout is None:
        return rdata
    wire = wire_of(rdata)
    return rdata_of(rtype, _with_names(layout, wire, 0, len(wire), change))


def rdata_of(rtype: int, wire: bytes) -> Rdata:
    """`wire` has uncompressed names; ValueError for bytes that are invalid for the type."""
    if rtype in ONLY_A_NAME:
        labels, end = name_at(wire, 0)
        return _whole(text_of(labels), end, wire)
    if rtype == SRV and len(wire) > 6:
        labels, end = name_at(wire, 6)
        priority, weight, port = unpack_from("!HHH", wire)
        return _whole(Srv(priority, weight, port, text_of(labels)), end, wire)
    if rtype == MX and len(wire) > 2:
        labels, end = name_at(wire, 2)
        return _whole(Mx(int.from_bytes(wire[:2], "big"), text_of(labels)), end, wire)
    if rtype == SOA and len(wire) > 20:
        mname, end = name_at(wire, 0)
        rname, end = name_at(wire, end)
        if len(wire) == end + 20:
            return Soa(text_of(mname), text_of(rname), *unpack_from("!IIIII", wire, end))
    if rtype in {SRV, MX, SOA}:
        raise ValueError("rdata of the wrong length")
    return wire


def wire_of(rdata: Rdata) -> bytes:
    match rdata:
        case bytes():
            return rdata
        case Srv():
            return pack("!HHH", rdata.priority, rdata.weight, rdata.port) + encode_name(labels_of(rdata.target))
        case Mx():
            return pack("!H", rdata.preference) + encode_name(labels_of(rdata.exchange))
        case Soa():
            times = (rdata.serial, rdata.refresh, rdata.retry, rdata.expire, rdata.minimum)
            return encode_name(labels_of(rdata.mname)) + encode_name(labels_of(rdata.rname)) + pack("!IIIII", *times)
        case str():
            return encode_name(labels_of(rdata))


def type_covered(rtype: int, rdata: Rdata) -> int:
    """The type that a signature signs (RFC 4034 §3.1.1), 0 for a record of another type."""
    return int.from_bytes(rdata[:2]) if rtype == RRSIG and isinstance(rdata, bytes) else 0


def character_strings(wire: bytes) -> tuple[bytes, ...]:
    """The strings of TXT or HINFO rdata; ValueError where they run out of it."""
    strings: list[bytes] = []
    position = 0
    while position < len(wire):
        end = position + 1 + wire[position]
        if end > len(wire):
            raise ValueError("a character string runs out of the rdata")
        strings.append(wire[position + 1 : end])
        position = end
    return tuple(strings)


def text_rdata(*strings: bytes) -> bytes:
    """Raises ValueError for a string of more than 255 bytes."""
    return b"".join(bytes((len(string),)) + string for string in strings)


def _whole(rdata: Rdata, end: int, wire: bytes) -> Rdata:
    if end != len(wire):
        raise ValueError("rdata of the wrong length")
    return rdata


def _with_names(
    layout: tuple[str | int, ...], packet: bytes, start: int, end: int, change: Callable[[Labels], Labels]
) -> bytes:
    parts: list[bytes] = []
    position = start
    for part in layout:
        if part == NAME:
            labels, after = name_at(packet, position)
            parts.append(encode_name(change(labels)))
        else:
            if position >= end:
                raise ValueError("rdata of the wrong length")
            after = position + (1 + packet[position] if part == STRING else int(part))
            parts.append(packet[position:after])
        if after > end:
            raise ValueError("rdata of the wrong length")
        position = after
    return b"".join((*parts, packet[position:end]))
