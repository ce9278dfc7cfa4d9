"""Two servers that get the same datagrams: one reads its sockets in Python, the other in compiled code."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

from kdns.answers.answer import Answer
from kdns.answers.chain import Block, Chain, Plugin
from kdns.answers.response import Subject
from kdns.answers.table import AnswerTable, Generations
from kdns.cluster.objects import (
    Conditions,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Meta,
    Namespace,
    Service,
    ServiceMeta,
    ServicePort,
    ServiceSpec,
    SliceLabels,
    SliceMeta,
)
from kdns.cluster.state import State
from kdns.dnsserver.blocks import Server
from kdns.dnsserver.io.burst.event_loop import Miss
from kdns.dnsserver.io.burst.sampling import MOST, Sampling
from kdns.dnsserver.io.request_metrics import Requests
from kdns.dnsserver.io.stream import Clients
from kdns.dnsserver.io.udp import UdpListener
from kdns.plugins.sources.kubernetes.options import Options
from kdns.plugins.sources.kubernetes.plugin import Kubernetes
from kdns.serverblocks.directive import World

LISTENERS: Final = (
    (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
    (socket.AF_INET6, "::1", "::1"),
    (socket.AF_INET6, "::ffff:127.0.0.1", "127.0.0.1"),
)
"""The family of a listener, its address and that of its clients."""
CLIENTS: Final = 3
"""The clients of a listener."""
BUFFER_BYTES: Final = 4 << 20
"""A client's buffer for answers: none is lost."""
PORTS: Final = (ServicePort(80, "http"), ServicePort(443, "https"))


class Listener(UdpListener):
    """A listener that remembers its misses."""

    def __init__(self, sock: socket.socket, server: Server, sampling: Sampling) -> None:
        self.missed: list[Miss] = []
        clients = Clients()
        clients.sampling, self.misses = sampling, clients.misses
        super().__init__(sock, server, Requests(), clients)

    def take(self, missed: Sequence[Miss]) -> None:
        """See UdpListener."""
        self.missed += missed
        super().take(missed)


class Tables:
    """What the directive `kubernetes` uses here of World: it forgets nothing, its cluster does not change."""

    own_addresses: tuple[bytes, ...] = ()

    def plugins(self) -> tuple[Plugin, ...]:
        """Returns no other directives."""
        return ()

    def forget(self, subjects: Iterable[Subject]) -> None:
        """Does nothing."""


class Side:
    """An event loop with a listener for each row of LISTENERS, and their clients.

    Listeners share nothing, because the order in which they answer depends on the time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, max_bytes: int) -> None:
        self.loop = loop
        self._sampling = Sampling()
        self._sampling.most = MOST
        self.listeners: list[Listener] = loop.run_until_complete(self._opened(max_bytes))
        self.clients = [
            [_client(listener, host) for _ in range(CLIENTS)]
            for listener, (_, _, host) in zip(self.listeners, LISTENERS, strict=True)
        ]

    @property
    def tables(self) -> list[AnswerTable]:
        """The answer table of each listener."""
        return [listener.server.table for listener in self.listeners]

    async def _opened(self, max_bytes: int) -> list[Listener]:
        listeners = []
        for family, address, _ in LISTENERS:
            sock = _socket(family)
            sock.bind((address, 0))
            plugin = Kubernetes(cluster(), Options(), cast("World", Tables()))
            server = Server("dns://:53", (Block(".", Chain((plugin,))),), generations=Generations(max_bytes))
            listeners.append(Listener(sock, server, self._sampling))
        return listeners

    def step(self, wait_s: float = 0.0) -> None:
        """Runs the loop for at least two iterations, and until every query was answered."""
        for _ in range(2):
            self.loop.call_later(wait_s, self.loop.stop) if wait_s else self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
        while any(listener.misses.is_scheduled or listener.misses.waiting for listener in self.listeners):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    def run(self, call: Callable[..., object], *arguments: object) -> None:
        """Calls a function in the loop."""

        async def called() -> None:
            call(*arguments)

        self.loop.run_until_complete(called())

    def take_received(self) -> dict[str, Any]:
        """Returns what the clients received, which packets missed, what was sampled and what was counted."""
        seen, sample = self._sampling.take()
        received = {
            "misses": [[miss[0] for miss in listener.missed] for listener in self.listeners],
            "responses": [[_received(sock) for sock in socks] for socks in self.clients],
            "sampled": (seen, sorted(sample)),
            "answered": [sum(listener.requests.durations.counts) for listener in self.listeners],
            "unsent": [(listener.requests.unsent, listener.requests.shed) for listener in self.listeners],
        }
        for listener in self.listeners:
            listener.missed = []
        return received

    def tables_now(self) -> dict[str, Any]:
        """Returns the answers of the tables with their uses and the references to their parts, and all counters."""
        partitions = [listener.partition for listener in self.listeners]
        return {
            "answers": [{key: _parts(one) for key, one in partition.answers.items()} for partition in partitions],
            "totals": [sorted(partition.totals()) for partition in partitions],
            "memory": [table.generations.size_bytes for table in self.tables],
        }

    def close(self) -> None:
        """Closes the sockets and the loop."""
        for listener in self.listeners:
            self.run(listener.end)
            listener.socket.close()
        for socks in self.clients:
            for sock in socks:
                sock.close()
        self.loop.close()


def _parts(answer: Answer) -> tuple[Any, ...]:
    """Returns what the readers may change of an answer. Bytes that others have too may have any references."""
    bodies = answer.bodies if isinstance(answer.bodies, tuple) else ()
    parts = (bodies, *(body for body in bodies if len(body) > 1))
    references = sys.getrefcount(answer), *map(sys.getrefcount, parts if bodies else ())
    return answer.head, b"".join(answer.bodies), answer.hits, answer.counted, answer.generation, references


def cluster() -> State:
    """Returns a small cluster."""
    state = State(synced={Namespace, Service, EndpointSlice})
    endpoints = tuple(Endpoint((f"10.1.0.{number}",), Conditions(ready=True)) for number in range(1, 6))
    ports = (EndpointPort("http", 8080), EndpointPort("https", 8443))
    for each in (
        Namespace(Meta("a")),
        Service(ServiceMeta("web", "a"), ServiceSpec(cluster_ip="10.0.0.1", cluster_ips=("10.0.0.1",), ports=PORTS)),
        Service(ServiceMeta("db", "a"), ServiceSpec(cluster_ip="None", cluster_ips=("None",), ports=PORTS)),
        EndpointSlice(SliceMeta("db-1", "a", SliceLabels("db")), "IPv4", endpoints, ports),
    ):
        state.upsert(each)
    return state


def _socket(family: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.setblocking(False)
    return sock


def _client(listener: Listener, host: str) -> socket.socket:
    sock = _socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    sock.connect((host, listener.socket.getsockname()[1]))
    return sock


def _received(sock: socket.socket) -> list[bytes]:
    received = []
    while True:
        try:
            received.append(sock.recv(65_535))
        except BlockingIOError:
            return received
