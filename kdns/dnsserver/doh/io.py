"""DNS over HTTPS (RFC 8484): connections of HTTP/2 and HTTP/1.1, within the limits of DNS over TCP."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Iterable
from functools import partial
from http import HTTPStatus
from math import inf
from typing import Final

from kdns.dnsserver.blocks import Exchange, Server
from kdns.dnsserver.doh.codec import HttpCodec, HttpError
from kdns.dnsserver.doh.exchange import MEDIA_TYPE, METHODS, HttpRequest, Refusal, max_age_s, query_of
from kdns.dnsserver.doh.http1 import Http1
from kdns.dnsserver.doh.http2 import STREAM_COST_BYTES, Http2
from kdns.dnsserver.io.exchange import PendingQuery
from kdns.dnsserver.io.interfaces import limit_kernel_buffers
from kdns.dnsserver.io.request_metrics import Requests
from kdns.dnsserver.io.stream import (
    MAX_CONNECTION_PENDING,
    StreamConnection,
    TcpClients,
    close_listener,
)
from kdns.runtime.connections import Listener, PartOfConnections, is_lost

SLICE_BYTES: Final = 1024
"""The bytes of one connection that are parsed in a turn: some requests."""
TURN: Final = 16
"""Requests of one connection that are answered in a turn."""
MAX_BLOCKED_BYTES: Final = 64 * 1024
"""Responses of a connection that its client's flow control may block before further requests wait."""

_OK: Final = HTTPStatus.OK  # in CPython 3.11 the attribute takes 0.5 µs


class HttpsListener:
    """One listening socket and its connections; without TLS they are HTTP/1.1, for a proxy."""

    def __init__(
        self,
        sock: socket.socket,
        server: Server,
        requests: Requests,
        clients: TcpClients,
        tls: ssl.SSLContext | None,
    ) -> None:
        limit_kernel_buffers(sock)
        self.server, self.requests, self.clients = server, requests, clients
        self.pool = PartOfConnections(clients.connections, clients.connections.maximum, "DNS over HTTPS")
        self.connections: set[StreamConnection] = set()
        self._listener = Listener(sock, lambda: HttpsConnection(self), tls, self.pool if tls else None)

    def use(self, tls: ssl.SSLContext | None) -> None:
        """Applies the TLS context and the limit of connections to new connections."""
        self._listener.tls = tls
        limit = self.server.options.https_connections
        self.pool.maximum = self.clients.connections.maximum if limit == inf else int(limit)

    async def close(self) -> None:
        """Stops accepting, and closes every connection after its last answer."""
        await close_listener(self._listener, self.connections)


class HttpsConnection(StreamConnection, asyncio.Protocol):
    """One client. Received bytes are parsed in small pieces, one in each turn of the connection.

    Requests wait while too many responses do: frames are still read, because one of them opens the client's window.
    """

    _is_behind_tls = True

    def __init__(self, listener: HttpsListener) -> None:
        super().__init__(listener.server, listener.requests, listener.clients, listener.pool, listener.connections)
        self._codec: HttpCodec
        self._received = b""
        self._waiting = deque[HttpRequest]()
        self._pending: dict[int, PendingQuery] = {}
        self._state = ""
        self._since_s = self._loop.time()

    def data_received(self, data: bytes) -> None:
        """Keeps the bytes for the connection's turn."""
        self._received += data
        self._go_on()

    def pause_writing(self) -> None:
        """Pauses: the client does not read its answers."""
        self._is_unread = True

    def resume_writing(self) -> None:
        """Resumes: the client reads again."""
        self._is_unread = False
        self._go_on()

    def answer(self) -> None:
        """Parses a piece of the received bytes, and answers complete requests."""
        self._is_waiting = False
        if self._transport.is_closing():  # lost since this turn was queued
            return
        piece, self._received = self._received[:SLICE_BYTES], self._received[SLICE_BYTES:]
        try:
            requests = self._codec.receive(piece)
        except HttpError:
            self._flush()
            self._transport.close()
            return
        if self._queries < self._server.options.max_queries:
            self._waiting += requests
        self._give_up(self._codec.take_reset())
        unsent = [self._codec.to_send()]
        for _ in range(TURN):
            if not (self._waiting and self._may_answer):
                break
            self._take(self._waiting.popleft())
            unsent.append(self._codec.to_send())
        self._write(unsent)
        if not self._transport.is_closing():
            self._end_turn()

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
    def _reads_on(self) -> bool:
        return not self._is_ending or bool(self._codec.blocked_bytes)

    @property
    def _received_bytes(self) -> int:
        waiting_bytes = sum(len(request.body) + len(request.target) + STREAM_COST_BYTES for request in self._waiting)
        return len(self._received) + self._codec.held_bytes + waiting_bytes

    def _begin(self) -> None:
        tls = self._transport.get_extra_info("ssl_object")
        self._codec = Http2() if tls is not None and tls.selected_alpn_protocol() == "h2" else Http1()
        self._flush()
        self._watch()

    def _close(self) -> None:
        self._codec.close()
        self._flush()
        self._transport.close()

    def _take(self, request: HttpRequest) -> None:
        self._queries += 1
        if self._queries >= self._server.options.max_queries:
            self._is_ending = True
        self._state = ""  # a request is complete: the timeouts begin again
        packet = query_of(request)
        if isinstance(packet, Refusal):
            self._refuse(request.stream, packet, has_body=request.method != "HEAD")
            return
        received_s = self._loop.time()
        outcome = self._answering.answer(packet, self._client, received_s)
        if isinstance(outcome, Exchange):
            self._respond(request.stream, outcome)
            return
        respond = partial(self._respond_later, request.stream)
        self._pending[request.stream] = query = self._answering.wait(outcome, packet, self._client, received_s, respond)
        self._pool.occupy(self)
        query.step()

    def _give_up(self, reset: list[int]) -> None:
        """Cancels requests for which the client does not wait any more."""
        for stream in reset:
            if query := self._pending.pop(stream, None):
                query.cancel()
        if reset and self._waiting:
            self._waiting = deque(request for request in self._waiting if request.stream not in reset)

    def _respond_later(self, stream: int, exchange: Exchange) -> None:
        self._pending.pop(stream, None)
        if not self._transport.is_closing():
            self._respond(stream, exchange)
            self._flush()
            self._go_on()

    def _respond(self, stream: int, exchange: Exchange) -> None:
        wire = exchange.wire
        if exchange.more_messages:
            self._refuse(stream, Refusal(HTTPStatus.NOT_IMPLEMENTED, "zones are transferred over TCP, TLS and QUIC"))
        elif wire:
            headers = (("content-type", MEDIA_TYPE), ("cache-control", f"max-age={max_age_s(wire)}"))
            self._codec.respond(stream, _OK, headers, wire)
            self._count(_OK)
            exchange.sent(self._loop.time())
        elif exchange.request is None:
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
        self._write((self._codec.to_send(),))

    def _write(self, pieces: Iterable[bytes]) -> None:
        """Sends pieces at once, each as a record of TLS: dnsperf loses every second response that comes in one."""
        unsent = [piece for piece in pieces if piece]
        if unsent and not is_lost(self._transport):
            self._transport.writelines(unsent)

    def _note_held(self) -> None:
        """Also records the time at which the connection's state changed."""
        super()._note_held()
        state = self._now_is()
        if state != self._state:
            self._state, self._since_s = state, self._loop.time()
            if not self._pending:
                self._pool.touch(self)

    def _now_is(self) -> str:
        if self._pending or self._is_waiting:
            return "answering"
        if self._is_unread or self._codec.blocked_bytes:
            return "unread"
        return "incomplete" if self._received or self._codec.is_incomplete else "idle"

    def _watch(self) -> None:
        """Aborts the connection when it has been idle, incomplete or unread for too long."""
        now_s, options = self._loop.time(), self._server.options
        times = {"unread": options.write_s, "incomplete": options.read_s, "idle": options.idle_s}
        if self._state in times and now_s - self._since_s >= times[self._state]:
            self._transport.abort()
        else:
            self._timer = self._loop.call_later(options.least_s / 2, self._watch)
