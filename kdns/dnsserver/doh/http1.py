"""HTTP/1.1 of a DoH connection by h11: one request at a time, bytes in and out, without a socket."""

from __future__ import annotations

from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

import h11

from kdns.dns.query import MAX_MESSAGE_BYTES
from kdns.dnsserver.doh.exchange import HttpError, HttpRequest

HEAD_BYTES: Final = 16 * 1024
"""The longest request line and headers, with a message in a parameter: h11 parses them at once."""


class Http1:
    """The server side of a connection: received bytes → requests, responses → bytes.

    `is_busy`: a request waits for its response. `has_more`: received bytes are not parsed yet.
    """

    blocked_bytes: Final = 0

    def __init__(self) -> None:
        self.is_over = self.is_busy = self.has_more = False
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self._request: HttpRequest | None = None
        """The current one: being received, or waiting for its response."""
        self._drops_body = False
        """The request was answered before its end; the rest is read, or the client would not read the response."""
        self._unsent = bytearray()

    @property
    def held_bytes(self) -> int:
        body_bytes = len(self._request.body) if self._request and not self.is_busy else 0
        return body_bytes + len(self._h11.trailing_data[0])

    @property
    def is_incomplete(self) -> bool:
        is_begun = self._request is not None or self._drops_body
        return not self.is_busy and (is_begun or bool(self._h11.trailing_data[0]))

    def receive(self, data: bytes) -> list[HttpRequest]:
        """The requests that are complete now; HttpError for invalid bytes."""
        self.has_more = False
        try:
            if data:
                self._h11.receive_data(data)
            while True:
                event = self._h11.next_event()
                if isinstance(event, h11.Request):
                    self._begin(event)
                elif self._drops_body and isinstance(event, h11.Data):
                    continue
                elif isinstance(event, h11.Data) and self._request:
                    self._request.body += bytes(event.data)
                    self._request.is_cut = len(self._request.body) > MAX_MESSAGE_BYTES
                elif isinstance(event, h11.EndOfMessage) and self._request:
                    return self._complete(self._request)
                else:
                    self.is_over |= isinstance(event, h11.ConnectionClosed | h11.EndOfMessage)
                    return []
                if self._request and self._request.is_cut:
                    return self._complete(self._request)
        except h11.RemoteProtocolError as error:
            self._refuse(HTTPStatus(error.error_status_hint))
            # its traceback has a frame of h11 that refers to it, a reference cycle that would keep the connection
            raise HttpError(str(error)) from error.with_traceback(None)

    def respond(self, stream: int, status: HTTPStatus, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        del stream
        is_cut, self._request = self._request is not None and self._request.is_cut, None
        head = [("date", formatdate(usegmt=True)), ("content-length", str(len(body))), *headers]
        if is_cut:
            head.append(("connection", "close"))
        self._send(h11.Response(status_code=status, headers=head, reason=status.phrase))
        self._send(h11.Data(data=body))
        self._send(h11.EndOfMessage())
        self.is_busy = False
        if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()
            self.has_more = bool(self._h11.trailing_data[0])
        elif is_cut and self._h11.their_state is h11.SEND_BODY:
            self._drops_body = self.has_more = True
        else:
            self.is_over = True

    def to_send(self) -> bytes:
        data = bytes(self._unsent)
        self._unsent.clear()
        return data

    def take_reset(self) -> list[int]:
        return []

    def close(self) -> None: ...

    def _begin(self, head: h11.Request) -> None:
        fields = dict(reversed(head.headers))
        if b"transfer-encoding" in fields and (b"content-length" in fields or head.http_version < b"1.1"):
            raise h11.RemoteProtocolError("two lengths of one body (RFC 9112 section 6.1)", error_status_hint=400)
        self._request = HttpRequest(
            0,
            head.method.decode("latin-1"),
            origin_form(head.target.decode("latin-1")),
            fields.get(b"content-type", b"").decode("latin-1"),
            is_cut=int(fields.get(b"content-length", b"0")) > MAX_MESSAGE_BYTES,
        )
        if self._h11.they_are_waiting_for_100_continue and not self._request.is_cut:
            self._send(h11.InformationalResponse(status_code=100, headers=[]))

    def _complete(self, request: HttpRequest) -> list[HttpRequest]:
        self.is_busy = True
        if request.is_cut:
            request.body = b""
        return [request]

    def _refuse(self, status: HTTPStatus) -> None:
        if self._h11.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            self.respond(0, status, [("connection", "close")], b"")

    def _send(self, event: h11.Event) -> None:
        self._unsent += self._h11.send(event) or b""


def origin_form(target: str) -> str:
    """The path and query of a target, which may be a whole URL (RFC 9112 §3.2.2)."""
    scheme, separator, url = target.partition("://")
    if not separator or scheme.lower() not in {"http", "https"}:
        return target
    _, slash, path = url.partition("/")
    return slash + path
