"""DNS over UDP: the socket is drained in bursts, and most packets are answered from the table without a task.

Misses wait in a fair queue; the kernel's buffer is first come, first served.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from functools import partial
from operator import call
from typing import Any, Final

from kdns.dnsserver.blocks import Exchange, Server
from kdns.dnsserver.io.burst.event_loop import Miss
from kdns.dnsserver.io.burst.reader import UdpReader
from kdns.dnsserver.io.burst.sampling import Look, Sampling
from kdns.dnsserver.io.exchange import Answering
from kdns.dnsserver.io.fair_scheduler import FairScheduler
from kdns.dnsserver.io.request_metrics import Requests
from kdns.runtime.client_memory import ClientMemory
from kdns.runtime.tasks import SLICE_S

MAX_WAITING: Final = 4096
"""The most waiting queries of all sockets; those beyond a client's share are dropped.

Half of it has room for the A and AAAA queries of 1,000 clients behind one address.
"""
MAX_DIRECT: Final = 32
"""So few misses are answered without a queue if nothing waits, as long as a slice: it would change their order only."""
SOCKET_BUFFER_BYTES: Final = 4 << 20
CLOSE_S: Final = 2.0
"""The time that a closing socket waits for pending queries."""


class MissQueue(FairScheduler[Callable[[], None]]):
    """The waiting misses of all sockets of a process; queries that wait for an upstream count in `memory`."""

    def __init__(self, memory: ClientMemory | None = None) -> None:
        super().__init__(MAX_WAITING, call)
        self.memory = memory or ClientMemory()


class UdpListener(UdpReader):
    """One UDP socket and the server behind it."""

    def __init__(
        self,
        sock: socket.socket,
        server: Server,
        requests: Requests,
        misses: MissQueue,
        sampling: Sampling | None = None,
    ) -> None:
        partition = server.table.partition("udp", 6 if sock.family == socket.AF_INET6 else 4)
        super().__init__(sock, partition, requests, sampling or Sampling())
        self.server = server
        self._misses = misses
        self._answering = Answering(server, requests, partition, misses.memory)
        sock.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
        self.begin()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.socket.getsockname()[:2]
        return host, port

    def take(self, missed: Sequence[Miss], look: Look | None = None) -> None:
        """Answers packets that the table does not answer, each in its client's turn."""
        begun = self._answer_at_once(missed, look) if len(missed) <= MAX_DIRECT and self._misses.is_idle else 0
        for packet, key, client, received_s in missed[begun:]:
            if not self._misses.put(client[0], partial(self._answer, packet, key, client, received_s, look)):
                self.requests.shed += 1
        if begun < len(missed):
            self._misses.run_now()

    def _answer_at_once(self, missed: Sequence[Miss], look: Look | None) -> int:
        """Answers misses for the time of a slice; returns how many."""
        end_s = self._loop.time() + SLICE_S
        for number, miss in enumerate(missed, 1):
            self._answer(*miss, look)
            if self._loop.time() >= end_s:
                return number
        return len(missed)

    def _answer(self, packet: bytes, key: bytes, client: Any, received_s: float, look: Look | None = None) -> None:
        """Answers a miss; the table may have the answer now, if the same was queried twice."""
        outcome = self._answering.answer(packet, client, received_s, key)
        if isinstance(outcome, Exchange):
            self._respond(packet, client, look, outcome)
        else:
            respond = partial(self._respond, packet, client, look)
            self._answering.wait(outcome, packet, client, received_s, respond).step()

    def _respond(self, packet: bytes, client: Any, look: Look | None, exchange: Exchange) -> None:
        wire = exchange.wire
        if wire:
            try:
                self.socket.sendto(wire, client)
            except OSError:
                self.requests.unsent += 1
            if exchange.observers:
                exchange.sent(self._loop.time())
        if look:
            look(packet, client[0], wire)

    async def close(self) -> None:
        """Answers the waiting queries, then closes the socket."""
        self.end()
        self._misses.drain()
        await self._answering.drain(CLOSE_S)
        self.socket.close()
