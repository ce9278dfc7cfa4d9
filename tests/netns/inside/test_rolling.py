"""Endpoints are replaced one by one under a running load: nobody notices."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count, cycle
from typing import Final

import pytest
from dataplanes import DATAPLANE
from small_cluster import CLIENTS, CONFIG, ENDPOINTS, NODE_VIEW, endpoints, service, state
from world import World

from kdns.aio.dataplane.sync_runner import SyncRunner, SyncTiming
from kdns.cluster.objects import EndpointSlice, Service
from kdns.cluster.state import State

ENDS: Final = ("p1", "p2", "r1", "r2")
ROUNDS: Final = 80 // DATAPLANE.share
WORKERS: Final = 4
ANSWER_S: Final = 30.0
VIP: Final = ("10.96.0.1", "fd00:96::1")


@dataclass(slots=True)
class Load:
    """What clients met: exchanges by endpoint, failures, and exchanges with endpoints that were gone before."""

    world: World
    done: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    gone_since_s: dict[str, float] = field(default_factory=dict)
    ports: Iterator[int] = field(default_factory=lambda: count(10000))
    is_over: bool = False

    async def client(self, who: str, kind: socket.SocketKind, which: int) -> None:
        """One exchange after the other, each on a connection of its own."""
        while not self.is_over:
            started_s = time.monotonic()
            try:
                async with asyncio.timeout(ANSWER_S):
                    end = await self._exchange(who, kind, which)
            except (OSError, TimeoutError) as error:
                self.failures.append(f"{who} {kind.name} {VIP[which]}: {error!r}")
                continue
            self.done[end] += 1
            if started_s > self.gone_since_s.get(end, started_s):
                self.failures.append(f"{who} {kind.name} {VIP[which]}: came to {end}, which was gone")

    async def _exchange(self, who: str, kind: socket.SocketKind, which: int) -> str:
        port = next(self.ports) if kind is socket.SOCK_DGRAM else 0  # a port used before would be the flow before
        return await self.answer(await self.connected(who, kind, which, port))

    async def connected(self, who: str, kind: socket.SocketKind, which: int, port: int = 0) -> socket.socket:
        """A connection to the Service."""
        client = self.world.socket(who, CLIENTS[who][which], kind, port)
        await asyncio.get_running_loop().sock_connect(client, (VIP[which], 80))
        return client

    async def answer(self, client: socket.socket) -> str:
        """Who answers on this connection; ends it."""
        loop = asyncio.get_running_loop()
        with client:
            await loop.sock_sendall(client, b"hello")
            return (await loop.sock_recv(client, 100)).decode().split()[0]


@pytest.fixture
def load(world: World) -> Load:
    world.forget()
    return Load(world)


def rollout() -> Iterator[tuple[str, ...]]:
    """The ready endpoints, step by step: one goes, another comes, and each is the one that goes in its turn."""
    for away in cycle(range(len(ENDS))):
        left = tuple(end for number, end in enumerate(ENDS) if number != away)
        yield left
        yield left[:2]
        yield left


async def follow(load: Load, known: State, dataplane: SyncRunner, ready: tuple[str, ...]) -> None:
    """Let these be the endpoints, and wait until the kernel knows."""
    applied = asyncio.Event()
    dataplane.subscribers[:] = [lambda _: applied.set()]
    coming = {ENDPOINTS[end][which] for end in ready for which in (0, 1)}
    for address in coming:
        load.gone_since_s.pop(address, None)
    dataplane.changed([change for each in endpoints(1, *ready) if (change := known.upsert(each))])
    await applied.wait()
    for addresses in ENDPOINTS.values():
        for address in addresses:
            if address not in coming:
                load.gone_since_s.setdefault(address, time.monotonic())


@pytest.mark.parametrize("affinity", ["None", "ClientIP"])
def test_nobody_notices(loop: asyncio.AbstractEventLoop, load: Load, affinity: str) -> None:
    loop.run_until_complete(nobody_notices(load, affinity))
    assert not load.failures
    assert len(load.done) == len(ENDS) * 2, load.done


async def nobody_notices(load: Load, affinity: str) -> None:
    known = state(service(1, endpoints(1, *ENDS), sessionAffinity=affinity))
    config = replace(CONFIG, mode=DATAPLANE.mode)
    known.synced |= {Service, EndpointSlice}
    dataplane = SyncRunner(known, DATAPLANE.proxier(), lambda: (NODE_VIEW, config), SyncTiming(min_sync_s=0.0))
    running = asyncio.create_task(dataplane.run())
    dataplane.changed([])
    await dataplane.established.wait()
    clients = [
        asyncio.create_task(load.client(who, kind, which))
        for who in ("outside", "pod1")
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
        for which in (0, 1)
        for _ in range(WORKERS)
    ]
    patient = [await load.connected("outside", socket.SOCK_STREAM, which) for which in (0, 1) for _ in range(20)]
    for _, ready in zip(range(ROUNDS * 3), rollout(), strict=False):
        await follow(load, known, dataplane, ready)
    load.is_over = True
    await asyncio.gather(*clients)
    for connection in patient:  # their endpoints left and came back meanwhile, and kept them
        assert await load.answer(connection) in load.done
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not dataplane.stats.failures
