"""What connections over TCP, TLS, HTTPS and QUIC share: limits, turns, and the bounds on what they hold together."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Final, Protocol

from kdns.dnsserver.blocks import Server
from kdns.dnsserver.io.exchange import MAX_PENDING, Answering
from kdns.dnsserver.io.fair_scheduler import FairScheduler
from kdns.dnsserver.io.request_metrics import Requests
from kdns.fair_queue import FairShares
from kdns.net import is_ipv6
from kdns.runtime.connections import Connections, Kind, Listener, hold_unsent, unsent_bytes

MAX_CONNECTION_PENDING: Final = 100
"""Answers of one connection that may wait for somebody else; until then nothing more is read."""
MAX_HELD_BYTES: Final = 16 << 20
"""What all connections of the process together may hold: messages that are incomplete, and answers that are unsent."""
CLOSE_S: Final = 2.0
"""How long a server that stops waits for pending answers."""


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

    def __init__(self, pending: FairShares | None = None) -> None:
        self.connections = Connections(Kind.DNS)
        self.pending = pending or FairShares(MAX_PENDING)
        """Places of queries that wait for somebody else."""
        self.held_bytes = 0
        self._held: dict[StreamClient, int] = {}
        self._turns = FairScheduler[StreamClient](2 * self.connections.maximum, lambda connection: connection.answer())
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
        self._turns.run_soon()

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


class StreamConnection(asyncio.BaseProtocol, ABC):
    """One client of a stream: its place among others, its turns, and its end behind the last answer.

    A protocol adds how messages are taken from what was received, and how answers are sent.
    """

    def __init__(
        self,
        server: Server,
        requests: Requests,
        clients: TcpClients,
        pool: Connections,
        connections: set[StreamConnection],
    ) -> None:
        self._server, self._requests, self._clients = server, requests, clients
        self._pool, self._connections = pool, connections
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._answering: Answering
        self._client = ("", 0)
        self._is_tls = False
        self._is_unread = False
        self._is_waiting = False
        self._is_ending = False
        self._queries = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the client, at the cost of one that is idle where there are too many."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - asyncio gives stream servers no other kind
        self._transport = transport
        hold_unsent(transport)
        self._is_tls = transport.get_extra_info("ssl_object") is not None
        self._client = (transport.get_extra_info("peername") or ("", 0))[:2]
        partition = self._server.table.partition("tcp", 6 if is_ipv6(self._client[0]) else 4)
        self._answering = Answering(self._server, self._requests, partition, self._clients.pending)
        self._connections.add(self)
        if self._pool.add(self, self._client[0], self.evict):
            self._begin()
        else:
            self.evict()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the client and what it was waiting for."""
        del exc
        self._leave()
        if self._timer:
            self._timer.cancel()
        for task in tuple(self.pending):
            task.cancel()

    def eof_received(self) -> bool:
        """Answer what the client has asked, then close: it may still read. The end of TLS is that of both sides."""
        self.end()
        return not self._is_tls

    def evict(self) -> None:
        """End the connection at once: its place or its memory is for others."""
        self._requests.evicted += 1
        self._transport.abort()
        self._leave()

    def end(self) -> None:
        """Send the answers that are pending, then close."""
        self._is_ending = True
        self._go_on()

    @property
    def address(self) -> str:
        """The client's IP address."""
        return self._client[0]

    @property
    @abstractmethod
    def pending(self) -> Collection[asyncio.Task[None]]:
        """Answers that wait for somebody else."""

    @abstractmethod
    def answer(self) -> None:
        """Answer some of what was received; it is this connection's turn."""

    @property
    @abstractmethod
    def _is_full(self) -> bool:
        """Whether answers must be read, or arrive from elsewhere, before more questions are taken."""

    @property
    @abstractmethod
    def _is_answerable(self) -> bool:
        """Whether something can be answered, and there is room for the answer."""

    @property
    @abstractmethod
    def _is_answered(self) -> bool:
        """Whether the client has asked its last question, and every answer is written."""

    @property
    @abstractmethod
    def _received_bytes(self) -> int:
        """What was received and is not answered yet, in bytes."""

    @abstractmethod
    def _begin(self) -> None:
        """Go on with a connection that has its place."""

    @abstractmethod
    def _close(self) -> None:
        """Close behind the last answer."""

    def _go_on(self) -> None:
        """Have what was received answered, and read more when there is nothing to answer."""
        if self._transport.is_closing():
            return
        if not self._is_waiting and self._is_answerable:
            self._is_waiting = True
            self._clients.serve(self)
        else:
            self._read_on()

    def _end_turn(self) -> None:
        """Wait for the next turn if there is more to answer."""
        self._is_waiting = self._is_answerable
        if self._is_waiting:
            self._clients.wait(self)
        self._read_on()

    def _read_on(self) -> None:
        """Read further unless that has to wait, and close behind the last answer."""
        self._note_held()
        if self._transport.is_closing():
            return
        if self._is_answered:
            self._close()
        elif self._is_full or self._is_waiting or self._is_ending:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _note_held(self) -> None:
        if self in self._connections:
            self._clients.hold(self, self._received_bytes + unsent_bytes(self._transport))

    def _leave(self) -> None:
        self._connections.discard(self)
        self._pool.remove(self)
        self._clients.hold(self, 0)


async def close_listener(listener: Listener, connections: set[StreamConnection]) -> None:
    """Stop accepting, and close every connection behind its last answer."""
    listener.close()
    pending = [task for connection in connections for task in connection.pending]
    for connection in tuple(connections):
        connection.end()
    if pending:
        await asyncio.wait(pending, timeout=CLOSE_S)
    await asyncio.sleep(0)
