"""The common parts of connections over TCP, TLS, HTTPS and QUIC: limits and turns."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import ClassVar, Final, Protocol

from kdns.dnsserver.blocks import Server
from kdns.dnsserver.io.exchange import Answering
from kdns.dnsserver.io.fair_scheduler import FairScheduler
from kdns.dnsserver.io.request_metrics import Requests
from kdns.net import is_ipv6
from kdns.runtime.client_memory import Account, ClientMemory
from kdns.runtime.connections import (
    ConnectionKind,
    Connections,
    Listener,
    PartOfConnections,
    limit_buffers,
    unread_bytes,
    unsent_bytes,
)

MAX_CONNECTION_PENDING: Final = 100
"""The most pending answers of one connection; at the limit nothing more is read."""
MAX_QUIC_CONNECTIONS: Final = 256
"""The most connections of a process over QUIC: each takes 80 KiB, one of TLS 30 KiB."""
CLOSE_S: Final = 2.0
"""The time that a stopping server waits for pending answers."""


class StreamClient(Protocol):
    """A connection in the schedule of turns."""

    @property
    def address(self) -> str: ...

    def answer(self) -> object:
        """Answers some of the received queries; called in the connection's turn."""
        ...

    def evict(self) -> None:
        """Ends the connection at once."""
        ...


class TcpClients:
    """The connections of a process: their number, their memory and their turns.

    Answers are made in slices of time, in which clients take turns: UDP waits for one slice at most, and clients with
    few queries do not wait for clients with many.
    """

    def __init__(self, memory: ClientMemory | None = None) -> None:
        self.connections = Connections(ConnectionKind.DNS)
        self.quic_connections = PartOfConnections(self.connections, MAX_QUIC_CONNECTIONS, "DNS over QUIC")
        self.memory = memory or ClientMemory()
        self._turns = FairScheduler[StreamClient](2 * self.connections.maximum, lambda connection: connection.answer())
        """The number of turns has no limit: connections are limited already."""

    def serve(self, connection: StreamClient) -> None:
        """Lets a connection answer: at once if nothing waits and the slice is not over, otherwise in its turn."""
        if self._turns.has_time:
            connection.answer()
        else:
            self.wait(connection)

    def wait(self, connection: StreamClient) -> None:
        """Lets a connection answer in its turn in one of the next slices."""
        if not self._turns.put(connection.address, connection):
            connection.evict()
        self._turns.run_soon()


class _LostTransport(asyncio.Transport):
    """In place of a lost connection's: TLS's refers to its protocol, so both would wait for garbage collection."""

    def is_closing(self) -> bool:
        return True

    def abort(self) -> None:
        pass


_LOST: Final = _LostTransport()


class StreamConnection(asyncio.BaseProtocol, ABC):
    """One client of a stream: its turns, and its end after the last answer.

    A protocol adds the parsing of messages and the sending of answers.
    """

    _is_behind_tls: ClassVar = False
    """Whether clients use TLS also where this server does not: up to a proxy."""

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
        self._account: Account
        self._client = ("", 0)
        self._is_tls = False
        self._is_unread = False
        self._is_waiting = False
        self._is_ending = False
        self._queries = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepts the client; if there are too many, an idle one is closed."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - asyncio gives stream servers no other kind
        self._transport = transport
        limit_buffers(transport)
        self._is_tls = transport.get_extra_info("ssl_object") is not None
        self._client = (transport.get_extra_info("peername") or ("", 0))[:2]
        pads = self._is_tls or self._is_behind_tls
        partition = self._server.table.partition("tcp", 6 if is_ipv6(self._client[0]) else 4, pads=pads)
        self._account = self._clients.memory.account(self._client[0], self)
        self._answering = Answering(self._server, self._requests, partition, self._account)
        self._connections.add(self)
        if self._pool.add(self, self._client[0], self.evict):
            self._begin()
        else:
            self.evict()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Removes the client and cancels its pending queries."""
        del exc
        self._leave()
        if self._timer:
            self._timer.cancel()
        self._answering.cancel()
        self._transport = _LOST

    def eof_received(self) -> bool:
        """Answers the received queries, then closes: the client may still read. With TLS both sides are closed."""
        self.end()
        return not self._is_tls

    def evict(self) -> None:
        """Ends the connection at once, so that others get its place or memory."""
        self._requests.evicted += 1
        self._transport.abort()
        self._leave()

    def resume(self) -> None:
        """Reads again: there is room."""
        self._go_on()

    def end(self) -> None:
        """Sends the pending answers, then closes."""
        self._is_ending = True
        self._go_on()

    @property
    def address(self) -> str:
        return self._client[0]

    async def drain(self) -> None:
        """Waits for the pending answers for CLOSE_S at most."""
        await self._answering.drain(CLOSE_S)

    @abstractmethod
    def answer(self) -> None:
        """Answers some of the received queries; called in the connection's turn."""

    @property
    @abstractmethod
    def _is_full(self) -> bool:
        """Whether no more queries are accepted until answers are read or pending ones arrive."""

    @property
    @abstractmethod
    def _is_answerable(self) -> bool:
        """Whether a query is complete and its answer may be sent."""

    @property
    def _reads_on(self) -> bool:
        """Whether the client may have sent more that matters."""
        return not self._is_ending

    @property
    @abstractmethod
    def _is_answered(self) -> bool:
        """Whether the client has sent its last query, and every answer is written."""

    @property
    @abstractmethod
    def _received_bytes(self) -> int:
        """The received bytes that are not answered yet."""

    @abstractmethod
    def _begin(self) -> None:
        """Begins a connection that was accepted."""

    @abstractmethod
    def _close(self) -> None:
        """Closes after the last answer."""

    def _go_on(self) -> None:
        """Schedules the answers to received queries, and reads more if there are none."""
        if self._transport.is_closing():
            return
        if not self._is_waiting and self._is_answerable:
            self._is_waiting = True
            self._clients.serve(self)
        else:
            self._read_on()

    def _end_turn(self) -> None:
        """Schedules the next turn if there is more to answer."""
        self._is_waiting = self._is_answerable
        if self._is_waiting:
            self._clients.wait(self)
        self._read_on()

    def _read_on(self) -> None:
        """Reads further if that is allowed, and closes after the last answer."""
        self._note_held()
        if self._transport.is_closing():
            return
        if self._is_answered:
            self._close()
        elif self._is_full or self._is_waiting or not self._reads_on:
            self._transport.pause_reading()
        elif self._account.has_room:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
            self._account.pause()

    def _note_held(self) -> None:
        self._account.hold(self._received_bytes + unread_bytes(self._transport) + unsent_bytes(self._transport))

    def _leave(self) -> None:
        self._connections.discard(self)
        self._pool.remove(self)
        self._account.close()


async def close_listener(listener: Listener, connections: set[StreamConnection]) -> None:
    """Stops accepting, and closes every connection after its last answer."""
    listener.close()
    left = tuple(connections)
    for connection in left:
        connection.end()
    await asyncio.gather(*(connection.drain() for connection in left))
    await asyncio.sleep(0)
