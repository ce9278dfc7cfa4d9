"""Objects as nobody means them: nft takes every transaction, and what it would not take is left out by itself.

In the end the kernel holds what a fresh start would put there.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_network
from random import Random
from typing import Final

import msgspec
import pytest
from dataplanes import DATAPLANE, of_nftables
from hypothesis import settings
from odd_objects import Told, endpoint_slice, service, written
from small_cluster import CONFIG, NODE_VIEW
from test_agreement import DETECTORS

from kdns.cluster.objects import EndpointSlice, Service
from kdns.errors import ApplyError
from kdns.net import FAMILIES
from kdns.proxy.nftables import table
from kdns.proxy.nftables.fronts import Content, content_of
from kdns.proxy.nftables.numbers import TableNumbers
from kdns.proxy.nftables.objects import Chain
from kdns.proxy.plan.config import ProxyConfig
from kdns.proxy.plan.plan import FamilyPlan, Front
from kdns.proxy.plan.planner import Planner
from kdns.proxy.plan.state import ProxyState
from kdns.proxy.sync.io.proxier import Proxier
from kdns.proxy.sync.io.runner import SyncRunner
from kdns.proxy.sync.schedule import SyncTiming
from kdns.proxy.userspace.io.proxier import UserspaceProxier

SEEDS: Final = range(settings().max_examples // 2 // DATAPLANE.share)
"""One for each random history: 20 of mode nftables, and 500 in hypothesis's profile `explore`."""
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
PLAIN: Final[Told] = {
    "metadata": {"name": "plain", "namespace": "default"},
    "spec": {"clusterIP": "10.96.200.1", "ports": [{"port": 80}]},
}
"""A Service that stays: where nothing would be left, the kernel's refusal is not taken for the Services' own."""
REFUSED: Final = frozenset({"web", "0a"})
"""Services whose rules are written as no kernel takes them, where a test says so."""


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

    async def start_afresh() -> None:
        await DATAPLANE.clean_up()
        await DATAPLANE.proxier().sync_full(Planner(state, NODE_VIEW, config).plan)

    loop.run_until_complete(follow())
    assert all(most.values()), "nothing came to the kernel"
    followed = [DATAPLANE.rules(family) for family in FAMILIES]
    assert "evil" not in subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    loop.run_until_complete(start_afresh())
    assert followed == [DATAPLANE.rules(family) for family in FAMILIES], f"seed {seed}"


def poisoned(fronts: Iterable[Front], family_plan: FamilyPlan, numbers: TableNumbers) -> Content:
    """What the fronts put into the table; those of some Services so that the kernel refuses it."""
    fronts = tuple(fronts)
    made = content_of(fronts, family_plan, numbers)
    for front in fronts:
        if front.port.name.service in REFUSED:
            made.chains["poison"] = Chain("poison", ("jump nowhere",))
    return made


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


@of_nftables
@pytest.mark.parametrize("seed", FEW)
def test_what_the_kernel_refuses_is_left_out_by_itself(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(table, "content_of", poisoned)
    random, state = Random(seed), ProxyState()
    config = odd_config(random)

    async def follow() -> None:
        await DATAPLANE.clean_up()
        written(random, state, [service(random) for _ in range(20)])
        state.upsert(msgspec.convert(PLAIN, Service))
        proxier = DATAPLANE.proxier()
        async with running(state, proxier, config) as plane:
            for _ in range(ROUNDS):
                plane.changed(written(random, state, odd_writes(random)))
                if random.random() < 0.5:
                    await until(lambda: is_applied(plane))
            await until(lambda: is_applied(plane))
            assert {key[1] for key in plane.rejected} <= REFUSED
            assert plane.plan
            assert "plain" in {name.service for name in plane.plan.ipv4.ports}
        await proxier.sweep()

    async def start_afresh() -> None:
        await DATAPLANE.clean_up()
        kept = [key for key in state.services if key[1] not in REFUSED]
        await DATAPLANE.proxier().sync_full(Planner(state, NODE_VIEW, config, services=kept).plan)

    loop.run_until_complete(follow())
    followed = [DATAPLANE.rules(family) for family in FAMILIES]
    assert "evil" not in subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    loop.run_until_complete(start_afresh())
    assert followed == [DATAPLANE.rules(family) for family in FAMILIES], f"seed {seed}"
