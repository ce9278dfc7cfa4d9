"""The protocol that a connection uses for a version of HTTP: bytes to requests, and responses to bytes."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Protocol

from kdns.dnsserver.doh.exchange import HttpRequest


class HttpError(Exception):
    """The client uses another version of HTTP; the remaining bytes to send report that."""


class HttpCodec(Protocol):
    """One connection's state."""

    @property
    def is_over(self) -> bool: ...

    @property
    def is_busy(self) -> bool:
        """Whether the next request waits until another one is answered."""
        ...

    @property
    def blocked_bytes(self) -> int:
        """Bytes of responses that the client's flow control blocks."""
        ...

    @property
    def held_bytes(self) -> int:
        """Bytes of incomplete requests, and of responses that flow control blocks."""
        ...

    @property
    def has_more(self) -> bool:
        """Whether received bytes wait until a request is answered."""
        ...

    @property
    def is_incomplete(self) -> bool: ...

    def receive(self, data: bytes) -> list[HttpRequest]:
        """Returns the requests that are complete now; HttpError for invalid bytes."""
        ...

    def respond(self, stream: int, status: HTTPStatus, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        """Answers a request, unless the client cancelled it."""
        ...

    def take_reset(self) -> list[int]:
        """Returns the streams of requests that the client has cancelled since the last call."""
        ...

    def to_send(self) -> bytes:
        """Returns the bytes to send now."""
        ...

    def close(self) -> None: ...
