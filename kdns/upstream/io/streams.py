"""Queries over TCP, TLS and HTTPS, on connections that are reused (RFC 7766, RFC 7858, RFC 8484)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable
from typing import Final

from kdns.dns.query import HEADER_BYTES, Query
from kdns.errors import InputError
from kdns.net import client_of
from kdns.runtime.connections import TLS_BUFFER_BYTES
from kdns.upstream.framing import PIPELINED, Framing, Key, Lengths
from kdns.upstream.io.endpoint import Endpoint
from kdns.upstream.io.exchanges import Counts, Exchanges, Pending, unreachable
from kdns.upstream.io.tls import Tls, refusal
from kdns.upstream.message import body_of, is_response, question_of, repeats_question
from kdns.upstream.upstream import UpstreamError, UpstreamSpec, UpstreamUnreachableError

CONNECTIONS: Final = 16
"""The most connections of an upstream that supports pipelining (RFC 7766 §6.2.1.1).

Many servers answer in order, so a slow query blocks those behind it on its connection. A client gets at most as many
connections as remain for all others, so that its unanswered queries block only its own connections.
"""
IDLE_CONNECTIONS: Final = 8
SERIAL_CONNECTIONS: Final = 128
"""The most connections of an upstream without pipelining: it closes while queries wait behind an answered one."""
HANDSHAKE_S: Final = 5.0
CLOSE_S: Final = 1.0
READ_BYTES: Final = 65536

_received = memoryview(bytearray(READ_BYTES))
"""The read buffer of all connections, which copy their bytes at once."""


class ClosedError(UpstreamError):
    """The peer closed the connection. `was_used`: it had answered before, so it may have closed an idle connection."""

    def __init__(self, reason: str, *, was_used: bool) -> None:
        super().__init__(reason)
        self.was_used = was_used


class Streams:
    """The connections of one upstream; `pipelined` is the most unanswered queries of a connection."""

    def __init__(self, spec: UpstreamSpec, endpoint: Endpoint, exchanges: Exchanges, counts: Counts) -> None:
        self.spec, self.endpoint, self.exchanges = spec, endpoint, exchanges
        self.tls = None if spec.scheme == "dns" else Tls(spec)
        self._framing_of: Callable[[str | None, UpstreamSpec], Framing] | None = None
        """For HTTPS: the framing of the protocol that ALPN chose."""
        if spec.scheme == "https":
            from kdns.upstream.io.http import framing_of  # noqa: PLC0415 - only where it is used

            self._framing_of = framing_of
        self.counts = counts
        self.pipelined = PIPELINED
        self.idle: list[UpstreamConnection] = []
        """The last one became idle last."""
        self._busy: dict[UpstreamConnection, None] = {}
        self._max_idle = IDLE_CONNECTIONS if spec.max_idle is None else spec.max_idle

    async def exchange(
        self, query: Query, timeout_s: float, client: str, question: bytes = b"", deadline_s: float | None = None
    ) -> bytes:
        """The response has the query's id.

        `question` is the spelling to send, by default the client's. `deadline_s` is that of an exchange that continues
        here. If the peer closes a connection that was in use before, the query is sent once more on a new one.
        """
        sent = question or question_of(query)
        body = body_of(query)
        if question:
            body = body[: HEADER_BYTES - 2] + question + body[HEADER_BYTES - 2 + len(question) :]
        pending = self.exchanges.begin(timeout_s, sent, client, deadline_s)
        try:
            self._chosen(client).send(pending, body)
            return query.packet[:2] + (await pending)[2:]
        except ClosedError as error:
            if not error.was_used:
                raise
        finally:
            self.exchanges.end(pending)
        again = self.exchanges.begin(timeout_s, sent, client, pending.deadline_s)
        try:
            self._fresh(client).send(again, body)
            return query.packet[:2] + (await again)[2:]
        finally:
            self.exchanges.end(again)

    def tidy(self, now_s: float) -> None:
        for connection in [connection for connection in self.idle if not self._is_usable(connection, now_s)]:
            connection.close()
        for connection in [*self._busy]:
            connection.check_late(now_s)

    def close(self) -> None:
        for connection in (*self.idle, *self._busy):
            connection.fail(UpstreamError("the upstream is no longer used"))

    def framing(self, transport: asyncio.Transport) -> Framing:
        if self._framing_of is None:
            return Lengths(self.exchanges.entropy.take)
        framing = self._framing_of(transport.get_extra_info("ssl_object").selected_alpn_protocol(), self.spec)
        if framing.max_pending == 1:
            self.pipelined = 1
        return framing

    def mark_busy(self, connection: UpstreamConnection) -> None:
        self._busy[connection] = None

    def mark_idle(self, connection: UpstreamConnection) -> None:
        """Beyond the limit, closes the connection that is idle longest."""
        self._busy.pop(connection, None)
        connection.idle_since_s = self.exchanges.loop.time()
        self.idle.append(connection)
        if len(self.idle) > self._max_idle:
            self.idle[0].close()

    def remove(self, connection: UpstreamConnection) -> None:
        if self._busy.pop(connection, self) is self and connection in self.idle:
            self.idle.remove(connection)

    def _chosen(self, client: str) -> UpstreamConnection:
        """The connection that became idle last, a new one, or the client's with the fewest queries."""
        client_key = client_of(client)
        busy = [connection for connection in self._busy if not connection.is_retired]
        own = [connection for connection in busy if connection.client == client_key]
        if unloaded := next((connection for connection in own if not connection.load), None):
            return unloaded  # still connecting, its queries were cancelled
        maximum = SERIAL_CONNECTIONS if self.pipelined == 1 else CONNECTIONS
        if len(own) < maximum - len(busy) and (connection := self._unused()):
            connection.client = client_key
            return connection
        if not busy:
            raise UpstreamUnreachableError(f"all {self.exchanges.max_descriptors} descriptors are in use")
        connection = min(own or busy, key=lambda connection: connection.load)
        if connection.load >= min(self.pipelined, connection.max_pending):
            raise UpstreamError(f"{len(own or busy)} connections wait for as many responses as they may")
        self.counts.reused += 1
        return connection

    def _unused(self) -> UpstreamConnection | None:
        now_s = self.exchanges.loop.time()
        while self.idle:
            connection = self.idle.pop()
            if self._is_usable(connection, now_s):
                self.counts.reused += 1
                return connection
            connection.close()
        return self._opened() if self.exchanges.take_descriptor() else None

    def _fresh(self, client: str) -> UpstreamConnection:
        """A new connection; closes the idle ones, which the peer has probably closed too, as in a restart."""
        for connection in [*self.idle]:
            connection.close()
        if not self.exchanges.take_descriptor():
            raise UpstreamUnreachableError(f"all {self.exchanges.max_descriptors} descriptors are in use")
        connection = self._opened()
        connection.client = client_of(client)
        return connection

    def _opened(self) -> UpstreamConnection:
        self.counts.opened += 1
        return UpstreamConnection(self)

    def _is_usable(self, connection: UpstreamConnection, now_s: float) -> bool:
        max_age_s = self.spec.max_age_s
        return (
            not connection.is_retired
            and now_s - connection.idle_since_s < self.spec.expire_s
            and (max_age_s is None or now_s - connection.opened_s < max_age_s)
        )


class UpstreamConnection(asyncio.BufferedProtocol):
    """One connection. Queries wait until it is open; a retired one gets no more queries."""

    def __init__(self, pool: Streams) -> None:
        self._pool, self._exchanges = pool, pool.exchanges
        self.opened_s = self.idle_since_s = self._exchanges.loop.time()
        self.is_retired = False
        self.client: str | bytes = ""
        self._pending: dict[Key, Pending] = {}
        self._late: dict[Key, float] = {}
        """Deadlines of cancelled queries, which the upstream still works on."""
        self._unsent: dict[Pending, bytes] = {}
        self._answered = 0
        self._framing: Framing | None = None
        self._transport: asyncio.Transport | None = None
        self._is_ended = False
        self._opening = self._exchanges.loop.create_task(self._open())

    @property
    def load(self) -> int:
        return len(self._pending) + len(self._unsent) + len(self._late)

    @property
    def max_pending(self) -> int:
        return self._framing.max_pending if self._framing else PIPELINED

    def send(self, pending: Pending, body: bytes) -> None:
        self._pool.mark_busy(self)
        pending.holder = self
        framing, transport = self._framing, self._transport
        if framing is None or transport is None or self._is_full(framing):
            self._unsent[pending] = body
        else:
            pending.key, wire = framing.query(body, self._pending.keys() | self._late if self._late else self._pending)
            pending.is_sent = True
            self._pending[pending.key] = pending
            transport.write(wire)

    def drop(self, pending: Pending) -> None:
        """A cancelled query becomes late; one that timed out retires the connection."""
        pending.holder = None
        if self._unsent.pop(pending, None) is None and self._pending.pop(pending.key, None) is not None:
            self._late[pending.key] = pending.deadline_s
        if not pending.is_cancelled:
            self._retire()

    def check_late(self, now_s: float) -> None:
        if any(deadline_s <= now_s for deadline_s in self._late.values()):
            self._retire()

    def _retire(self) -> None:
        """Closes the connection after the pending responses."""
        self.is_retired = True
        if not (self._pending or self._unsent):
            self.close()

    def _is_full(self, framing: Framing) -> bool:
        return len(self._pending) + len(self._late) >= framing.max_pending

    def close(self) -> None:
        self.fail(UpstreamError("the connection is no longer used"))

    def fail(self, error: UpstreamError) -> None:
        if self._is_ended:
            return
        self._is_ended = self.is_retired = True
        self._pool.remove(self)
        self._exchanges.release_descriptor()
        waiting = (*self._pending.values(), *self._unsent)
        self._pending.clear()
        self._unsent.clear()
        for pending in waiting:
            pending.holder = None
            pending.fail(error)
        self._opening.cancel()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - asyncio gives stream clients no other kind
        self._transport = transport
        if self._is_ended:
            transport.abort()
            return
        self._framing = self._pool.framing(transport)
        transport.write(self._framing.unsent())
        self._send_unsent()
        if not self.load:
            self._pool.mark_idle(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answered and self.load > 1 and self._pool.spec.scheme != "https":
            self._pool.pipelined = 1
        reason = (
            f"the connection ended ({unreachable(exc)})" if isinstance(exc, OSError) else "the connection was closed"
        )
        self.fail(ClosedError(f"{reason} before the response came", was_used=self._answered > 0))

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return _received

    def buffer_updated(self, nbytes: int) -> None:
        if self._framing is None or self._transport is None:
            return
        try:
            arrived = self._framing.received(bytes(_received[:nbytes]))
        except UpstreamError as error:
            self.fail(error)
            return
        if unsent := self._framing.unsent():
            self._transport.write(unsent)
        for key, message in arrived:
            self._take(key, message)
        self._send_unsent()
        if self._pending or self._unsent or self._is_ended:
            return
        if self.is_retired:
            self.close()
        elif arrived and not self._late:
            self._pool.mark_idle(self)

    def _send_unsent(self) -> None:
        if self._framing is not None and not self._framing.max_pending:
            self.is_retired = True
            unsent, self._unsent = self._unsent, {}
            for pending in unsent:
                pending.holder = None
                pending.fail(ClosedError("the connection takes no more queries", was_used=True))
        while self._unsent and self._framing is not None and not self._is_full(self._framing):
            pending = next(iter(self._unsent))
            try:
                self.send(pending, self._unsent.pop(pending))
            except UpstreamError as error:
                pending.holder = None
                pending.fail(error)

    def _take(self, key: Key, message: bytes | UpstreamError) -> None:
        pending = self._pending.pop(key, None)
        ignored = self._pool.counts.ignored
        if pending is None:
            if self._late.pop(key, None) is not None:
                ignored["late"] += 1
            elif not self._is_ended:
                ignored["id"] += 1
                self.fail(UpstreamError("the upstream sent a response to no query of this connection"))
            return
        pending.holder = None
        self._answered += 1
        if isinstance(message, UpstreamError):
            pending.fail(message)
        elif not is_response(message):
            ignored["malformed"] += 1
            pending.fail(UpstreamError("the received message is not a response"))
        elif not repeats_question(message, pending.question):
            ignored["question"] += 1
            pending.fail(UpstreamError("the response is about another question"))
        elif pending.reply is None:
            pending.set_result(message)

    async def _open(self) -> None:
        tls = self._pool.tls
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                sock = await self._pool.endpoint.connected(self._exchanges.loop)
                try:
                    await self._start(sock, tls)
                except BaseException:
                    sock.close()
                    raise
        except TimeoutError:
            self.fail(UpstreamUnreachableError(f"no connection after {HANDSHAKE_S:g} s"))
        except ssl.SSLError as error:
            self.fail(refusal(error, tls.name if tls else ""))
        except OSError as error:
            self.fail(unreachable(error))
        except InputError as error:  # a certificate that can no longer be read
            self.fail(UpstreamUnreachableError(str(error)))

    async def _start(self, sock: socket.socket, tls: Tls | None) -> None:
        loop = self._exchanges.loop
        if tls is None:
            await loop.create_connection(lambda: self, sock=sock)
            return
        sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES  # for all connections: asyncio has no argument for it
        await loop.create_connection(
            lambda: self,
            sock=sock,
            ssl=await tls.context(),
            server_hostname=tls.name,
            ssl_handshake_timeout=HANDSHAKE_S,
            ssl_shutdown_timeout=CLOSE_S,
        )
