"""DNS over HTTPS (RFC 8484): connections of HTTP/2 and HTTP/1.1, within the bounds of those over TCP."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Coroutine, Hashable
from http import HTTPStatus
from typing import Any, Final

from kdns.aio.connections import Connections, Kind, Listener, hold_unsent, is_lost, unsent_bytes
from kdns.aio.dns.encrypted.codec import HttpCodec, HttpError
from kdns.aio.dns.encrypted.doh import MEDIA_TYPE, METHODS, HttpRequest, Refusal, max_age_s, query_of
from kdns.aio.dns.encrypted.http1 import Http1
from kdns.aio.dns.encrypted.http2 import Http2
from kdns.aio.dns.exchange import answered, completed
from kdns.aio.dns.request_metrics import Requests
from kdns.aio.dns.tcp import CLOSE_S, MAX_PENDING, ConnectionLimits, TcpClients
from kdns.net import is_ipv6
from kdns.plugins.listener import HTTPS_CONNECTIONS, ListenerOptions
from kdns.plugins.server import Exchange, Server

SLICE_BYTES: Final = 512
"""How much of one connection is taken apart before others have their turn: some requests."""


class PlaceConnections(Connections):
    """The connections of one address, which count among those of the process as well."""

    def __init__(self, process: Connections, limit: int) -> None:
        super().__init__(Kind.DNS, limit)
        self._process = process

    def add(self, connection: Hashable, address: str, abort: Any) -> bool:
        """See Connections."""
        if not super().add(connection, address, abort):
            return False
        if self._process.add(connection, address, abort):
            return True
        self.remove(connection)
        return False

    def touch(self, connection: Hashable) -> None:
        """See Connections."""
        self._process.touch(connection)
        super().touch(connection)

    def occupy(self, connection: Hashable) -> None:
        """See Connections."""
        self._process.occupy(connection)
        super().occupy(connection)

    def remove(self, connection: Hashable) -> None:
        """See Connections."""
        self._process.remove(connection)
        super().remove(connection)


class HttpsListener:
    """One listening socket and its connections; without TLS they are of HTTP/1.1, as a proxy in front speaks it."""

    def __init__(
        self,
        sock: socket.socket,
        server: Server,
        requests: Requests,
        clients: TcpClients,
        tls: ssl.SSLContext | None,
        limits: ConnectionLimits,
    ) -> None:
        self.server, self.requests, self.clients, self.limits = server, requests, clients, limits
        self.pool = PlaceConnections(clients.connections, HTTPS_CONNECTIONS)
        self.connections: set[HttpsConnection] = set()
        self._listener = Listener(sock, lambda: HttpsConnection(self), tls, self.pool if tls else None)

    def use(self, tls: ssl.SSLContext | None, options: ListenerOptions) -> None:
        """Begin TLS in this way, and have so many connections, from now on."""
        self._listener.tls = tls
        limit = HTTPS_CONNECTIONS if options.https_connections is None else options.https_connections
        self.pool.maximum = limit or self.clients.connections.maximum

    async def close(self) -> None:
        """Stop accepting, and close every connection behind its last answer."""
        self._listener.close()
        pending = [task for connection in self.connections for task in connection.pending]
        for connection in tuple(self.connections):
            connection.end()
        if pending:
            await asyncio.wait(pending, timeout=CLOSE_S)
        await asyncio.sleep(0)


class HttpsConnection(asyncio.Protocol):
    """One client. Received bytes are taken apart in small pieces, when it is this connection's turn."""

    def __init__(self, listener: HttpsListener) -> None:
        self._listener = listener
        self._clients, self._limits = listener.clients, listener.limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._codec: HttpCodec
        self._client = ("", 0)
        self._is_tls = False
        self._received = b""
        self._is_unread = False
        self._is_waiting = False
        self._is_ending = False
        self._queries = 0
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._state = ""
        self._since_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the client, at the cost of one that is idle where there are too many."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - asyncio gives stream servers no other kind
        self._transport = transport
        hold_unsent(transport)
        self._client = (transport.get_extra_info("peername") or ("", 0))[:2]
        tls = transport.get_extra_info("ssl_object")
        self._is_tls = tls is not None
        self._codec = Http2() if tls is not None and tls.selected_alpn_protocol() == "h2" else Http1()
        self._lane = self._listener.server.table.lane("tcp", 6 if is_ipv6(self._client[0]) else 4)
        self._listener.connections.add(self)
        if self._listener.pool.add(self, self._client[0], self.evict):
            self._flush()
            self._watch()
        else:
            self.evict()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the client and what it was waiting for."""
        del exc
        self._leave()
        if self._timer:
            self._timer.cancel()
        for task in self._tasks.values():
            task.cancel()

    def data_received(self, data: bytes) -> None:
        """Take the bytes when it is this connection's turn."""
        self._received += data
        self._go_on()

    def eof_received(self) -> bool:
        """Answer what the client has asked, then close: it may still read. The end of TLS is that of both sides."""
        self.end()
        return not self._is_tls

    def pause_writing(self) -> None:
        """The client does not read its answers: take no more requests."""
        self._is_unread = True

    def resume_writing(self) -> None:
        """The client reads again."""
        self._is_unread = False
        self._go_on()

    def evict(self) -> None:
        """End the connection at once: its place or its memory is for others."""
        self._listener.requests.evicted += 1
        self._transport.abort()
        self._leave()

    def end(self) -> None:
        """Send the answers that are pending, then close."""
        self._is_ending = True
        self._go_on()

    def answer(self) -> None:
        """Take a piece of what was received, and answer the requests that are whole."""
        self._is_waiting = False
        piece, self._received = self._received[:SLICE_BYTES], self._received[SLICE_BYTES:]
        try:
            requests = self._codec.receive(piece)
        except HttpError:
            self._flush()
            self._transport.close()
            return
        for stream in self._codec.take_reset():
            if task := self._tasks.pop(stream, None):
                task.cancel()
        for request in requests:
            self._take(request)
            self._flush()  # each response is a record of TLS: dnsperf loses every second one of those that come in one
        self._flush()
        if not self._transport.is_closing():
            self._is_waiting = self._is_answerable
            if self._is_waiting:
                self._clients.wait(self)
            self._read_on()

    @property
    def address(self) -> str:
        """The client's IP address."""
        return self._client[0]

    @property
    def pending(self) -> list[asyncio.Task[None]]:
        """Answers that wait for somebody else."""
        return list(self._tasks.values())

    @property
    def _is_full(self) -> bool:
        return self._is_unread or self._codec.is_busy or len(self._tasks) >= MAX_PENDING

    @property
    def _is_answerable(self) -> bool:
        return not self._is_full and (bool(self._received) or self._codec.has_more)

    def _go_on(self) -> None:
        if self._transport.is_closing():
            return
        if not self._is_waiting and self._is_answerable:
            self._is_waiting = True
            self._clients.serve(self)
        else:
            self._read_on()

    def _read_on(self) -> None:
        """Read further unless that has to wait, and close behind the last answer."""
        if self._transport.is_closing():
            return
        self._note()
        if (self._is_ending or self._codec.is_over) and not (self._tasks or self._is_waiting):
            self._codec.close()
            self._flush()
            self._transport.close()
        elif self._is_full or self._is_waiting or self._is_ending:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _take(self, request: HttpRequest) -> None:
        self._queries += 1
        if self._queries >= self._limits.max_queries:
            self._is_ending = True
        self._state = ""  # a whole request has come: the times begin again
        packet = query_of(request)
        if isinstance(packet, Refusal):
            self._refuse(request.stream, packet)
            return
        listener, received_s = self._listener, self._loop.time()
        outcome = answered(listener.server, listener.requests, packet, self._lane, self._client, received_s)
        if isinstance(outcome, Exchange):
            self._respond(request.stream, outcome)
            return
        self._tasks[request.stream] = self._loop.create_task(
            self._respond_later(request.stream, packet, outcome, received_s)
        )
        self._listener.pool.occupy(self)

    async def _respond_later(
        self, stream: int, packet: bytes, outcome: Coroutine[Any, Any, Exchange], received_s: float
    ) -> None:
        listener = self._listener
        try:
            exchange = await completed(
                outcome, listener.server, listener.requests, packet, self._lane, self._client, received_s
            )
        finally:
            self._tasks.pop(stream, None)
        if not self._transport.is_closing():
            self._respond(stream, exchange)
            self._flush()
            self._go_on()

    def _respond(self, stream: int, exchange: Exchange) -> None:
        wire = exchange.wire
        if exchange.following:
            self._refuse(stream, Refusal(HTTPStatus.NOT_IMPLEMENTED, "zones are transferred over TCP, TLS and QUIC"))
        elif wire:
            headers = (("content-type", MEDIA_TYPE), ("cache-control", f"max-age={max_age_s(wire)}"))
            self._codec.respond(stream, HTTPStatus.OK, headers, wire)
            self._count(HTTPStatus.OK)
            exchange.sent(self._loop.time())
        elif exchange.request is None:
            self._refuse(stream, Refusal(HTTPStatus.BAD_REQUEST, "not a query of DNS"))
        else:
            self._refuse(stream, Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "no response"))

    def _refuse(self, stream: int, refusal: Refusal) -> None:
        headers = [("content-type", "text/plain; charset=utf-8")]
        if refusal.status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("allow", ", ".join(METHODS)))
        self._codec.respond(stream, refusal.status, headers, f"{refusal.text}\n".encode())
        self._count(refusal.status)

    def _count(self, status: HTTPStatus) -> None:
        by_status = self._listener.requests.https_responses
        by_status[status.value] = by_status.get(status.value, 0) + 1

    def _flush(self) -> None:
        data = self._codec.to_send()
        if data and not is_lost(self._transport):
            self._transport.write(data)

    def _leave(self) -> None:
        self._listener.connections.discard(self)
        self._listener.pool.remove(self)
        self._clients.hold(self, 0)

    def _note(self) -> None:
        """Note what the connection holds, and since when it is in its state."""
        if self not in self._listener.connections:
            return
        held_bytes = len(self._received) + self._codec.held_bytes + unsent_bytes(self._transport)
        self._clients.hold(self, held_bytes)
        state = self._now_is()
        if state != self._state:
            self._state, self._since_s = state, self._loop.time()
            if not self._tasks:
                self._listener.pool.touch(self)

    def _now_is(self) -> str:
        if self._tasks or self._is_waiting:
            return "answering"
        if self._is_unread or self._codec.is_blocked:
            return "unread"
        return "incomplete" if self._received or self._codec.is_incomplete else "idle"

    def _watch(self) -> None:
        """Abort the connection when it has been idle, incomplete or unread for too long."""
        now_s, limits = self._loop.time(), self._limits
        times = {"unread": limits.write_s, "incomplete": limits.read_s, "idle": limits.idle_s}
        if self._state in times and now_s - self._since_s >= times[self._state]:
            self._transport.abort()
        else:
            self._timer = self._loop.call_later(limits.least_s / 2, self._watch)
