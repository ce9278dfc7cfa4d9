"""Session affinity in the kernel: who keeps which endpoint, for how long, and through which changes."""

import asyncio
import json
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias

import pytest
from dataplanes import DATAPLANE, of_nftables
from patience import surely
from small_cluster import CLIENTS, CONFIG, ENDPOINTS, NODE_VIEW, both, endpoints, service, state
from world import World

from kdns.cluster.objects import Object
from kdns.proxy.nftables import sets
from kdns.proxy.plan.planner import Planner

MANY: Final = range(1, 1 + 30 // min(DATAPLANE.share, 3))
"""So many Services at once that clients which draw anew draw the same everywhere once in 4^30, or in 4^10 where
a change of all of them takes long."""
ENDS: Final = ("p1", "p2", "r1", "r2")
TIMEOUT_S: Final = 1
ADDRESSES: Final = {end: set(addresses) for end, addresses in ENDPOINTS.items()}
Choices: TypeAlias = dict[tuple[int, str], str]
"""Service and target's kind → the endpoint that answered."""


async def _clean_up() -> None:
    await DATAPLANE.clean_up()


class Node:
    """The dataplane with MANY Services, all with the same endpoints."""

    def __init__(
        self,
        world: World,
        loop: asyncio.AbstractEventLoop,
        timeout_s: int = 10800,
    ) -> None:
        self._world, self._loop, self._mode = world, loop, DATAPLANE.proxier()
        self._state = state(*self._services(timeout_s))
        self._planner = Planner(self._state, NODE_VIEW, replace(CONFIG, mode=DATAPLANE.mode))
        loop.run_until_complete(_clean_up())  # else it remembers the clients of the test before
        loop.run_until_complete(self._mode.sync_full(self._planner.plan))

    def change(self, *ends: str) -> None:
        self._follow(endpoint for number in MANY for endpoint in endpoints(number, *ends))

    def time(self, timeout_s: int) -> None:
        self._follow(obj for objects in self._services(timeout_s) for obj in objects)

    def _services(self, timeout_s: int) -> Iterator[tuple[Object, ...]]:
        config = {"clientIP": {"timeoutSeconds": timeout_s}}
        for number in MANY:
            ends = endpoints(number, *ENDS)
            yield service(number, ends, sessionAffinity="ClientIP", sessionAffinityConfig=config)

    def _follow(self, objects: Iterable[Object]) -> None:
        differences = self._planner.changed([change for obj in objects if (change := self._state.upsert(obj))])
        self._loop.run_until_complete(self._mode.sync_partial(self._planner.plan, differences))

    def sweep(self) -> None:
        self._loop.run_until_complete(self._mode.sweep())

    def sync_full(self) -> None:
        """Begin anew, as a proxy does that was started again."""
        self._mode = DATAPLANE.proxier()
        self._loop.run_until_complete(self._mode.sync_full(self._planner.plan))

    def choices(self, client: str, *kinds: str, protocol: str = "TCP", which: int = 0) -> Choices:
        async def ask(number: int, kind: str) -> str:
            answer = await surely(self._world, CLIENTS[client][which], both(kind, number)[which], protocol, 80)
            assert not answer.error, (client, kind, number, answer)
            return answer.backend

        async def ask_all() -> Choices:
            wanted = [(number, kind) for number in MANY for kind in kinds or ("vip",)]
            ends = await asyncio.gather(*(ask(*each) for each in wanted))
            return dict(zip(wanted, ends, strict=True))

        self._world.forget()
        return self._loop.run_until_complete(ask_all())


def test_a_client_keeps_its_endpoint_at_every_address(world: World, loop: asyncio.AbstractEventLoop) -> None:
    node = Node(world, loop)
    for which in (0, 1):
        first = node.choices("outside", which=which)
        assert len(set(first.values())) > 1
        assert all(node.choices("outside", which=which) == first for _ in range(5))
        elsewhere = node.choices("outside", "ext", "lb", which=which)
        assert all(first[number, "vip"] == end for (number, _), end in elsewhere.items())


@of_nftables
def test_another_client_and_another_port_have_their_own(world: World, loop: asyncio.AbstractEventLoop) -> None:
    node = Node(world, loop)
    first = node.choices("outside")
    assert node.choices("outside2") != first
    assert node.choices("pod1") != first
    assert node.choices("outside", protocol="UDP") != first
    assert node.choices("outside") == first


@of_nftables
def test_who_comes_again_in_time_stays_and_who_does_not_draws_anew(
    world: World, loop: asyncio.AbstractEventLoop
) -> None:
    node = Node(world, loop, timeout_s=TIMEOUT_S)
    before_s = time.monotonic()
    first = node.choices("outside")
    until_s = time.monotonic() + 2.5 * TIMEOUT_S
    while (asked_s := time.monotonic()) < until_s:  # each round renews the time
        again = node.choices("outside")
        if time.monotonic() - before_s < TIMEOUT_S:  # so none waited longer, from the round before on
            assert again == first
        first, before_s = again, asked_s
    deadline_s = time.monotonic() + 60 * TIMEOUT_S
    while kept() and time.monotonic() < deadline_s:
        pass
    assert not kept()
    assert node.choices("outside") != first


def test_changes_of_other_endpoints_are_not_noticed(world: World, loop: asyncio.AbstractEventLoop) -> None:
    node = Node(world, loop)
    first = node.choices("outside")
    for gone in ENDS:
        left = [end for end in ENDS if end != gone]
        node.change(*left)
        now = node.choices("outside")
        moved = {each for each in first if now[each] != first[each]}
        assert moved == {each for each in first if first[each] in ADDRESSES[gone]}
        assert not {now[each] for each in moved} & ADDRESSES[gone]
        node.sweep()
        node.change(*ENDS)  # and whoever moved stays
        assert node.choices("outside") == now
        first = now


@of_nftables
def test_an_endpoint_that_is_back_at_once_has_no_clients(world: World, loop: asyncio.AbstractEventLoop) -> None:
    node = Node(world, loop)
    node.choices("outside")
    node.change("r1")
    moved = node.choices("outside")
    node.change(*ENDS)
    assert node.choices("outside") == moved


def test_clients_stay_when_the_timeout_changes(world: World, loop: asyncio.AbstractEventLoop) -> None:
    node = Node(world, loop)
    first = node.choices("outside")
    node.time(7200)
    assert node.choices("outside") == first


def test_who_starts_again_remembers(world: World, loop: asyncio.AbstractEventLoop) -> None:
    node = Node(world, loop)
    first = node.choices("outside")
    node.sync_full()
    assert node.choices("outside") == first


@of_nftables
def test_clients_beyond_the_maps_size_are_served_without_affinity(
    world: World, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sets, "CLIENTS", replace(sets.CLIENTS, dynamic_size=2))
    node = Node(world, loop)
    first, second = node.choices("outside"), node.choices("outside")
    assert kept() == 2
    assert first != second
    assert len(set(first.values())) > 1


def kept() -> int:
    """How many clients the maps of affinity hold."""
    listed = subprocess.run(["nft", "-j", "list", "ruleset"], capture_output=True, check=True).stdout
    rows = json.loads(listed)["nftables"]
    return sum(len(row["map"].get("elem", ())) for row in rows if row.get("map", {}).get("name", "").startswith("aff"))
