"""Connections of all stream transports, and the limits and turns of all clients."""

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
"""The most QUIC connections of a process: each takes 80 KiB, one over TLS 30 KiB."""
MAX_WAITING: Final = 4096
"""The most waiting queries over UDP; a client's beyond its share are dropped.

Half of it is enough for the A and AAAA queries of 1,000 clients behind one address.
"""
CLOSE_S: Final = 2.0
"""How long a stopping server waits for pending answers."""

_IDLE: Final = "idle"
_READING: Final = "reading"
_UNREAD: Final = "unread"
_ANSWERING: Final = "answering"


class StreamClient(Protocol):
    """A connection that takes turns with others."""

    @property
    def address(self) -> str: ...

    def answer(self) -> object: ...

    def evict(self) -> None: ...


class Clients:
    """What all clients of a process share: connections, memory, turns, and the sample of queries over UDP.

    Clients take turns in slices of time: UDP waits for at most one slice of connections, and clients with few queries
    do not wait for clients with many.
    """

    def __init__(self, memory: ClientMemory | None = None) -> None:
        self.connections = Connections(ConnectionKind.DNS)
        self.quic_connections = PartOfConnections(self.connections, MAX_QUIC_CONNECTIONS, "DNS over QUIC")
        self.memory = memory or ClientMemory()
        self.misses = FairScheduler[Callable[[], None]](MAX_WAITING, call)
        """Queries over UDP that are not in the table."""
        self.sampling = Sampling()
        self._turns = FairScheduler[StreamClient](2 * self.connections.maximum, lambda connection: connection.answer())
        """Never full: connections are limited already."""

    def serve(self, connection: StreamClient) -> None:
        """Lets a connection answer: now if nothing waits and the slice is not over, otherwise in its turn."""
        if self._turns.has_time:
            connection.answer()
        else:
            self.wait(connection)

    def wait(self, connection: StreamClient) -> None:
        if not self._turns.put(connection.address, connection):
            connection.evict()
        self._turns.run_soon()


class _LostTransport(asyncio.Transport):
    """Replaces the transport of a lost connection: a TLS transport refers to its protocol, a reference cycle."""

    def is_closing(self) -> bool:
        return True

    def abort(self) -> None:
        pass


_LOST: Final = _LostTransport()


class StreamConnection(asyncio.BaseProtocol, ABC):
    """One client of a stream: its turns, its timeouts, and its end after the last answer.

    Subclasses parse messages and send answers.
    """

    _is_behind_tls: ClassVar = False
    """Whether clients use TLS even without a certificate here: up to a proxy."""

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
        """Answers the received queries, then closes: the client may still read. With TLS it cannot."""
        self.end()
        return not self._is_tls

    def pause_writing(self) -> None:
        self._is_unread = True

    def resume_writing(self) -> None:
        self._is_unread = False
        self._proceed()

    def evict(self) -> None:
        self._requests.evicted += 1
        self._transport.abort()
        self._leave()

    def resume(self) -> None:
        self._proceed()

    def end(self) -> None:
        self._is_ending = True
        self._proceed()

    @property
    def address(self) -> str:
        return self._client[0]

    async def drain(self) -> None:
        await self._answering.drain(CLOSE_S)

    def answer(self) -> None:
        if self._transport.is_closing():  # lost since this turn was queued
            return
        self._answer_turn()  # `_is_waiting` is still set: a query that ends at once must not start a nested turn
        if not self._transport.is_closing():
            self._is_waiting = self._is_answerable
            if self._is_waiting:
                self._clients.wait(self)
            self._read_further()

    @abstractmethod
    def _answer_turn(self) -> None:
        """Answers one turn's share of the received queries."""

    @property
    @abstractmethod
    def _is_full(self) -> bool:
        """Whether no query is accepted until the client reads answers, or pending ones arrive."""

    @property
    @abstractmethod
    def _is_answerable(self) -> bool:
        """Whether there is a complete query whose answer may be sent."""

    @property
    def _reads_further(self) -> bool:
        """Whether further bytes of the client matter."""
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
        """A complete query restarts the timeouts. The last allowed one ends the connection."""
        self._state = ""
        self._queries += 1
        if self._queries >= self._server.options.max_queries:
            self._end_after_query()

    def _end_after_query(self) -> None:
        self._has_last_query = self._is_ending = True

    def _proceed(self) -> None:
        """Schedules the answers to received queries; reads further if there are none."""
        if self._transport.is_closing():
            return
        if not self._is_waiting and self._is_answerable:
            self._is_waiting = True
            self._clients.serve(self)
        else:
            self._read_further()

    def _read_further(self) -> None:
        """Resumes or pauses reading; closes after the last answer."""
        self._account_memory()
        if self._transport.is_closing():
            return
        if self._is_answered:
            self._close()
        elif self._is_full or self._is_waiting or not self._reads_further:
            self._transport.pause_reading()
        elif self._account.has_room:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
            self._account.pause()

    def _account_memory(self) -> None:
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
        """Aborts a connection that is idle, incomplete or unread for too long."""
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
    """One listening socket and its connections, which count in the pool from the TLS handshake on."""

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
