"""Cached header blocks of HTTP/2 (HPACK, RFC 7541): most blocks of DNS over HTTPS are equal."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import hpack

MAX_ENCODED: Final = 1024
"""Blocks of responses that the process keeps. They differ in the length and in the time that caches may keep them."""
MAX_DECODED: Final = 8
"""Blocks of requests that a connection keeps."""
MAX_BLOCK_BYTES: Final = 64
MAX_FIELDS: Final = 16
"""Longer blocks are not kept, nor those with more fields: a few bytes may refer to many fields of the table."""


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


class Decoder(hpack.Decoder):
    """Keeps the fields of blocks that leave the dynamic table as it is, until another block changes the table."""

    def __init__(self) -> None:
        super().__init__()
        self._decoded: dict[bytes, list[hpack.HeaderTuple]] = {}

    def decode(self, data: bytes, raw: bool = False) -> list[hpack.HeaderTuple]:
        """Returns the fields of a block."""
        decoded = self._decoded.get(data)
        if decoded is not None:
            return decoded
        before = self._table()
        decoded = list(super().decode(data, raw))
        if self._table() != before:
            self._decoded.clear()
        elif len(data) <= MAX_BLOCK_BYTES and len(decoded) <= MAX_FIELDS:
            if len(self._decoded) == MAX_DECODED:
                self._decoded.clear()
            self._decoded[bytes(data)] = decoded
        return decoded

    def _table(self) -> tuple[int, tuple[tuple[bytes, bytes], ...]]:
        return self.header_table_size, tuple(self.header_table.dynamic_entries)


@lru_cache(MAX_ENCODED)
def _block(fields: tuple[tuple[str | bytes, str | bytes], ...]) -> bytes:
    """Returns the fields' bytes.

    A never indexed field uses the static table, as a new encoder's dynamic one is empty.
    """
    return hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(name, value) for name, value in fields])
