"""DNS over UDP: the socket is drained in bursts, and most packets are answered from the table without a task.

What the table does not hold waits here, not in the kernel's buffer, where everybody waits behind who asks most.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from operator import call
from typing import Any, Final

from kdns.dns.query import HEADER_BYTES
from kdns.dnsserver.answers.table import packet_key
from kdns.dnsserver.blocks import SILENCE, Exchange, Server
from kdns.dnsserver.io.exchange import MAX_PENDING, Answering
from kdns.dnsserver.io.fair_scheduler import FairScheduler
from kdns.dnsserver.io.request_metrics import Requests
from kdns.fair_queue import FairShares

BURST: Final = 512
"""Packets read before the loop may do something else: of a flood, some 2 ms, beside a slice of answers.

With fewer, more of a flood stays in the kernel's buffer, which drops whatever finds no room, of whatever client.
"""
MAX_WAITING: Final = 4096
"""Queries of all sockets that may wait for their turn; what one client has beyond its share is dropped.

Half of it has the A and AAAA questions of 1,000 clients behind one address."""
RECEIVE_BYTES: Final = 4096
SOCKET_BUFFER_BYTES: Final = 4 << 20
CLOSE_S: Final = 2.0
"""How long queries that wait for somebody else are waited for when the socket is to be closed."""


class MissQueue(FairScheduler[Callable[[], None]]):
    """What answers the misses of all sockets of a process; `pending` are the places of those that wait for somebody."""

    def __init__(self, pending: FairShares | None = None) -> None:
        super().__init__(MAX_WAITING, call)
        self.pending = pending or FairShares(MAX_PENDING)


class PendingQuery:
    """The coroutine of a query that waits for somebody, resumed by the futures that it waits for.

    It begins at once, and a task would cost more than the system calls of a query. It has no task, so nothing can
    cancel it, and what needs one, such as asyncio.timeout, has to make its own, as Tasks.with_timeout does.
    """

    __slots__ = ("_coroutine", "_listener", "client", "packet", "received_s")

    def __init__(
        self,
        listener: UdpListener,
        coroutine: Coroutine[Any, Any, Exchange],
        packet: bytes,
        client: Any,
        received_s: float,
    ) -> None:
        self._listener = listener
        self._coroutine = coroutine
        self.packet = packet
        self.client = client
        self.received_s = received_s

    def step(self, _ended: object = None) -> None:
        """Run until it waits for something, or has the response."""
        try:
            future = self._coroutine.send(None)
        except StopIteration as stop:
            self._listener.answered(self, stop.value)
        except asyncio.CancelledError:  # what it waited for is given up, as at the end of the process
            self._listener.answered(self, SILENCE)
        except Exception as failure:  # noqa: BLE001 - one query must not end the others
            self._listener.failed(self, failure)
        else:
            if future is None:  # it lets others go first
                asyncio.get_running_loop().call_soon(self.step)
            else:
                future.add_done_callback(self.step)


class UdpListener:
    """One UDP socket and the server behind it."""

    def __init__(self, sock: socket.socket, server: Server, requests: Requests, misses: MissQueue) -> None:
        self._socket = sock
        self._misses = misses
        self._requests = requests
        self._partition = server.table.partition("udp", 6 if sock.family == socket.AF_INET6 else 4)
        self._answering = Answering(server, requests, self._partition, misses.pending)
        self._waiting: set[PendingQuery] = set()
        self._drained: asyncio.Future[None] | None = None
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
        held = self._partition.answers.get
        started_s = self._loop.time()
        hits = 0
        for _ in range(BURST):
            try:
                packet, client = receive(RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                continue
            if len(packet) > HEADER_BYTES:
                key = packet_key(packet)
                answer = held(key)
            else:
                key, answer = b"", None
            if answer is None or (answer.until_s <= started_s and not answer.renew(started_s)):
                if not self._misses.put(client[0], partial(self._answer, packet, key, client, started_s)):
                    self._requests.shed += 1
                continue
            hits += 1
            try:
                send(answer.wire(packet), client)
            except OSError:
                self._requests.unsent += 1
        if hits:
            self._requests.observe(hits, self._loop.time() - started_s)
        self._misses.run_now()

    def _answer(self, packet: bytes, key: bytes, client: Any, received_s: float) -> None:
        """Answer what the table did not hold when it was received; it may since: the same was asked twice."""
        outcome = self._answering.answer(packet, client[:2], received_s, key)
        if isinstance(outcome, Exchange):
            self._send(outcome, client)
        else:
            waiting = PendingQuery(self, outcome, packet, client, received_s)
            self._waiting.add(waiting)
            waiting.step()

    def failed(self, waiting: PendingQuery, failure: Exception) -> None:
        """A coroutine ended by an exception that nobody expected: SERVFAIL."""
        packet, client, received_s = waiting.packet, waiting.client, waiting.received_s
        self.answered(waiting, self._answering.failed(failure, packet, client[:2], received_s))

    def answered(self, waiting: PendingQuery, exchange: Exchange) -> None:
        """A query that has waited has its response, or none."""
        self._waiting.discard(waiting)
        self._misses.pending.give_back(waiting.client[0])
        self._send(exchange, waiting.client)
        if self._drained is not None and not self._waiting and not self._drained.done():
            self._drained.set_result(None)

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
        self._misses.drain()
        if self._waiting:
            self._drained = self._loop.create_future()
            await asyncio.wait((self._drained,), timeout=CLOSE_S)
        self._socket.close()
