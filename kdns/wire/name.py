"""Domain names in bytes (RFC 1035 §3.1, §4.1.4)."""

from __future__ import annotations

from typing import Final

MAX_LABEL_BYTES: Final = 63
MAX_NAME_BYTES: Final = 255
POINTER: Final = 0xC000


def encode_labels(labels: tuple[str, ...]) -> bytes:
    """The labels with their lengths, without the closing root; ValueError for one that does not fit."""
    parts = []
    for label in labels:
        raw = label.encode("latin-1")
        if not 0 < len(raw) <= MAX_LABEL_BYTES:
            raise ValueError(f"a label has 1 to {MAX_LABEL_BYTES} bytes, this one {len(raw)}")
        parts.append(bytes((len(raw),)) + raw)
    return b"".join(parts)


def encode_name(name: str) -> bytes:
    """A whole name with the root; ValueError when it is longer than 255 bytes or has a bad label."""
    labels = tuple(name.rstrip(".").split(".")) if name not in {".", ""} else ()
    wire = encode_labels(labels) + b"\x00"
    if len(wire) > MAX_NAME_BYTES:
        raise ValueError(f"a name has at most {MAX_NAME_BYTES} bytes, this one {len(wire)}")
    return wire


def read_name(packet: bytes, start: int) -> tuple[tuple[bytes, ...], int]:
    """The labels of an uncompressed name and the position behind it; ValueError for anything else.

    A question's name has nothing before it to point at, so pointers are refused with the rest.
    """
    labels = []
    position = start
    while True:
        if position >= len(packet):
            raise ValueError("the name runs out of the packet")
        length = packet[position]
        position += 1
        if length == 0:
            break
        if length > MAX_LABEL_BYTES or position + length > len(packet):
            raise ValueError("a label is compressed or runs out of the packet")
        labels.append(packet[position : position + length])
        position += length
    if position - start > MAX_NAME_BYTES:
        raise ValueError("the name is too long")
    return tuple(labels), position


def skip_name(packet: bytes, position: int) -> int:
    """The position behind a name that may end in a pointer; ValueError when it runs out of the packet."""
    while position < len(packet):
        length = packet[position]
        if length == 0:
            return position + 1
        if length >= 0xC0:
            if position + 2 > len(packet):
                break
            return position + 2
        if length > MAX_LABEL_BYTES:
            break
        position += 1 + length
    raise ValueError("the name runs out of the packet")
