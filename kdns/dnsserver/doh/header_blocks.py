"""Cached header blocks of HTTP/2 (HPACK, RFC 7541): most blocks of DNS over HTTPS are equal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

import hpack
from hpack import huffman_table

from kdns.dnsserver.doh.fields import Fields
from kdns.dnsserver.doh.frames import ErrorCode, Http2Error

T = TypeVar("T")

MAX_ENCODED: Final = 1024
"""Blocks of responses that the process keeps. They differ in the length and in the time that caches may keep them."""
MAX_HUFFMAN_STEPS: Final = 4096
"""Steps of Huffman codes that the process keeps."""
MAX_DECODED: Final = 32
"""Blocks of requests that a connection keeps."""
MAX_BLOCK_BYTES: Final = 128
MAX_FIELDS: Final = 16
"""Longer blocks are not kept, nor those with more fields: a few bytes may refer to many fields of the table."""

# The first bytes of fields and values (RFC 7541 §5.2 and §6): their meanings, and those of numbers in several bytes.
_INDEXED: Final = 0x80
_LONG_INDEXED: Final = 0xFF
_NOT_ADDED: Final = 0x20
_LONG_NAME: Final = 0x0F
_HUFFMAN: Final = 0x80
_LONG_VALUE: Final = 0x7F
_UPDATES: Final = re.compile(rb"(?:[\x20-\x3e]|\x3f[\x80-\xff]*+[\0-\x7f]){3}")
"""Three updates of the table's size. A block has at most two (RFC 7541 §4.2); hpack would take 1 µs for each byte."""
_FIELD_BYTES: Final = 32
"""What each field takes beside its bytes (RFC 7541 §4.1)."""


class Encoder(hpack.Encoder):
    """Encodes without the dynamic table. So equal fields are equal bytes, on all connections."""

    @property
    def header_table_size(self) -> int:
        """The size that was last announced to the client."""
        return self.header_table.maxsize

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        """Announces a smaller table to the client (RFC 7541 §4.2); a larger one is not used."""
        if value < self.header_table.maxsize:
            self.header_table.maxsize = value
            self.table_size_changes = [value]

    def encode(self, headers: Iterable[Any] | dict[Any, Any], huffman: bool = True) -> bytes:
        """Returns the block, behind the change of the table's size that the client waits for."""
        del huffman
        size_change = super().encode(()) if self.header_table.resized else b""
        return size_change + _block(tuple(headers))


class _HuffmanSteps(dict[int, tuple[int, bytes, bool]]):
    """Steps through hpack's table by bytes: of a state and a byte, the next state, text and whether the code may end.

    A state is shifted by eight bits. Most texts take the same few hundred steps.
    """

    def __missing__(self, key: int) -> tuple[int, bytes, bool]:
        """Makes the step of two nibbles."""
        state, text, flags = key >> 8, b"", 0
        for nibble in (key >> 4 & 0xF, key & 0xF):
            state, flags, symbol = huffman_table.HUFFMAN_TABLE[state << 4 | nibble]
            if flags & huffman_table.HUFFMAN_FAIL:
                raise hpack.HPACKDecodingError("invalid Huffman code")
            if flags & huffman_table.HUFFMAN_EMIT_SYMBOL:
                text += bytes((symbol,))
        if len(self) == MAX_HUFFMAN_STEPS:
            self.clear()
        step = self[key] = state << 8, text, bool(flags & huffman_table.HUFFMAN_COMPLETE)
        return step


_huffman_steps: Final = _HuffmanSteps()


def _huffman_text(encoded: bytes) -> bytes:
    """Returns what hpack's `decode_huffman` does, in half of the time."""
    state, texts, is_whole = 0, [], True
    for byte in encoded:
        state, text, is_whole = _huffman_steps[state | byte]
        texts.append(text)
    if not is_whole:
        raise hpack.HPACKDecodingError("incomplete Huffman code")
    return b"".join(texts)


class Decoder(Generic[T]):
    """Decodes blocks to values that `read` makes of their fields.

    Values of blocks that leave the dynamic table as it is are kept, until another block changes the table.
    """

    def __init__(self, read: Callable[[Fields], T], max_fields_bytes: int) -> None:
        self._hpack = hpack.Decoder(max_fields_bytes)
        self._read = read
        self._values: dict[bytes, T] = {}

    def value(self, block: bytes) -> T:
        """Returns the value of a block; Http2Error for an invalid block and for too many fields."""
        values = self._values
        if block in values:
            return values[block]
        fields = self.fields(block)
        value = self._read(fields)
        if values is self._values and len(block) <= MAX_BLOCK_BYTES and len(fields) <= MAX_FIELDS:
            if len(values) == MAX_DECODED:
                values.clear()
            values[block] = value
        return value

    def fields(self, block: bytes) -> Fields:
        """Returns the fields of a block; if it changes the dynamic table, the kept values are dropped."""
        try:
            fields = self._plain_fields(block)
            if not fields:
                if _UPDATES.match(block):
                    raise Http2Error(ErrorCode.COMPRESSION_ERROR, "three updates of the dynamic table's size")
                before = self._dynamic_table()
                fields = list(self._hpack.decode(block, raw=True))
                if self._dynamic_table() != before:
                    self._values = {}
        except hpack.OversizedHeaderListError as error:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "too many fields") from error
        except (hpack.HPACKError, IndexError, TypeError, ValueError) as error:
            raise Http2Error(ErrorCode.COMPRESSION_ERROR, str(error)) from error
        return fields

    def _dynamic_table(self) -> tuple[int, tuple[tuple[bytes, bytes], ...]]:
        return self._hpack.header_table_size, tuple(self._hpack.header_table.dynamic_entries)

    def _plain_fields(self, block: bytes) -> Fields:
        """Returns the fields of a usual block, or nothing for another block; hpack takes twice as long.

        A usual block has a few indexed fields (RFC 7541 §6.1), and fields with an indexed name and a value that is not
        added to the dynamic table (§6.2.2 and §6.2.3). So it leaves the table as it is.
        """
        entry = self._hpack.header_table.get_by_index
        fields: list[tuple[bytes, bytes]] = []
        position = size_bytes = 0
        while position < len(block) and len(fields) < MAX_FIELDS:
            first = block[position]
            position += 1
            if _INDEXED < first < _LONG_INDEXED:
                name, value = entry(first - _INDEXED)
            elif first < _NOT_ADDED:
                index = first & _LONG_NAME
                if index == _LONG_NAME:
                    index += block[position]
                    position += 1
                length = block[position]
                start, position = position + 1, position + 1 + (length & _LONG_VALUE)
                if not 0 < index < _LONG_NAME + _HUFFMAN or length & _LONG_VALUE == _LONG_VALUE:
                    return ()
                name, value = entry(index)[0], block[start:position]
                if length & _HUFFMAN:
                    value = _huffman_text(value)
            else:
                return ()
            size_bytes += len(name) + len(value) + _FIELD_BYTES
            fields.append((name, value))
        is_usual = position == len(block) and size_bytes <= self._hpack.max_header_list_size
        return fields if is_usual else ()


@lru_cache(MAX_ENCODED)
def _block(fields: tuple[tuple[str | bytes, str | bytes], ...]) -> bytes:
    """Returns the fields' bytes.

    A never indexed field uses the static table, as a new encoder's dynamic one is empty.
    """
    return hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(name, value) for name, value in fields])
