"""A list of the API, split into its items while it arrives.

The memory that a list takes is that of one item and one chunk, also if a server has all objects in one page.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

OBJECT_MAX_BYTES: Final = 16 << 20
"""The longest object, and the longest list without its items. etcd refuses objects of more than a few MiB."""
LONG_STRING_BYTES: Final = 64 << 10
"""A string of more is scanned again when twice as much of it has arrived, and not with each chunk."""

_NESTED: Final = 8
"""How deep an object may be nested to be matched at once, as those of the API are."""


def _nested(depth: int) -> bytes:
    return rb"\{%s(?:%s%s)*+\}" % (_TEXT, _nested(depth - 1), _TEXT) if depth else rb"\{%s\}" % _TEXT


_TEXT: Final = rb'(?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+'
_BRACE: Final = re.compile(_TEXT + rb"([{}])", re.DOTALL)
"""Everything to the next brace outside of a string."""
_OBJECT: Final = re.compile(_TEXT + rb"(%s|[{}])" % _nested(_NESTED), re.DOTALL)
"""Everything to the end of the next object, or to the next brace."""
_ITEMS: Final = re.compile(rb'"items"\s*:\s*\[\s*\Z')
_SPACE: Final = b", \t\r\n"
_OPEN, _CLOSE = b"{}"


class ListItems:
    """Finds the items in the chunks of a list; `envelope` is the list without them, as far as it has arrived."""

    def __init__(self) -> None:
        self.envelope = bytearray()
        self._rest = bytearray()
        self._enough_bytes = 0
        self._scanned = 0
        self._begin = 0
        self._depth = 0
        self._is_in_items = False
        self._found: list[bytes] = []

    @property
    def has_begun(self) -> bool:
        """Whether `envelope` ends within the array of items."""
        return self._is_in_items

    def feed(self, chunk: bytes) -> list[bytes]:
        """Returns the items that a chunk completes. Raises DecodeError beyond OBJECT_MAX_BYTES."""
        self._rest += chunk
        if len(self._rest) < min(self._enough_bytes, OBJECT_MAX_BYTES):
            return []
        while match := (_OBJECT if self._depth else _BRACE).match(self._rest, self._scanned):
            begin, self._scanned = match.span(1)
            if self._rest[begin] == _OPEN:
                if self._depth == 1:
                    self._between(self._taken(begin))
                self._depth += 1
            if self._rest[self._scanned - 1] == _CLOSE:
                self._depth -= 1
                if self._depth == 1:
                    value = self._taken(self._scanned)
                    if self._is_in_items:
                        self._found.append(value)
                    else:
                        self.envelope += value
        del self._rest[: self._begin]
        self._scanned, self._begin = self._scanned - self._begin, 0
        if len(self._rest) > OBJECT_MAX_BYTES or len(self.envelope) > OBJECT_MAX_BYTES:
            raise msgspec.DecodeError(too_long("an object of the list"))
        unscanned_bytes = len(self._rest) - self._scanned
        is_long = unscanned_bytes > LONG_STRING_BYTES
        self._enough_bytes = self._scanned + 2 * unscanned_bytes if is_long else 0
        found, self._found = self._found, []
        return found

    def end(self) -> list[bytes]:
        """Returns the last items; `envelope` is complete."""
        self._enough_bytes = 0
        found = self.feed(b"")
        self._between(self._taken(len(self._rest)))
        last, self._found = self._found, []
        return found + last

    def _taken(self, end: int) -> bytes:
        begin, self._begin = self._begin, end
        return bytes(self._rest[begin:end])

    def _between(self, text: bytes) -> None:
        """Takes what is outside of the objects in the list; an item that is not an object is one nevertheless."""
        if self._is_in_items:
            value, end, text = text.partition(b"]")
            if value := value.strip(_SPACE):
                self._found.append(value)
            if not end:
                return
            self._is_in_items = False
            text = end + text
        self.envelope += text
        self._is_in_items = bool(_ITEMS.search(text))


def too_long(what: str) -> str:
    """Returns the text of an error for an object that no API server can have stored."""
    return (
        f"{what} is longer than {OBJECT_MAX_BYTES >> 20} MiB; kdns stops there. "
        "Check that the server is a Kubernetes API, and which object is so large"
    )
