"""The common parts of clients and connections: limits and turns."""

from __future__ import annotations

import asyncio
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from math import inf
from operator import call
from typing import ClassVar, Final, Protocol

from kdns.dnsserver.blocks import Server
from kdns.dnsserver.io.burst.sampling import Sampling
from kdns.dnsserver.io.exchange import Answering
from kdns.dnsserver.io.fair_scheduler import FairScheduler
from kdns.dnsserver.io.interfaces import limit_kernel_buffers
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
MAX_WAITING: Final = 4096
"""The most waiting queries over UDP; those beyond a client's share are dropped.

Half of it has room for the A and AAAA queries of 1,000 clients behind one address.
"""
CLOSE_S: Final = 2.0
"""The time that a stopping server waits for pending answers."""

_IDLE: Final = "idle"
_READING: Final = "reading"
_UNREAD: Final = "unread"
_ANSWERING: Final = "answering"


class StreamClient(Protocol):
    """A connection in the schedule of turns."""

    @property
    def address(self) -> str: ...

    def answer(self) -> object: ...

    def evict(self) -> None: ...


class Clients:
    """What the clients of a process share: connections, memory and turns, and the sample of their queries over UDP.

    Answers are made in slices of time, in which clients take turns: UDP waits for one slice of connections at most, and
    clients with few queries do not wait for clients with many.
    """

    def __init__(self, memory: ClientMemory | None = None) -> None:
        self.connections = Connections(ConnectionKind.DNS)
        self.quic_connections = PartOfConnections(self.connections, MAX_QUIC_CONNECTIONS, "DNS over QUIC")
        self.memory = memory or ClientMemory()
        self.misses = FairScheduler[Callable[[], None]](MAX_WAITING, call)
        """Queries over UDP that the table does not answer."""
        self.sampling = Sampling()
        self._turns = FairScheduler[StreamClient](2 * self.connections.maximum, lambda connection: connection.answer())
        """The number of turns has no limit: connections are limited already."""

    def serve(self, connection: StreamClient) -> None:
        """Lets a connection answer: at once if nothing waits and the slice is not over, otherwise in its turn."""
        if self._turns.has_time:
            connection.answer()
        else:
            self.wait(connection)

    def wait(self, connection: StreamClient) -> None:
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
    """One client of a stream: its turns, its timeouts, and its end after the last answer.

    A protocol adds the parsing of messages and the sending of answers.
    """

    _is_behind_tls: ClassVar = False
    """Whether clients use TLS also where this server does not: up to a proxy."""

    def __init__(self, listener: StreamListener) -> None:
        self._server, self._requests, self._clients = listener.server, listener.requests, listener.clients
        self._pool, self._connections = listener.pool, listener.connections
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._answering: Answering
        self._account: Account
        self._client = ("", 0)
        self._is_tls = False
        self._is_unread = False
        self._is_waiting = False
        self._is_ending = False
        self._has_last_query = False
        self._queries = 0
        self._state = _IDLE
        self._since_s = self._loop.time()
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
            self._watch()
        else:
            self.evict()

    def connection_lost(self, exc: BaseException | None) -> None:
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

    def pause_writing(self) -> None:
        self._is_unread = True

    def resume_writing(self) -> None:
        self._is_unread = False
        self._go_on()

    def evict(self) -> None:
        self._requests.evicted += 1
        self._transport.abort()
        self._leave()

    def resume(self) -> None:
        self._go_on()

    def end(self) -> None:
        self._is_ending = True
        self._go_on()

    @property
    def address(self) -> str:
        return self._client[0]

    async def drain(self) -> None:
        await self._answering.drain(CLOSE_S)

    def answer(self) -> None:
        if self._transport.is_closing():  # lost since this turn was queued
            return
        self._answer_some()  # still `_is_waiting`: a query that ends at once must not begin another turn in this one
        if not self._transport.is_closing():
            self._is_waiting = self._is_answerable
            if self._is_waiting:
                self._clients.wait(self)
            self._read_on()

    @abstractmethod
    def _answer_some(self) -> None:
        """Answers some of the received queries."""

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
    def _received_bytes(self) -> int: ...

    @property
    @abstractmethod
    def _is_incomplete(self) -> bool: ...

    @property
    def _has_unread_answer(self) -> bool:
        return self._is_unread

    def _begin(self) -> None: ...

    def _close(self) -> None:
        self._transport.close()

    def _count_query(self) -> None:
        """Restarts the timeouts: a query is complete. The last allowed one ends the connection."""
        self._state = ""
        self._queries += 1
        if self._queries >= self._server.options.max_queries:
            self._end_behind_this()

    def _end_behind_this(self) -> None:
        self._has_last_query = self._is_ending = True

    def _go_on(self) -> None:
        """Schedules the answers to received queries, and reads more if there are none."""
        if self._transport.is_closing():
            return
        if not self._is_waiting and self._is_answerable:
            self._is_waiting = True
            self._clients.serve(self)
        else:
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
        if self._answering.waiting or self._is_waiting:
            state = _ANSWERING
        elif self._has_unread_answer:
            state = _UNREAD
        else:
            state = _READING if self._is_incomplete else _IDLE
        if state != self._state:
            self._state, self._since_s = state, self._loop.time()
            if state != _ANSWERING:
                self._pool.touch(self)

    def _watch(self) -> None:
        """Aborts the connection when it has been idle, incomplete or unread for too long."""
        now_s, options = self._loop.time(), self._server.options
        times = {_UNREAD: options.write_s, _READING: options.read_s, _IDLE: options.idle_s}
        end_s = self._since_s + times.get(self._state, inf)
        if now_s >= end_s:
            self._transport.abort()
        else:
            self._timer = self._loop.call_at(min(end_s, now_s + options.least_s), self._watch)

    def _leave(self) -> None:
        self._connections.discard(self)
        self._pool.remove(self)
        self._account.close()


class StreamListener:
    """One listening socket and its connections, which count from a handshake of TLS on."""

    protocol: ClassVar[type[StreamConnection]]

    def __init__(
        self,
        sock: socket.socket,
        server: Server,
        requests: Requests,
        clients: Clients,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        limit_kernel_buffers(sock)
        self.server, self.requests, self.clients = server, requests, clients
        self.pool = self._pool_of(clients.connections)
        self.connections: set[StreamConnection] = set()
        self._listener = Listener(sock, lambda: self.protocol(self), tls, self.pool if tls else None)

    def _pool_of(self, connections: Connections) -> Connections:
        return connections

    def use(self, tls: ssl.SSLContext | None) -> None:
        self._listener.tls = tls

    async def close(self) -> None:
        self._listener.close()
        connections = tuple(self.connections)
        for connection in connections:
            connection.end()
        await asyncio.gather(*(connection.drain() for connection in connections))
        await asyncio.sleep(0)
