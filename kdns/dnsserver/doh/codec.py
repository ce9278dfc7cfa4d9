"""The protocol that a connection uses for a version of HTTP: bytes to requests, and responses to bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from http import HTTPStatus

from kdns.dnsserver.doh.exchange import HttpRequest


class HttpError(Exception):
    """The client uses another version of HTTP; the remaining bytes to send report that."""


class HttpCodec(ABC):
    """One connection's state.

    The next request waits until another one is answered while it `is_busy`, and received bytes while it `has_more`. The
    client's flow control blocks `blocked_bytes` of responses.
    """

    is_over = False
    is_busy = False
    has_more = False
    blocked_bytes = 0

    @property
    @abstractmethod
    def held_bytes(self) -> int:
        """Bytes of incomplete requests, and of responses that flow control blocks."""

    @property
    @abstractmethod
    def is_incomplete(self) -> bool: ...

    @abstractmethod
    def receive(self, data: bytes) -> list[HttpRequest]:
        """Returns the requests that are complete now; HttpError for invalid bytes."""

    @abstractmethod
    def respond(self, stream: int, status: HTTPStatus, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        """Answers a request, unless the client cancelled it."""

    @abstractmethod
    def to_send(self) -> bytes:
        """Returns the bytes to send now."""

    def take_reset(self) -> list[int]:
        """Returns the streams of requests that the client has cancelled since the last call."""
        return []

    def close(self) -> None:  # noqa: B027 - HTTP/1.1 has no such message
        """Announces that no further request is answered."""
