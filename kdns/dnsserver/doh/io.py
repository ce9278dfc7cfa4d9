"""DNS over HTTPS (RFC 8484): connections of HTTP/2 and HTTP/1.1, within the limits of DNS over TCP."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from functools import partial
from http import HTTPStatus
from math import inf
from typing import Final

from kdns.dnsserver.blocks import WireResponse
from kdns.dnsserver.doh.exchange import MEDIA_TYPE, METHODS, HttpError, HttpRequest, Refusal, max_age_s, query_of
from kdns.dnsserver.doh.http1 import Http1
from kdns.dnsserver.doh.http2 import STREAM_COST_BYTES, Http2
from kdns.dnsserver.io.exchange import PendingQuery
from kdns.dnsserver.io.stream import MAX_CONNECTION_PENDING, StreamConnection, StreamListener
from kdns.runtime.connections import Connections, PartOfConnections, is_lost

SLICE_BYTES: Final = 1024
"""Bytes of one connection to parse in a turn: a few requests."""
TURN: Final = 16
"""Requests of one connection to answer in a turn."""
MAX_BLOCKED_BYTES: Final = 64 * 1024
"""Further requests wait while the client's flow control blocks more response bytes than this."""

_OK: Final = HTTPStatus.OK  # in CPython 3.11 the attribute takes 0.5 µs


class HttpsConnection(StreamConnection, asyncio.Protocol):
    """One client. Received bytes are parsed in small pieces, one in each turn of the connection.

    While too many responses are blocked, requests wait, but frames are read: one of them may open the window.
    """

    _is_behind_tls = True

    def __init__(self, listener: StreamListener) -> None:
        super().__init__(listener)
        self._codec: Http1 | Http2
        self._received = b""
        self._waiting = deque[HttpRequest]()
        self._pending: dict[int, PendingQuery] = {}

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._proceed()

    def _answer_turn(self) -> None:
        piece, self._received = self._received[:SLICE_BYTES], self._received[SLICE_BYTES:]
        try:
            requests = self._codec.receive(piece)
        except HttpError:
            self._flush()
            self._transport.close()
            return
        if not self._has_last_query:
            self._waiting += requests
        self._cancel(self._codec.take_reset())
        unsent = [self._codec.to_send()]
        for _ in range(TURN):
            if not (self._waiting and self._may_answer):
                break
            self._take(self._waiting.popleft())
            unsent.append(self._codec.to_send())
        self._write(*unsent)

    @property
    def _is_full(self) -> bool:
        return self._is_unread or self._codec.is_busy

    @property
    def _may_answer(self) -> bool:
        return len(self._pending) < MAX_CONNECTION_PENDING and self._codec.blocked_bytes < MAX_BLOCKED_BYTES

    @property
    def _is_answerable(self) -> bool:
        if self._is_full:
            return False
        return bool(self._received) or self._codec.has_more or (bool(self._waiting) and self._may_answer)

    @property
    def _is_answered(self) -> bool:
        is_last = self._is_ending or self._codec.is_over
        return is_last and not (self._pending or self._is_waiting or self._waiting or self._codec.blocked_bytes)

    @property
    def _reads_further(self) -> bool:
        return not self._is_ending or bool(self._codec.blocked_bytes)

    @property
    def _received_bytes(self) -> int:
        waiting_bytes = sum(len(request.body) + len(request.target) + STREAM_COST_BYTES for request in self._waiting)
        return len(self._received) + self._codec.held_bytes + waiting_bytes

    @property
    def _is_incomplete(self) -> bool:
        return bool(self._received) or self._codec.is_incomplete

    @property
    def _has_unread_answer(self) -> bool:
        return self._is_unread or bool(self._codec.blocked_bytes)

    def _begin(self) -> None:
        tls = self._transport.get_extra_info("ssl_object")
        self._codec = Http2() if tls is not None and tls.selected_alpn_protocol() == "h2" else Http1()
        self._flush()

    def _close(self) -> None:
        self._codec.close()
        self._flush()
        self._transport.close()

    def _take(self, request: HttpRequest) -> None:
        self._count_query()
        packet = query_of(request)
        if isinstance(packet, Refusal):
            self._refuse(request.stream, packet, has_body=request.method != "HEAD")
            return
        received_s = self._loop.time()
        outcome = self._answering.answer(packet, self._client, received_s)
        if isinstance(outcome, WireResponse):
            self._respond(request.stream, outcome)
            return
        respond = partial(self._respond_later, request.stream)
        self._pending[request.stream] = query = self._answering.wait(outcome, packet, self._client, received_s, respond)
        self._pool.occupy(self)
        query.step()

    def _cancel(self, reset: list[int]) -> None:
        for stream in reset:
            if query := self._pending.pop(stream, None):
                query.cancel()
        if reset and self._waiting:
            self._waiting = deque(request for request in self._waiting if request.stream not in reset)

    def _respond_later(self, stream: int, response: WireResponse) -> None:
        self._pending.pop(stream, None)
        if not self._transport.is_closing():
            self._respond(stream, response)
            self._flush()
            self._proceed()

    def _respond(self, stream: int, response: WireResponse) -> None:
        wire = response.wire
        if response.more_messages:
            self._refuse(stream, Refusal(HTTPStatus.NOT_IMPLEMENTED, "zones are transferred over TCP, TLS and QUIC"))
        elif wire:
            headers = (("content-type", MEDIA_TYPE), ("cache-control", f"max-age={max_age_s(wire)}"))
            self._codec.respond(stream, _OK, headers, wire)
            self._count(_OK)
            response.sent(self._loop.time())
        elif response.request is None:
            self._refuse(stream, Refusal(HTTPStatus.BAD_REQUEST, "not a query of DNS"))
        else:
            self._refuse(stream, Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "no response"))

    def _refuse(self, stream: int, refusal: Refusal, *, has_body: bool = True) -> None:
        headers = [("content-type", "text/plain; charset=utf-8")]
        if refusal.status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("allow", ", ".join(METHODS)))
        self._codec.respond(stream, refusal.status, headers, f"{refusal.text}\n".encode() if has_body else b"")
        self._count(refusal.status)

    def _count(self, status: HTTPStatus) -> None:
        by_status, code = self._requests.https_responses, int(status)
        by_status[code] = by_status.get(code, 0) + 1

    def _flush(self) -> None:
        self._write(self._codec.to_send())

    def _write(self, *pieces: bytes) -> None:
        """Sends each piece as a TLS record of its own: dnsperf loses every second response in a joint one."""
        unsent = [piece for piece in pieces if piece]
        if unsent and not is_lost(self._transport):
            self._transport.writelines(unsent)


class HttpsListener(StreamListener):
    """DNS over HTTPS; without TLS its connections are HTTP/1.1, for a proxy."""

    protocol = HttpsConnection

    def _pool_of(self, connections: Connections) -> Connections:
        return PartOfConnections(connections, connections.maximum, "DNS over HTTPS")

    def use(self, tls: ssl.SSLContext | None) -> None:
        """Also applies the limit of connections."""
        super().use(tls)
        limit = self.server.options.https_connections
        self.pool.maximum = self.clients.connections.maximum if limit == inf else int(limit)
