"""DNS over UDP: the socket is drained in bursts, and most packets are answered from the table without a task."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any, Final

from kdns.aio.querylog import Observer, failure_response
from kdns.metrics import Requests
from kdns.plugins.server import Server
from kdns.wire.query import HEADER_BYTES, SERVFAIL
from kdns.wire.respond import error
from kdns.wire.table import key_of

BURST: Final = 128
"""Packets answered before the loop may do something else."""
RECEIVE_BYTES: Final = 4096
SOCKET_BUFFER_BYTES: Final = 4 << 20
MAX_PENDING: Final = 1000
"""Queries that may wait for somebody else's answer; more are refused with SERVFAIL."""


class UdpListener:
    """One UDP socket and the server behind it."""

    def __init__(
        self, sock: socket.socket, server: Server, requests: Requests, observer: Observer | None = None
    ) -> None:
        self._socket = sock
        self._server = server
        self._requests = requests
        self._observer = observer
        self._family = 6 if sock.family == socket.AF_INET6 else 4
        self._lanes = server.lanes("udp", self._family)
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
        known = self._lanes[0].answers.get if self._lanes else None
        started_s = self._loop.time()
        for count in range(BURST):  # noqa: B007 - how far the burst came is what is counted
            try:
                packet, client = receive(RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                continue
            answer = known(key_of(packet)) if known is not None and len(packet) > HEADER_BYTES else None
            if answer is None:
                self._ask(packet, client)
                continue
            try:
                send(answer.wire(packet), client)
            except OSError:
                self._requests.unsent += 1
        else:
            count = BURST
        self._requests.observe(count, self._loop.time() - started_s)

    def _ask(self, packet: bytes, client: Any) -> None:
        """Answer what the table cannot."""
        started_s = self._loop.time()
        try:
            response = self._server.respond(packet, "udp", self._family)
        except Exception as failure:  # noqa: BLE001 - one query must not end the others
            response = failure_response(failure, packet, self._server, self._requests)
        if response is None or isinstance(response, bytes):
            self._send(packet, response, client, started_s)
        elif len(self._tasks) >= MAX_PENDING:
            response.close()
            self._send(packet, error(packet, SERVFAIL, HEADER_BYTES, None), client, started_s)
        else:
            task = self._loop.create_task(self._answer_later(packet, response, client, started_s))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer_later(
        self, packet: bytes, response: Coroutine[Any, Any, bytes], client: Any, started_s: float
    ) -> None:
        try:
            self._send(packet, await response, client, started_s)
        except Exception as failure:  # noqa: BLE001 - one query must not end the others
            failed = failure_response(failure, packet, self._server, self._requests)
            self._send(packet, failed, client, started_s)

    def _send(self, packet: bytes, response: bytes | None, client: Any, started_s: float) -> None:
        if not response:
            return
        try:
            self._socket.sendto(response, client)
        except OSError:
            self._requests.unsent += 1
        if self._observer:
            self._observer(packet, response, client, "udp", self._loop.time() - started_s)

    async def close(self) -> None:
        """Answer what is waiting, then close the socket."""
        self._loop.remove_reader(self._socket)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2)
        self._socket.close()
