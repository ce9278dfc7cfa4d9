"""DNS over UDP: the socket is drained in bursts, and most packets are answered from the table without a task.

Misses wait in a fair queue; the kernel's buffer is first come, first served. In a BurstEventLoop the selector does the
bursts, and the listener gets the misses.
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
from kdns.dnsserver.io.burst.event_loop import BURST, BurstEventLoop, Miss
from kdns.dnsserver.io.burst.sampling import Look, Sampling
from kdns.dnsserver.io.exchange import MAX_PENDING, Answering
from kdns.dnsserver.io.fair_scheduler import SLICE_S, FairScheduler
from kdns.dnsserver.io.request_metrics import Requests
from kdns.fair_queue import FairShares

MAX_WAITING: Final = 4096
"""The most waiting queries of all sockets; those beyond a client's share are dropped.

Half of it has room for the A and AAAA queries of 1,000 clients behind one address.
"""
MAX_DIRECT: Final = 32
"""So few misses are answered without a queue if nothing waits, as long as a slice: it would change their order only."""
RECEIVE_BYTES: Final = 4096
SOCKET_BUFFER_BYTES: Final = 4 << 20
CLOSE_S: Final = 2.0
"""The time that a closing socket waits for pending queries."""


class MissQueue(FairScheduler[Callable[[], None]]):
    """The waiting misses of all sockets of a process; `pending` are the places of queries that wait for an upstream."""

    def __init__(self, pending: FairShares | None = None) -> None:
        super().__init__(MAX_WAITING, call)
        self.pending = pending or FairShares(MAX_PENDING)


class PendingQuery:
    """The coroutine of a query that waits, resumed by the futures for which it waits.

    It begins at once, and a task would cost more than the system calls of a query. Without a task it cannot be
    cancelled, and code that needs one, such as asyncio.timeout, has to make a task, as Tasks.with_timeout does.
    """

    __slots__ = ("_coroutine", "_listener", "client", "look", "packet", "received_s")

    def __init__(
        self,
        listener: UdpListener,
        coroutine: Coroutine[Any, Any, Exchange],
        packet: bytes,
        client: Any,
        received_s: float,
        look: Look | None,
    ) -> None:
        self.look = look
        self._listener = listener
        self._coroutine = coroutine
        self.packet = packet
        self.client = client
        self.received_s = received_s

    def step(self, _ended: object = None) -> None:
        """Runs until it waits for a future, or has the response."""
        try:
            future = self._coroutine.send(None)
        except StopIteration as stop:
            self._listener.answered(self, stop.value)
        except asyncio.CancelledError:  # its future was cancelled, as at the end of the process
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

    def __init__(
        self,
        sock: socket.socket,
        server: Server,
        requests: Requests,
        misses: MissQueue,
        sampling: Sampling | None = None,
    ) -> None:
        self._socket = sock
        self._sampling = sampling or Sampling()
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
        self._missed: list[Miss] = []
        if isinstance(self._loop, BurstEventLoop):
            self._missed = self._loop.bursts.follow(sock.fileno(), self._partition, requests)
            self._loop.add_reader(sock, self._take_missed)
        else:
            self._loop.add_reader(sock, self._drain)

    @property
    def address(self) -> tuple[str, int]:
        """The bound address and port."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    def _drain(self) -> None:
        """Answers the received packets, up to a burst."""
        receive, send = self._socket.recvfrom, self._socket.sendto
        held = self._partition.answers.get
        started_s = self._loop.time()
        hits, look = 0, self._sampling.look and self._sampling.begin()
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
                if not self._misses.put(client[0], partial(self._answer, packet, key, client, started_s, look)):
                    self._requests.shed += 1
                continue
            hits += 1
            wire = answer.wire(packet)
            try:
                send(wire, client)
            except OSError:
                self._requests.unsent += 1
            if look:
                look(packet, client[0], wire)
        if hits:
            self._requests.observe(hits, self._loop.time() - started_s)
        self._misses.run_now()

    def _take_missed(self) -> None:
        """Answers the packets that the selector did not; all of them, if it answers none any more."""
        missed = self._missed[:]
        self._missed.clear()
        begun = self._answer_at_once(missed) if len(missed) <= MAX_DIRECT and self._misses.is_idle else 0
        for packet, key, client, received_s in missed[begun:]:
            if not self._misses.put(client[0], partial(self._answer, packet, key, client, received_s)):
                self._requests.shed += 1
        self._misses.run_now()
        if isinstance(self._loop, BurstEventLoop):
            bursts = self._loop.bursts
            if bursts.is_paused or not bursts.follows(self._socket.fileno()):
                self._drain()

    def _answer_at_once(self, missed: list[Miss]) -> int:
        """Answers misses for the time of a slice; returns how many."""
        end_s = self._loop.time() + SLICE_S
        for number, miss in enumerate(missed, 1):
            self._answer(*miss)
            if self._loop.time() >= end_s:
                return number
        return len(missed)

    def _answer(self, packet: bytes, key: bytes, client: Any, received_s: float, look: Look | None = None) -> None:
        """Answers a miss; the table may have the answer now, if the same was queried twice."""
        outcome = self._answering.answer(packet, client[:2], received_s, key)
        if isinstance(outcome, Exchange):
            self._send(outcome, client)
            if look:
                look(packet, client[0], outcome.wire)
        else:
            waiting = PendingQuery(self, outcome, packet, client, received_s, look)
            self._waiting.add(waiting)
            waiting.step()

    def failed(self, waiting: PendingQuery, failure: Exception) -> None:
        """Answers SERVFAIL for a coroutine that ended with an unexpected exception."""
        packet, client, received_s = waiting.packet, waiting.client, waiting.received_s
        self.answered(waiting, self._answering.failed(failure, packet, client[:2], received_s))

    def answered(self, waiting: PendingQuery, exchange: Exchange) -> None:
        """Sends the response to a query that has waited, if there is one."""
        self._waiting.discard(waiting)
        self._misses.pending.give_back(waiting.client[0])
        self._send(exchange, waiting.client)
        if waiting.look:
            waiting.look(waiting.packet, waiting.client[0], exchange.wire)
        if self._drained is not None and not self._waiting and not self._drained.done():
            self._drained.set_result(None)

    def _send(self, exchange: Exchange, client: Any) -> None:
        if not exchange.wire:
            return
        try:
            self._socket.sendto(exchange.wire, client)
        except OSError:
            self._requests.unsent += 1
        if exchange.observers:
            exchange.sent(self._loop.time())

    async def close(self) -> None:
        """Answers the waiting queries, then closes the socket."""
        self._loop.remove_reader(self._socket)
        if isinstance(self._loop, BurstEventLoop):
            self._take_missed()
            self._loop.bursts.leave(self._socket.fileno())
        self._misses.drain()
        if self._waiting:
            self._drained = self._loop.create_future()
            await asyncio.wait((self._drained,), timeout=CLOSE_S)
        self._socket.close()
