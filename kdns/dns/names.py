r"""Domain names: labels, their text and their bytes (RFC 1035 §3.1, §4.1.4, §5.1).

A label is bytes of any value. Labels are compared without regard to the case of ASCII letters, and of no others
(RFC 4343): labels of questions and of zones are folded to lower case, where `bytes.lower` does just that.
In text a dot, a quote or a byte that is not printed stands behind a backslash: `a\.b.example.` has three labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, TypeAlias

Labels: TypeAlias = tuple[bytes, ...]
"""A name's labels from left to right, without the root."""

MAX_LABEL_BYTES: Final = 63
MAX_NAME_BYTES: Final = 255
POINTER: Final = 0xC000
CACHED_NAMES: Final = 4096
"""Names whose labels are cached: zones and the targets of records recur."""

_PLAIN: Final = re.compile(rb"[A-Za-z0-9_*/-]*(?:\.[A-Za-z0-9_*/-]+)*")
_SPECIAL: Final = frozenset(b'."\\();@$')
_ESCAPED: Final = tuple(
    f"\\{octet:c}" if octet in _SPECIAL else chr(octet) if 33 <= octet <= 126 else f"\\{octet:03}"
    for octet in range(256)
)
_ESCAPE: Final = re.compile(rb"\\(?:([0-9]{3})|([^0-9]))|([^\\.])|(\.)|(\\)", re.DOTALL)
_OCTETS: Final = {b"%d" % octet: octet for octet in range(256)}
"""The labels of in-addr.arpa."""
_NIBBLES: Final = frozenset(b"%x" % nibble for nibble in range(16))


def labels_of(name: str) -> Labels:
    """Their case unchanged. ValueError for an invalid escape or character."""
    return _cached_labels(name) if len(name) <= 4 * MAX_NAME_BYTES else _labels(name)


def _labels(name: str) -> Labels:
    if name in {".", ""}:
        return ()
    raw = name.encode("latin-1")
    labels = _unescaped(raw) if b"\\" in raw else tuple(raw.split(b"."))
    return labels if labels[-1] else labels[:-1]


_cached_labels = lru_cache(CACHED_NAMES)(_labels)


def _unescaped(raw: bytes) -> Labels:
    labels: list[bytes] = []
    label = bytearray()
    for octet, quoted, plain, dot, wrong in _ESCAPE.findall(raw):
        if wrong or (octet and int(octet) > 255):
            raise ValueError(f"expected three digits up to 255 or one other character after a backslash, got {raw!r}")
        if dot:
            labels.append(bytes(label))
            label.clear()
        else:
            label += bytes((int(octet),)) if octet else quoted or plain
    return (*labels, bytes(label))


def text_of(labels: Labels) -> str:
    """With a trailing dot.

    Differs: a blank is written as its code; CoreDNS writes a backslash and the blank, which splits a field of a line.
    """
    joined = b".".join(labels)
    if _PLAIN.fullmatch(joined) and joined.count(b".") == len(labels) - 1:
        return joined.decode("ascii") + "."
    return ".".join("".join(map(_ESCAPED.__getitem__, label)) for label in labels) + "."


def folded(name: str) -> str:
    """Lowers ASCII letters only (RFC 4343)."""
    return name.lower() if name.isascii() else name.encode("latin-1").lower().decode("latin-1")


def lowered(labels: Labels) -> Labels:
    return tuple(label.lower() for label in labels)


def is_below(labels: Labels, zone: Labels) -> bool:
    return not zone or labels[-len(zone) :] == zone


class ZoneSet:
    """An ordered set of zones, from their names in lower case. It contains every folded name at or below a zone."""

    __slots__ = ("_depths", "_zones")

    def __init__(self, names: Iterable[str]) -> None:
        self._zones = dict.fromkeys(map(labels_of, names))
        self._depths = sorted({len(zone) for zone in self._zones}, reverse=True)

    def __iter__(self) -> Iterator[Labels]:
        return iter(self._zones)

    def __len__(self) -> int:
        return len(self._zones)

    def __contains__(self, labels: Labels) -> bool:
        return self.closest(labels) is not None

    def closest(self, labels: Labels) -> Labels | None:
        size = len(labels)
        for depth in self._depths:
            if depth <= size and (zone := labels[size - depth :]) in self._zones:
                return zone
        return None

    def overlaps(self, zone: Labels) -> bool:
        return zone in self or any(is_below(member, zone) for member in self._zones)


def encode_labels(labels: Labels) -> bytes:
    """Without the closing root; ValueError for a label that is empty or too long."""
    parts = []
    for label in labels:
        if not 0 < len(label) <= MAX_LABEL_BYTES:
            raise ValueError(f"a label has 1 to {MAX_LABEL_BYTES} bytes, this one {len(label)}")
        parts.append(bytes((len(label),)) + label)
    return b"".join(parts)


def encode_name(labels: Labels) -> bytes:
    """With the root; ValueError for more than 255 bytes or a bad label."""
    wire = encode_labels(labels) + b"\x00"
    if len(wire) > MAX_NAME_BYTES:
        raise ValueError(f"a name has at most {MAX_NAME_BYTES} bytes, this one {len(wire)}")
    return wire


def read_name(packet: bytes, start: int) -> tuple[Labels, int]:
    """Labels of an uncompressed name, such as a question's, and the position behind it; ValueError for any other."""
    labels = []
    position = start
    try:
        while length := packet[position]:
            position += 1
            end = position + length
            labels.append(packet[position:end])
            position = end
            if length > MAX_LABEL_BYTES:
                raise ValueError("a label is compressed or runs out of the packet")
    except IndexError:
        raise ValueError("the name runs out of the packet") from None
    position += 1
    if position - start > MAX_NAME_BYTES:
        raise ValueError("the name is too long")
    return tuple(labels), position


def skip_name(packet: bytes, position: int) -> int:
    """The position after a name that may end in a pointer; ValueError if it runs out of the packet."""
    try:
        while length := packet[position]:
            if length > MAX_LABEL_BYTES:
                break
            position += 1 + length
        else:
            return position + 1
    except IndexError:
        length = 0
    if length >= 0xC0 and position + 2 <= len(packet):
        return position + 2
    raise ValueError("the name runs out of the packet")


def reversed_address(labels: Labels) -> bytes | None:
    """The packed address of a whole reverse name (RFC 1035 §3.5, RFC 3596 §2.5); None for any other."""
    bounds = reverse_range(labels)
    return bounds[0] if bounds and bounds[0] == bounds[1] else None


def reverse_range(labels: Labels) -> tuple[bytes, bytes] | None:
    """The first and last packed address at or below a reverse name; None for any other name."""
    digits, suffix = labels[:-2][::-1], labels[-2:]
    if suffix == (b"in-addr", b"arpa"):
        if len(digits) > 4 or not _OCTETS.keys() >= {*digits}:
            return None
        octets = bytes(map(_OCTETS.__getitem__, digits))
        return octets.ljust(4, b"\x00"), octets.ljust(4, b"\xff")
    if suffix == (b"ip6", b"arpa"):
        if len(digits) > 32 or not _NIBBLES.issuperset(digits):
            return None
        nibbles = b"".join(digits).decode("ascii")
        return bytes.fromhex(nibbles.ljust(32, "0")), bytes.fromhex(nibbles.ljust(32, "f"))
    return None
