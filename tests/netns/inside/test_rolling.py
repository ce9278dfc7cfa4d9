"""Endpoints are replaced one by one under a running load: nobody notices."""

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from typing import Final

import pytest
from dataplanes import DATAPLANE
from rollout_load import Load
from small_cluster import CONFIG, NODE_VIEW, endpoints, service, state
from world import World

from kdns.cluster.objects import EndpointSlice, Service
from kdns.cluster.state import State
from kdns.proxy.sync.io.runner import SyncRunner
from kdns.proxy.sync.schedule import SyncTiming

ENDS: Final = ("p1", "p2", "r1", "r2")
ROUNDS: Final = 20 // min(DATAPLANE.share, 5)
ROUNDS_MAX: Final = 20 * ROUNDS
"""With affinity, a client has another endpoint only when its own leaves: chance decides when each has answered."""
WORKERS: Final = 4


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
    applied = asyncio.Event()
    dataplane.subscribers[:] = [lambda _: applied.set()]
    load.coming(ready)
    dataplane.changed([change for endpoint in endpoints(1, *ready) if (change := known.upsert(endpoint))])
    await applied.wait()
    load.gone(ready)


@pytest.mark.parametrize("affinity", ["None", "ClientIP"] if DATAPLANE.share == 1 else ["ClientIP"])
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
    for step, ready in enumerate(rollout()):
        if step >= ROUNDS_MAX * 3 or (step >= ROUNDS * 3 and len(load.done) == len(ENDS) * 2):
            break
        await follow(load, known, dataplane, ready)
    load.is_over = True
    await asyncio.gather(*clients)
    for connection in patient:  # their endpoints left and came back meanwhile, and kept them
        assert await load.answer(connection) in load.done
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not dataplane.stats.failures
