"""DNS over TCP (RFC 7766): queries may be pipelined; idle time, number and memory are limited."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from typing import Final

from kdns.dnsserver.blocks import Exchange, Server
from kdns.dnsserver.io.exchange import log_failure
from kdns.dnsserver.io.interfaces import limit_kernel_buffers
from kdns.dnsserver.io.request_metrics import Requests
from kdns.dnsserver.io.stream import (
    MAX_CONNECTION_PENDING,
    StreamConnection,
    TcpClients,
    close_listener,
)
from kdns.runtime.connections import Listener, is_lost

READ_BYTES: Final = 4096
"""The most bytes that are read of one connection at a time."""
TURN: Final = 16
"""Queries of one connection that are answered in a turn."""

_received = memoryview(bytearray(READ_BYTES))
"""The buffer of the last read; each connection copies its bytes at once."""


class TcpConnection(StreamConnection, asyncio.BufferedProtocol):
    """One client: length-prefixed messages in, answers out, in the order in which they are ready.

    At most one answer waits for the client to read it; until then no more queries are answered. A zone transfer sends
    one message in each turn of this connection, and later queries wait for its end.
    """

    def __init__(
        self,
        server: Server,
        requests: Requests,
        clients: TcpClients,
        connections: set[StreamConnection],
    ) -> None:
        super().__init__(server, requests, clients, clients.connections, connections)
        self._buffer = b""
        self._transfers: list[Iterator[bytes]] = []
        self._has_last_query = False
        self._active_s = self._loop.time()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Returns the buffer for the next bytes."""
        del sizehint
        return _received

    def buffer_updated(self, nbytes: int) -> None:
        """Schedules the answers to complete messages, and keeps the remaining bytes."""
        if not self._buffer:
            self._active_s = self._loop.time()
        self._buffer += _received[:nbytes]
        self._go_on()

    def pause_writing(self) -> None:
        """Pauses: the client does not read its answers."""
        self._active_s = self._loop.time()
        self._is_unread = True

    def resume_writing(self) -> None:
        """Resumes: the client reads again."""
        self._is_unread = False
        self._is_active()
        self._go_on()

    def answer(self) -> None:
        """Sends a message of a zone transfer, or answers some queries while their answers can be sent."""
        self._is_waiting = False
        if self._transport.is_closing():  # lost since this turn was queued
            return
        if self._transfers:
            self._transfer()
        else:
            self._answer_questions()
        if not self._transport.is_closing():
            self._end_turn()

    def _answer_questions(self) -> None:
        received, position = self._buffer, 0
        for _ in range(TURN):
            if position == len(received) or self._is_full or self._has_last_query:
                break
            end = _message_end(received, position)
            if end > len(received):
                break
            self._answer(received[position + 2 : end])
            position = end
        if position:
            self._buffer = received[position:]
            self._is_active()

    @property
    def _is_full(self) -> bool:
        return self._is_unread or bool(self._transfers) or len(self._answering.waiting) >= MAX_CONNECTION_PENDING

    @property
    def _is_answerable(self) -> bool:
        """Whether a transfer continues, or a message is complete, and its answer may be sent."""
        if self._transfers:
            return not self._is_unread
        received = self._buffer
        is_taken = bool(received) and not self._is_full and not self._has_last_query
        return is_taken and _message_end(received, 0) <= len(received)

    @property
    def _is_answered(self) -> bool:
        return self._is_ending and not (self._answering.waiting or self._is_waiting or self._transfers)

    @property
    def _received_bytes(self) -> int:
        return len(self._buffer)

    def _begin(self) -> None:
        self._watch_idle()

    def _close(self) -> None:
        self._transport.close()

    def _answer(self, packet: bytes) -> None:
        received_s = self._loop.time()
        self._queries += 1
        outcome = self._answering.answer(packet, self._client, received_s)
        if isinstance(outcome, Exchange):
            self._send(outcome)
            if not outcome.wire and outcome.request is None:
                self._end_behind_this()  # not DNS: the next bytes cannot be parsed either
        else:
            self._answering.wait(outcome, packet, self._client, received_s, self._answer_later).step()
        if self._queries >= self._server.options.max_queries:
            self._end_behind_this()

    def _end_behind_this(self) -> None:
        """Accepts no further query, and closes after the pending answers."""
        self._has_last_query = self._is_ending = True

    def _answer_later(self, exchange: Exchange) -> None:
        self._send(exchange)
        self._go_on()

    def _send(self, exchange: Exchange) -> None:
        if exchange.wire:
            self._write(exchange.wire)
            exchange.sent(self._loop.time())
        if exchange.more_messages:
            self._transfers.append(exchange.more_messages)

    def _transfer(self) -> None:
        """Sends the next message of the first transfer; if the zone cannot be sent completely, the connection ends."""
        try:
            message = next(self._transfers[0], None)
        except Exception as failure:  # noqa: BLE001 - one client must not end the others
            log_failure(failure, b"", self._server.label, with_stack=False)
            self._transport.abort()
            return
        if message is None:
            self._transfers.pop(0)
        else:
            self._write(message)
        self._is_active()

    def _write(self, response: bytes) -> None:
        if not is_lost(self._transport):
            self._transport.write(len(response).to_bytes(2, "big") + response)

    def _is_active(self) -> None:
        self._active_s = self._loop.time()
        self._pool.touch(self)

    def _watch_idle(self) -> None:
        """Aborts the connection when it has been idle for too long. With pending answers it is not idle."""
        now_s, options = self._loop.time(), self._server.options
        if self._answering.waiting or self._is_waiting:
            self._active_s = now_s
        limit_s = options.write_s if self._is_unread else options.read_s if self._buffer else options.idle_s
        if now_s - self._active_s >= limit_s:
            self._transport.abort()
        else:
            self._timer = self._loop.call_at(min(self._active_s + limit_s, now_s + options.least_s), self._watch_idle)


def _message_end(received: bytes, start: int) -> int:
    """Returns the end of the message at `start`, also if it is incomplete (RFC 1035 §4.2.2)."""
    return start + 2 + int.from_bytes(received[start : start + 2], "big")


class TcpListener:
    """One listening TCP socket and its connections; with `tls`, DNS over TLS (RFC 7858).

    Connections are counted from their handshake on.
    """

    def __init__(
        self,
        sock: socket.socket,
        server: Server,
        requests: Requests,
        clients: TcpClients,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        limit_kernel_buffers(sock)
        self._connections: set[StreamConnection] = set()
        self._listener = Listener(
            sock,
            lambda: TcpConnection(server, requests, clients, self._connections),
            tls,
            clients.connections if tls else None,
        )

    @property
    def address(self) -> tuple[str, int]:
        return self._listener.address

    def use(self, tls: ssl.SSLContext | None) -> None:
        """Applies the TLS context to new connections."""
        self._listener.tls = tls

    async def close(self) -> None:
        """Stops accepting, and closes every connection after its last answer."""
        await close_listener(self._listener, self._connections)
