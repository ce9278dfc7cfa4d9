"""DNS over UDP: the socket is drained in bursts, and most packets are hits of the table.

In a BurstEventLoop the selector answers hits, and the listener gets the misses. Misses wait in a fair queue, because
the kernel's buffer is first come, first served.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from kdns.answers.table import packet_key
from kdns.dnsserver.blocks import Server, WireResponse
from kdns.dnsserver.io.burst.event_loop import BURST, BurstEventLoop, Miss
from kdns.dnsserver.io.exchange import Answering
from kdns.dnsserver.io.request_metrics import Requests
from kdns.dnsserver.io.stream import CLOSE_S, Clients
from kdns.runtime.tasks import SLICE_S

RECEIVE_BYTES: Final = 4096
MAX_DIRECT: Final = 32
"""Up to this many misses skip the queue when it is empty."""
SOCKET_BUFFER_BYTES: Final = 4 << 20


class UdpListener:
    """One UDP socket and the server behind it."""

    def __init__(self, sock: socket.socket, server: Server, requests: Requests, clients: Clients) -> None:
        self.socket, self.server, self.requests = sock, server, requests
        self.partition = server.table.partition("udp", 6 if sock.family == socket.AF_INET6 else 4)
        self._sampling, self._misses = clients.sampling, clients.misses
        self._answering = Answering(server, requests, self.partition, clients.memory)
        self._loop = asyncio.get_running_loop()
        sock.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
        self._missed: list[Miss] = []
        self.begin()

    def begin(self) -> None:
        if isinstance(self._loop, BurstEventLoop):
            self._missed = self._loop.bursts.follow(self.socket.fileno(), self.partition, self.requests, self._sampling)
            self._loop.add_reader(self.socket, self._take_missed)
        else:
            self._loop.add_reader(self.socket, self._drain)

    def end(self) -> None:
        self._loop.remove_reader(self.socket)
        if isinstance(self._loop, BurstEventLoop):
            self._take_missed()
            self._loop.bursts.leave(self.socket.fileno())

    def _drain(self) -> None:
        receive, send = self.socket.recvfrom, self.socket.sendto
        answers = self.partition.answers.get
        started_s = self._loop.time()
        hits, look = 0, self._sampling.look if self._sampling.most else None
        missed: list[Miss] = []
        for _ in range(BURST):
            try:
                packet, client = receive(RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                continue
            key = packet_key(packet)
            answer = answers(key)
            if answer is None or (answer.until_s <= started_s and not answer.renew(started_s)):
                missed.append((packet, key, client, started_s))
                continue
            hits += 1
            wire = answer.wire(packet)
            try:
                send(wire, client)
            except OSError:
                self.requests.unsent += 1
            if look:
                look(packet, client[0], wire)
        if hits:
            self.requests.observe(hits, self._loop.time() - started_s)
        if missed:
            self.take(missed)

    def _take_missed(self) -> None:
        """Takes the selector's misses; after a failure of the selector, reads the socket itself."""
        missed = self._missed[:]
        self._missed.clear()
        if missed:
            self.take(missed)
        if isinstance(self._loop, BurstEventLoop) and not self._loop.bursts.follows(self.socket.fileno()):
            self._drain()

    def take(self, missed: Sequence[Miss]) -> None:
        """Answers up to MAX_DIRECT misses for one slice if the queue is empty; further ones wait for their turns."""
        misses, end_s = self._misses, self._loop.time() + SLICE_S
        has_time = len(missed) <= MAX_DIRECT and not (misses.is_scheduled or misses.waiting)
        for packet, key, client, received_s in missed:
            if has_time:
                self._answer(packet, key, client, received_s)
                has_time = self._loop.time() < end_s
            elif not misses.put(client[0], partial(self._answer, packet, key, client, received_s)):
                self.requests.shed += 1
        if misses.waiting:
            misses.run_now()

    def _answer(self, packet: bytes, key: bytes, client: Any, received_s: float) -> None:
        """The table may have the answer by now, if the same name was queried twice."""
        outcome = self._answering.answer(packet, client, received_s, key)
        if isinstance(outcome, WireResponse):
            self._respond(packet, client, outcome)
        else:
            respond = partial(self._respond, packet, client)
            self._answering.wait(outcome, packet, client, received_s, respond).step()

    def _respond(self, packet: bytes, client: Any, response: WireResponse) -> None:
        wire = response.wire
        if wire:
            try:
                self.socket.sendto(wire, client)
            except OSError:
                self.requests.unsent += 1
            if response.observers:
                response.sent(self._loop.time())
        if self._sampling.most:
            self._sampling.look(packet, client[0], wire)

    def use(self, certificate: None) -> None:
        """Does nothing: UDP has no connections."""

    async def close(self) -> None:
        self.end()
        self._misses.drain()
        await self._answering.drain(CLOSE_S)
        self.socket.close()
