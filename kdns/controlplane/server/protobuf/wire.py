"""The wire format of protobuf (protobuf.dev, "Encoding"): numbers and length-delimited values, each behind a tag."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

_VARINT_BITS_MAX = 70
_WORD = 0xFFFF_FFFF_FFFF_FFFF

Value: TypeAlias = int | bytes


class ProtobufError(ValueError):
    """Bytes that are not a valid message."""


def fields(body: bytes) -> Iterator[tuple[int, Value]]:
    """Yields (field number, number or bytes) in order of appearance."""
    position = 0
    while position < len(body):
        key, position = _varint(body, position)
        match key & 7:
            case 0:
                value, position = _varint(body, position)
                yield key >> 3, value
                continue
            case 1:
                length = 8
            case 2:
                length, position = _varint(body, position)
            case 5:
                length = 4
            case other:
                raise ProtobufError(f"unknown wire type {other}")
        chunk = body[position : position + length]
        if len(chunk) != length:
            raise ProtobufError("unexpected EOF")
        position += length
        yield key >> 3, chunk


def _varint(body: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, _VARINT_BITS_MAX, 7):
        if position >= len(body):
            break
        byte = body[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & _WORD, position
    raise ProtobufError("unterminated varint")
