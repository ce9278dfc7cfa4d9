"""DNS over TCP (RFC 7766): queries may be pipelined; idle time, number, and what is held for clients are bounded."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Protocol

from kdns.aio.connections import Connections, Kind, Listener, hold_unsent, is_lost, unsent_bytes
from kdns.aio.dns.exchange import failed, respond
from kdns.aio.dns.interfaces import limit_kernel_buffers
from kdns.aio.dns.request_metrics import Requests
from kdns.aio.dns.turns import Turns
from kdns.dns.query import HEADER_BYTES
from kdns.dns.table import Lane, key_of
from kdns.net import is_ipv6
from kdns.plugins.listener import UNLIMITED_QUERIES, ListenerOptions
from kdns.plugins.server import Exchange, Server

IDLE_S: Final = 10.0
"""How long a connection may be silent, and how long a message may take to arrive or to be read (RFC 7766 §6.2.3)."""
MAX_QUERIES: Final = 100_000
"""Queries of one connection; then it closes, so that clients spread over replicas again."""
MAX_PENDING: Final = 100
"""Answers of one connection that may wait for somebody else; until then nothing more is read."""
MAX_HELD_BYTES: Final = 16 << 20
"""What all connections of the process together may hold: messages that are incomplete, and answers that are unsent."""
READ_BYTES: Final = 4096
"""How much of one connection is read before the others may be."""
TURN: Final = 16
"""Questions of one connection that are answered before others get their turn."""
CLOSE_S: Final = 2.0
"""How long a server that stops waits for pending answers."""

_received = memoryview(bytearray(READ_BYTES))
"""What has just been read; each connection takes its bytes at once."""


@dataclass(slots=True)
class ConnectionLimits:
    """How long a connection may be silent, a message may take to arrive, and an answer to be read; and its queries."""

    idle_s: float = field(default_factory=lambda: IDLE_S)
    read_s: float = field(default_factory=lambda: IDLE_S)
    write_s: float = field(default_factory=lambda: IDLE_S)
    max_queries: float = field(default_factory=lambda: MAX_QUERIES)

    def use(self, options: ListenerOptions) -> None:
        """Be what a server block says; where it says nothing, what kdns says."""
        own = ConnectionLimits()
        self.idle_s = options.idle_s or own.idle_s
        self.read_s = options.read_s or own.read_s
        self.write_s = options.write_s or own.write_s
        queries = options.max_tcp_queries or own.max_queries
        self.max_queries = inf if queries == UNLIMITED_QUERIES else queries

    @property
    def least_s(self) -> float:
        """The shortest of the times."""
        return min(self.idle_s, self.read_s, self.write_s)


class StreamClient(Protocol):
    """A connection that takes its turn with others."""

    @property
    def address(self) -> str:
        """The client's IP address."""
        ...

    def answer(self) -> object:
        """Answer some of what was received; it is this connection's turn."""
        ...

    def evict(self) -> None:
        """End the connection at once."""
        ...


class TcpClients:
    """The connections of a process: how many there are, what they hold, and whose turn it is.

    Too many or too much costs those that make no progress. Answers are made in slices of time, in which clients take
    turns: UDP waits for a slice at most, and who asks little does not wait for who asks much.
    """

    def __init__(self) -> None:
        self.connections = Connections(Kind.DNS)
        self.held_bytes = 0
        self._held: dict[StreamClient, int] = {}
        self._turns = Turns[StreamClient](2 * self.connections.maximum, lambda connection: connection.answer())
        """There is room for all connections of one client."""

    def serve(self, connection: StreamClient) -> None:
        """Have a connection answer: at once if nothing waits and the slice is not over, else when it is its turn."""
        if self._turns.has_time:
            connection.answer()
        else:
            self.wait(connection)

    def wait(self, connection: StreamClient) -> None:
        """Have a connection answer in a slice of the next iterations, when it is its turn."""
        if not self._turns.put(connection.address, connection):
            connection.evict()
        self._turns.schedule()

    def hold(self, connection: StreamClient, size_bytes: int) -> None:
        """Note what a connection holds now. Over the limit, those go that have held something the longest."""
        held = self._held
        if size_bytes:
            self.held_bytes += size_bytes - held.get(connection, 0)
            held[connection] = size_bytes
        elif connection in held:
            self.held_bytes -= held.pop(connection)
        while self.held_bytes > MAX_HELD_BYTES:
            next(iter(held)).evict()


class TcpConnection(asyncio.BufferedProtocol):
    """One client: length-prefixed messages in, answers out, in whatever order they are ready.

    At most one answer waits for a client to read it: until then no more questions are taken.
    """

    def __init__(
        self,
        server: Server,
        requests: Requests,
        clients: TcpClients,
        connections: set[TcpConnection],
        limits: ConnectionLimits | None = None,
    ) -> None:
        self._server = server
        self._requests = requests
        self._clients = clients
        self._connections = connections
        self._limits = limits or ConnectionLimits()
        self._lane: Lane
        self._client = ("", 0)
        self._buffer = b""
        self._is_tls = False
        self._is_unread = False
        self._is_waiting = False
        self._is_ending = False
        self._queries = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._streams: list[Iterator[bytes]] = []
        self._streaming: asyncio.Handle | None = None
        self._transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        self._active_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the client, at the cost of one that is idle where there are too many."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - asyncio gives stream servers no other kind
        self._transport = transport
        hold_unsent(transport)
        self._is_tls = transport.get_extra_info("ssl_object") is not None
        self._client = transport.get_extra_info("peername")[:2]
        self._lane = self._server.table.lane("tcp", 6 if is_ipv6(self._client[0]) else 4)
        self._connections.add(self)
        if self._clients.connections.add(self, self._client[0], self.evict):
            self._watch_idle()
        else:
            self.evict()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client and what it was waiting for."""
        del exc
        self._leave()
        if self._timer:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes are to be written."""
        del sizehint
        return _received

    def buffer_updated(self, nbytes: int) -> None:
        """Answer every whole message when it is this connection's turn; keep the rest."""
        if not self._buffer:
            self._active_s = self._loop.time()
        self._buffer += _received[:nbytes]
        self._go_on()

    def eof_received(self) -> bool:
        """Answer what the client has asked, then close: it may still read. The end of TLS is that of both sides."""
        self.end()
        return not self._is_tls

    def pause_writing(self) -> None:
        """The client does not read its answers: take no more questions."""
        self._active_s = self._loop.time()
        self._is_unread = True

    def resume_writing(self) -> None:
        """The client reads again."""
        self._is_unread = False
        self._is_active()
        if self._streaming is None:
            self._stream_on()
        self._go_on()

    def evict(self) -> None:
        """End the connection at once: its place or its memory is for others."""
        self._requests.evicted += 1
        self._transport.abort()
        self._leave()

    def end(self) -> None:
        """Send the answers that are pending, then close."""
        self._is_ending = True
        self._go_on()

    def answer(self) -> None:
        """Answer some whole messages, as far as there is room for their answers."""
        self._is_waiting = False
        received, position = self._buffer, 0
        for _ in range(TURN):
            if position == len(received) or self._is_full or self._transport.is_closing():
                break
            end = _message_end(received, position)
            if end > len(received):
                break
            self._answer(received[position + 2 : end])
            position = end
        if self._transport.is_closing():
            return
        if position:
            self._buffer = received[position:]
            self._is_active()
        self._is_waiting = self._is_answerable
        if self._is_waiting:
            self._clients.wait(self)
        self._read_on()

    @property
    def address(self) -> str:
        """The client's IP address."""
        return self._client[0]

    @property
    def pending(self) -> set[asyncio.Task[None]]:
        """Answers that wait for somebody else."""
        return self._tasks

    @property
    def _is_full(self) -> bool:
        """Whether answers must be read, or arrive from elsewhere, before more questions are taken."""
        return self._is_unread or bool(self._streams) or len(self._tasks) >= MAX_PENDING

    @property
    def _is_answerable(self) -> bool:
        """Whether there is a whole message, and room for its answer."""
        received = self._buffer
        return bool(received) and not self._is_full and _message_end(received, 0) <= len(received)

    def _go_on(self) -> None:
        """Have the received messages answered, and read more when there are none."""
        if self._transport.is_closing():
            return
        if not self._is_waiting and self._is_answerable:
            self._is_waiting = True
            self._clients.serve(self)
        else:
            self._read_on()

    def _read_on(self) -> None:
        """Read further unless that has to wait, and close behind the last answer."""
        self._note_held()
        if self._transport.is_closing():
            return
        if self._is_ending and not (self._tasks or self._is_waiting or self._streams):
            self._transport.close()
        elif self._is_full or self._is_waiting or self._is_ending:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _leave(self) -> None:
        self._connections.discard(self)
        self._clients.connections.remove(self)
        self._clients.hold(self, 0)

    def _note_held(self) -> None:
        if self in self._connections:
            self._clients.hold(self, len(self._buffer) + unsent_bytes(self._transport))

    def _answer(self, packet: bytes) -> None:
        received_s = self._loop.time()
        self._queries += 1
        key = key_of(packet) if len(packet) > HEADER_BYTES else b""
        answer = self._lane.answers.get(key)
        if answer is not None and (answer.until_s > received_s or answer.renew(received_s)):
            self._write(answer.wire(packet))
        else:
            outcome = respond(self._server, self._requests, packet, key, self._lane, self._client, received_s)
            if isinstance(outcome, Exchange):
                self._send(outcome)
                if not outcome.wire and outcome.request is None:
                    self._transport.close()  # not DNS: nothing sensible can follow
            else:
                self._wait_for(packet, outcome, received_s)
        self._requests.observe(1, self._loop.time() - received_s)
        if self._queries >= self._limits.max_queries:
            self._transport.close()

    def _wait_for(self, packet: bytes, outcome: Coroutine[Any, Any, Exchange], received_s: float) -> None:
        task = self._loop.create_task(self._answer_later(packet, outcome, received_s))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._go_on()

    async def _answer_later(self, packet: bytes, outcome: Coroutine[Any, Any, Exchange], received_s: float) -> None:
        try:
            exchange = await outcome
        except Exception as failure:  # noqa: BLE001 - one query must not end the others
            exchange = failed(failure, self._server, self._requests, packet, self._lane, self._client, received_s)
        self._send(exchange)

    def _send(self, exchange: Exchange) -> None:
        if exchange.wire:
            self._write(exchange.wire)
            exchange.sent(self._loop.time())
        if exchange.following:
            self._streams.append(exchange.following)
            if self._streaming is None:
                self._stream_on()

    def _stream_on(self) -> None:
        """Send the next message of a transfer, when the client has read those before and others had a turn."""
        self._streaming = None
        if not self._streams or self._is_unread or self._transport.is_closing():
            return
        message = next(self._streams[0], None)
        if message is None:
            self._streams.pop(0)
        else:
            self._write(message)
        self._streaming = self._loop.call_soon(self._stream_on)
        if not self._streams:
            self._go_on()

    def _write(self, response: bytes) -> None:
        if not is_lost(self._transport):
            self._transport.write(len(response).to_bytes(2, "big") + response)

    def _is_active(self) -> None:
        self._active_s = self._loop.time()
        self._clients.connections.touch(self)

    def _watch_idle(self) -> None:
        """Abort the connection when it has been idle for too long. It is not while answers are pending."""
        now_s, limits = self._loop.time(), self._limits
        if self._tasks or self._is_waiting:
            self._active_s = now_s
        limit_s = limits.write_s if self._is_unread else limits.read_s if self._buffer else limits.idle_s
        if now_s - self._active_s >= limit_s:
            self._transport.abort()
        else:
            self._timer = self._loop.call_at(min(self._active_s + limit_s, now_s + limits.least_s), self._watch_idle)


def _message_end(received: bytes, start: int) -> int:
    """Where the message that starts at `start` ends, or would end (RFC 1035 §4.2.2)."""
    return start + 2 + int.from_bytes(received[start : start + 2], "big")


class TcpListener:
    """One listening TCP socket and its connections; with `tls`, DNS over TLS (RFC 7858).

    Handshakes count among the connections. `limits` are those of all of its connections.
    """

    def __init__(
        self,
        sock: socket.socket,
        server: Server,
        requests: Requests,
        clients: TcpClients,
        tls: ssl.SSLContext | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        limit_kernel_buffers(sock)
        self._connections: set[TcpConnection] = set()
        self._listener = Listener(
            sock,
            lambda: TcpConnection(server, requests, clients, self._connections, limits),
            tls,
            clients.connections if tls else None,
        )

    @property
    def address(self) -> tuple[str, int]:
        """The bound address and port."""
        return self._listener.address

    def use(self, tls: ssl.SSLContext | None) -> None:
        """Begin TLS in this way from now on."""
        self._listener.tls = tls

    async def close(self) -> None:
        """Stop accepting, and close every connection behind its last answer."""
        self._listener.close()
        pending = [task for connection in self._connections for task in connection.pending]
        for connection in tuple(self._connections):
            connection.end()
        if pending:
            await asyncio.wait(pending, timeout=CLOSE_S)
        await asyncio.sleep(0)
