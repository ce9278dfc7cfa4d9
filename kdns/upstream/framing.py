"""The framing of queries and responses on a connection: messages behind their lengths, or HTTP."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable
from typing import Final, Protocol, TypeAlias

from kdns.upstream.upstream import UpstreamError

Key: TypeAlias = Hashable
Arrived: TypeAlias = tuple[Key, bytes | UpstreamError]
"""A message or its error, with the key of the query."""

PIPELINED: Final = 128


class Framing(Protocol):
    """One connection's state; `max_pending` is the most unanswered queries, 0 if it takes no more."""

    max_pending: int

    def query(self, body: bytes, taken: Container[Key]) -> tuple[Key, bytes]:
        """An unused key, and the bytes to send for a query whose packet is `body` after the id."""
        ...

    def received(self, data: bytes) -> list[Arrived]:
        """The messages that these bytes complete; UpstreamError ends the connection."""
        ...

    def unsent(self) -> bytes:
        """Bytes to send besides queries; each call returns only new ones."""
        ...


class Lengths:
    """DNS over TCP and TLS: a message follows its length in two bytes (RFC 1035 §4.2.2). Keys are random ids."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self.max_pending = PIPELINED
        self._random_bytes = random_bytes
        self._buffer = b""

    def query(self, body: bytes, taken: Container[Key]) -> tuple[Key, bytes]:
        message_id = self._random_bytes(2)
        while message_id in taken:
            message_id = self._random_bytes(2)
        return message_id, (len(body) + 2).to_bytes(2, "big") + message_id + body

    def received(self, data: bytes) -> list[Arrived]:
        arrived: list[Arrived] = []
        received = self._buffer + data if self._buffer else data
        position = 0
        while position + 2 <= len(received):
            start = position + 2
            end = start + int.from_bytes(received[position:start], "big")
            if end > len(received):
                break
            arrived.append((received[start : start + 2], received[start:end]))
            position = end
        self._buffer = received[position:]
        return arrived

    def unsent(self) -> bytes:
        return b""
