"""The protocol that a connection uses for a version of HTTP: bytes to requests, and responses to bytes."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Protocol

from kdns.dnsserver.doh.exchange import HttpRequest


class HttpError(Exception):
    """The client does not speak this version of HTTP; what is left to send says so."""


class HttpCodec(Protocol):
    """One connection's state."""

    @property
    def is_over(self) -> bool:
        """Whether nothing comes any more."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether no request is taken before another one is answered."""
        ...

    @property
    def is_blocked(self) -> bool:
        """Whether the client has no room for a response."""
        ...

    @property
    def held_bytes(self) -> int:
        """Bytes of incomplete requests, and of responses that the client has no room for."""
        ...

    @property
    def has_more(self) -> bool:
        """Whether something received waits until a request is answered."""
        ...

    @property
    def is_incomplete(self) -> bool:
        """Whether a request has begun that is not whole."""
        ...

    def receive(self, data: bytes) -> list[HttpRequest]:
        """Returns the requests that are whole now; HttpError for what cannot be understood."""
        ...

    def respond(self, stream: int, status: HTTPStatus, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        """Answers a request, unless the client gave it up."""
        ...

    def take_reset(self) -> list[int]:
        """Returns the streams of the requests that the client has given up since the last call."""
        ...

    def to_send(self) -> bytes:
        """Returns the bytes to send now."""
        ...

    def close(self) -> None:
        """Announces that no further request is answered."""
        ...
