"""Objects as nobody means them: nft takes every transaction, so the plan is what validates.

In the end the kernel holds what a fresh start would put there.
"""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_network
from random import Random
from typing import Final

import pytest
from dataplanes import DATAPLANE, EXPLORES
from hypothesis import settings
from odd_objects import Told, endpoint_slice, service, written
from small_cluster import CONFIG, NODE_VIEW
from test_agreement import DETECTORS

from kdns.cluster.objects import EndpointSlice, Service
from kdns.errors import ApplyError
from kdns.net import FAMILIES
from kdns.proxy.plan.config import ProxyConfig
from kdns.proxy.plan.planner import Planner
from kdns.proxy.plan.state import ProxyState
from kdns.proxy.sync.io.proxier import Proxier
from kdns.proxy.sync.io.runner import SyncRunner
from kdns.proxy.sync.schedule import SyncTiming
from kdns.proxy.userspace.io.proxier import UserspaceProxier

FIRST_SEED: Final = int(os.environ.get("KDNS_SEED") or (Random().randrange(2**32) if EXPLORES else 0))
SEEDS: Final = range(FIRST_SEED, FIRST_SEED + settings().max_examples // 2 // DATAPLANE.share)
"""One for each random history: 20 of mode nftables; in hypothesis's profile `explore` 500, others each time.

A test's name has its seed; KDNS_SEED repeats it.
"""
FEW: Final = SEEDS[: max(1, len(SEEDS) // 4)]
ROUNDS: Final = 40
WRITES: Final = (1, 1, 3, 20)
"""How many objects change at once."""
DEADLINE_S: Final = 60.0
NODE_PORT_ADDRESSES: Final = (
    (),
    ("primary",),
    tuple(map(ip_network, ("0.0.0.0/0", "::/0"))),
    (ip_network("192.0.2.0/24"),),
)


def odd_config(random: Random) -> ProxyConfig:
    return ProxyConfig(
        DATAPLANE.mode,
        masquerade_all=random.choice((False, True)),
        local_pods=random.choice(DETECTORS),
        node_port_addresses=random.choice(NODE_PORT_ADDRESSES),
        service_cidrs=CONFIG.service_cidrs,
    )


def odd_writes(random: Random) -> list[Told]:
    return [random.choice((service, endpoint_slice))(random) for _ in range(random.choice(WRITES))]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_kernel_takes_every_transaction(loop: asyncio.AbstractEventLoop, seed: int) -> None:
    random = Random(seed)
    config = odd_config(random)
    state, mode = ProxyState(), DATAPLANE.proxier()
    planner = Planner(state, NODE_VIEW, config)
    most = dict.fromkeys(FAMILIES, 0)

    async def follow() -> None:
        await DATAPLANE.clean_up()
        await mode.sync_full(planner.plan)
        for number in range(ROUNDS):
            told = odd_writes(random)
            differences = planner.changed(written(random, state, told))
            try:
                await mode.sync_partial(planner.plan, differences)
                if random.random() < 0.3:
                    await mode.sweep()
            except ApplyError as error:
                pytest.fail(f"seed {seed}, round {number}: {error}\n{json.dumps(told)[:4000]}")
            for family in FAMILIES:
                most[family] = max(most[family], len(planner.plan.of(family).fronts))
        await mode.sweep()
        assert await mode.difference() == ""

    async def start_afresh() -> None:
        await DATAPLANE.clean_up()
        await DATAPLANE.proxier().sync_full(Planner(state, NODE_VIEW, config).plan)

    loop.run_until_complete(follow())
    assert all(most.values()), "nothing came to the kernel"
    followed = [DATAPLANE.rules(family) for family in FAMILIES]
    assert "evil" not in subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    loop.run_until_complete(start_afresh())
    assert followed == [DATAPLANE.rules(family) for family in FAMILIES], f"seed {seed}"


@asynccontextmanager
async def running(state: ProxyState, proxier: Proxier, config: ProxyConfig) -> AsyncIterator[SyncRunner]:
    """A dataplane that has applied what was there at its start."""
    plane = SyncRunner(state, proxier, lambda: (NODE_VIEW, config), SyncTiming(0.0, 1.0))
    state.synced |= {Service, EndpointSlice}
    task = asyncio.create_task(plane.run())
    try:
        yield plane
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(wanted: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not wanted():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


def is_applied(plane: SyncRunner) -> bool:
    stats = plane.stats
    return plane.established.is_set() and not stats.services.pending and not stats.endpoints.pending


@pytest.mark.parametrize("seed", FEW)
@pytest.mark.parametrize("mode", ["kernel", "userspace"])
def test_the_dataplane_takes_every_change(loop: asyncio.AbstractEventLoop, mode: str, seed: int) -> None:
    random, state = Random(seed), ProxyState()
    config = odd_config(random)

    async def follow() -> None:
        await DATAPLANE.clean_up()
        relays = UserspaceProxier(DATAPLANE.capture())
        proxier: Proxier = DATAPLANE.proxier() if mode == "kernel" else relays
        try:
            mine = config if mode == "kernel" else replace(config, mode=DATAPLANE.relays)
            async with running(state, proxier, mine) as plane:
                for number in range(ROUNDS):
                    told = odd_writes(random)
                    plane.changed(written(random, state, told))
                    if random.random() < 0.8:
                        await until(lambda: is_applied(plane))
                    wrong = plane.stats.failures, plane.rejected
                    assert wrong == (0, {}), f"round {number}: {json.dumps(told)[:4000]}"
                await until(lambda: is_applied(plane))
        finally:
            await relays.close()

    loop.run_until_complete(follow())
