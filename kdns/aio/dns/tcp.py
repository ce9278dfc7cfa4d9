"""DNS over TCP (RFC 7766): queries may be pipelined; idle, size and number of connections are bounded."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any, Final

from kdns.aio.dns.exchange import failed, respond
from kdns.aio.dns.request_metrics import Requests
from kdns.dns.query import HEADER_BYTES
from kdns.dns.table import Lane, key_of
from kdns.net import is_ipv6
from kdns.plugins.server import Exchange, Server

IDLE_S: Final = 10.0
"""How long a connection may be silent, and how long a message may take to arrive (RFC 7766 §6.2.3)."""
MAX_CONNECTIONS: Final = 1000
MAX_QUERIES: Final = 100_000
"""Queries of one connection; then it closes, so that clients spread over replicas again."""
MAX_PENDING: Final = 100
"""Answers of one connection that may wait for somebody else; until then nothing more is read."""
MAX_UNSENT_BYTES: Final = 1 << 20


class TcpConnection(asyncio.Protocol):
    """One client: length-prefixed messages in, answers out, in whatever order they are ready."""

    def __init__(
        self, server: Server, requests: Requests, connections: set[TcpConnection], transport: str = "tcp"
    ) -> None:
        self._server = server
        self._requests = requests
        self._connections = connections
        self._name = transport
        self._lane: Lane
        self._client = ("", 0)
        self._buffer = b""
        self._is_unread = False
        self._queries = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the client, or turn it away when there are too many."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - asyncio gives stream servers no other kind
        self._transport = transport
        if len(self._connections) >= MAX_CONNECTIONS:
            self._requests.turned_away += 1
            transport.abort()
            return
        self._connections.add(self)
        self._client = transport.get_extra_info("peername")[:2]
        self._lane = self._server.table.lane(self._name, 6 if is_ipv6(self._client[0]) else 4)
        transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)
        self._watch_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client and what it was waiting for."""
        del exc
        self._connections.discard(self)
        if self._timer:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()

    def data_received(self, data: bytes) -> None:
        """Answer every whole message; keep the rest."""
        self._buffer += data
        self._work()

    def pause_writing(self) -> None:
        """The client does not read its answers: take no more questions."""
        self._is_unread = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._is_unread = False
        self._go_on()

    def close(self) -> None:
        """Send what is ready, then close."""
        self._transport.close()

    @property
    def _is_full(self) -> bool:
        """Whether answers must be read, or arrive from elsewhere, before more questions are taken."""
        return self._is_unread or len(self._tasks) >= MAX_PENDING

    def _work(self) -> None:
        """Answer the whole messages at hand, as far as there is room for their answers."""
        received, position = self._buffer, 0
        while len(received) - position >= 2 and not self._is_full:
            end = position + 2 + int.from_bytes(received[position : position + 2], "big")
            if end > len(received):
                break
            self._answer(received[position + 2 : end])
            position = end
            if self._transport.is_closing():
                return
        if position:
            self._buffer = received[position:]
            self._watch_idle()

    def _go_on(self) -> None:
        """Answer what had to wait, then read on."""
        if not self._transport.is_closing():
            self._work()
        if not (self._is_full or self._transport.is_closing()):
            self._transport.resume_reading()

    def _answer(self, packet: bytes) -> None:
        received_s = asyncio.get_running_loop().time()
        self._queries += 1
        table = self._server.table
        if received_s >= table.next_expiry_s:
            table.expire(received_s)
        key = key_of(packet) if len(packet) > HEADER_BYTES else b""
        answer = self._lane.answers.get(key)
        if answer is not None:
            self._write(answer.wire(packet))
        else:
            outcome = respond(self._server, self._requests, packet, key, self._lane, self._client, received_s)
            if isinstance(outcome, Exchange):
                self._send(outcome)
                if not outcome.wire and outcome.request is None:
                    self._transport.close()  # not DNS: nothing sensible can follow
            else:
                self._wait_for(packet, outcome, received_s)
        self._requests.observe(1, asyncio.get_running_loop().time() - received_s)
        if self._queries >= MAX_QUERIES:
            self._transport.close()

    def _wait_for(self, packet: bytes, outcome: Coroutine[Any, Any, Exchange], received_s: float) -> None:
        task = asyncio.get_running_loop().create_task(self._answer_later(packet, outcome, received_s))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        if len(self._tasks) >= MAX_PENDING:
            self._transport.pause_reading()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if len(self._tasks) == MAX_PENDING - 1:
            self._go_on()

    async def _answer_later(self, packet: bytes, outcome: Coroutine[Any, Any, Exchange], received_s: float) -> None:
        try:
            exchange = await outcome
        except Exception as failure:  # noqa: BLE001 - one query must not end the others
            exchange = failed(failure, self._server, self._requests, packet, self._lane, self._client, received_s)
        self._send(exchange)

    def _send(self, exchange: Exchange) -> None:
        for wire in (exchange.wire, *exchange.following):
            if wire:
                self._write(wire)
        if exchange.wire:
            exchange.sent(asyncio.get_running_loop().time())

    def _write(self, response: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(len(response).to_bytes(2, "big") + response)

    def _watch_idle(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._idle)

    def _idle(self) -> None:
        if self._tasks:
            self._watch_idle()
        else:
            self._transport.abort()


class TcpListener:
    """One listening TCP socket and its connections."""

    def __init__(self, listener: asyncio.Server, connections: set[TcpConnection]) -> None:
        self._listener = listener
        self._connections = connections

    @property
    def address(self) -> tuple[str, int]:
        """The bound address and port."""
        host, port = self._listener.sockets[0].getsockname()[:2]
        return host, port

    async def close(self) -> None:
        """Stop accepting, and close every connection behind its last answer."""
        self._listener.close()
        for connection in tuple(self._connections):
            connection.close()
        await asyncio.sleep(0)


async def listen_tcp(sock: socket.socket, server: Server, requests: Requests) -> TcpListener:
    """A listener on a bound socket."""
    connections: set[TcpConnection] = set()
    listener = await asyncio.get_running_loop().create_server(
        lambda: TcpConnection(server, requests, connections), sock=sock, backlog=512
    )
    return TcpListener(listener, connections)
