"""DNS over UDP: the socket is drained in bursts, and most packets are answered from the table without a task."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any, Final

from kdns.aio.dns.exchange import failed, respond
from kdns.aio.dns.request_metrics import Requests
from kdns.dns.query import HEADER_BYTES
from kdns.dns.table import key_of
from kdns.plugins.server import Exchange, Server

BURST: Final = 128
"""Packets answered before the loop may do something else."""
RECEIVE_BYTES: Final = 4096
SOCKET_BUFFER_BYTES: Final = 4 << 20
MAX_PENDING: Final = 1000
"""Queries that may wait for somebody else's answer; more are refused with SERVFAIL."""


class UdpListener:
    """One UDP socket and the server behind it."""

    def __init__(self, sock: socket.socket, server: Server, requests: Requests) -> None:
        self._socket = sock
        self._server = server
        self._requests = requests
        self._lane = server.table.lane("udp", 6 if sock.family == socket.AF_INET6 else 4)
        self._tasks: set[asyncio.Task[None]] = set()
        sock.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock, self._drain)

    @property
    def address(self) -> tuple[str, int]:
        """The bound address and port."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    def _drain(self) -> None:
        """Answer what has arrived, up to a burst."""
        receive, send = self._socket.recvfrom, self._socket.sendto
        held = self._lane.answers.get
        started_s = self._loop.time()
        table = self._server.table
        if started_s >= table.next_expiry_s:
            table.expire(started_s)
        for count in range(BURST):  # noqa: B007 - how far the burst came is what is counted
            try:
                packet, client = receive(RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                continue
            if len(packet) > HEADER_BYTES:
                key = key_of(packet)
                answer = held(key)
            else:
                key, answer = b"", None
            if answer is None:
                self._respond(packet, key, client)
                continue
            try:
                send(answer.wire(packet), client)
            except OSError:
                self._requests.unsent += 1
        else:
            count = BURST
        self._requests.observe(count, self._loop.time() - started_s)

    def _respond(self, packet: bytes, key: bytes, client: Any) -> None:
        """Answer what the table does not hold."""
        received_s = self._loop.time()
        outcome = respond(self._server, self._requests, packet, key, self._lane, client[:2], received_s)
        if isinstance(outcome, Exchange):
            self._send(outcome, client)
        elif len(self._tasks) >= MAX_PENDING:
            outcome.close()
            self._send(self._server.overloaded(packet, self._lane), client)
        else:
            task = self._loop.create_task(self._respond_later(packet, outcome, client, received_s))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _respond_later(
        self, packet: bytes, outcome: Coroutine[Any, Any, Exchange], client: Any, received_s: float
    ) -> None:
        try:
            exchange = await outcome
        except Exception as failure:  # noqa: BLE001 - one query must not end the others
            exchange = failed(failure, self._server, self._requests, packet, self._lane, client[:2], received_s)
        self._send(exchange, client)

    def _send(self, exchange: Exchange, client: Any) -> None:
        if not exchange.wire:
            return
        try:
            self._socket.sendto(exchange.wire, client)
        except OSError:
            self._requests.unsent += 1
        if exchange.block is not None and exchange.block.chain.observers:
            exchange.sent(self._loop.time())

    async def close(self) -> None:
        """Answer what is waiting, then close the socket."""
        self._loop.remove_reader(self._socket)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2)
        self._socket.close()
