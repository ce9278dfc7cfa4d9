"""Mode ipvs: which endpoint a connection gets from each scheduler, who keeps one, and a rollout under load."""

import asyncio
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import pytest
from mode_under_test import QUICK, Node, started
from patience import surely
from rollout_load import Load
from small_cluster import CLIENTS, ENDPOINTS, both, endpoints, service
from world import World

from kdns.proxy.ipvs.settings import IpvsSettings
from kdns.proxy.takeover.io.modes import runtime

ENDS: Final = ("p1", "p2", "r1", "r2")
DEADLINE_S: Final = 60.0
NAMES: Final = {address: end for end in ENDS for address in ENDPOINTS[end]}
Front = tuple[str, int]


@pytest.fixture(scope="module")
def node(loop: asyncio.AbstractEventLoop) -> Node:
    return Node(loop.run_until_complete(started(QUICK)))


async def connect(world: World, who: str, front: Front, which: int = 0) -> socket.socket:
    client = world.socket(who.removesuffix("2") if who == "outside2" else who, CLIENTS[who][which], socket.SOCK_STREAM)
    try:
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.get_running_loop().sock_connect(client, front)
    except BaseException:
        client.close()
        raise
    return client


async def end_of(client: socket.socket) -> str:
    loop = asyncio.get_running_loop()
    with client:
        async with asyncio.timeout(DEADLINE_S):
            await loop.sock_sendall(client, b"hello")
            said = (await loop.sock_recv(client, 200)).decode()
    return NAMES[said.split()[0]]


@dataclass(frozen=True)
class Asked:
    """A Service and its clients."""

    world: World
    number: int
    which: int

    @property
    def front(self) -> Front:
        return both("vip", self.number)[self.which], 80

    async def at_once(self, many: int, who: str = "outside") -> list[str]:
        """The ends of connections that are open at the same time."""
        made = [await connect(self.world, who, self.front, self.which) for _ in range(many)]
        return [await end_of(each) for each in made]

    async def in_turn(self, many: int, *clients: str) -> list[str]:
        """The ends of connections, each of which has ended before the next."""
        return [await end_of(await connect(self.world, who, self.front, self.which)) for who in clients * many]


async def in_a_circle(asked: Asked) -> None:
    ends = await asked.in_turn(8, "outside")
    assert set(ends[:4]) == set(ENDS)
    assert ends[:4] == ends[4:]


async def least_connections(asked: Asked) -> None:
    assert Counter(await asked.at_once(8)) == dict.fromkeys(ENDS, 2)


async def by_service(asked: Asked) -> None:
    assert len(set(await asked.in_turn(3, "outside", "outside2", "pod1"))) == 1


async def by_client(asked: Asked) -> None:
    for who in ("outside", "outside2", "pod1"):
        assert len(set(await asked.at_once(4, who))) == 1


async def by_port_of_client(asked: Asked) -> None:
    assert set(await asked.in_turn(40, "outside")) == set(ENDS)


async def first_while_it_is_there(asked: Asked) -> None:
    (first,) = set(await asked.at_once(8))
    assert first in ENDS


async def one_more_than_the_weight(asked: Asked) -> None:
    """The kernel passes an endpoint over when it has more connections than its weight, which is 1."""
    held = [await connect(asked.world, "outside", asked.front, asked.which) for _ in range(2 * len(ENDS))]
    with pytest.raises(ConnectionRefusedError):
        await end_of(await connect(asked.world, "outside", asked.front, asked.which))
    assert Counter([await end_of(each) for each in held]) == dict.fromkeys(ENDS, 2)


SCHEDULERS: Final[dict[str, Callable[[Asked], Awaitable[None]]]] = {
    "rr": in_a_circle,
    "wrr": in_a_circle,
    "lc": least_connections,
    "wlc": least_connections,
    "sed": least_connections,
    "nq": least_connections,
    "lblc": by_service,
    "lblcr": by_service,
    "dh": by_service,
    "sh": by_client,
    "mh": by_port_of_client,
    "fo": first_while_it_is_there,
    "ovf": one_more_than_the_weight,
}
"""What must hold of the choice, where all endpoints have the weight 1."""
SHORT: Final = {"rr", "lc", "sh", "ovf"}
"""One of each kind; the kernel chooses, and kdns names the scheduler."""


@pytest.mark.parametrize(
    "scheduler",
    [pytest.param(name, marks=() if name in SHORT else pytest.mark.release) for name in SCHEDULERS],
)
def test_a_scheduler_chooses(world: World, loop: asyncio.AbstractEventLoop, node: Node, scheduler: str) -> None:
    number = 1 + list(SCHEDULERS).index(scheduler)

    async def check() -> None:
        settings = QUICK.with_section(replace(QUICK.section(IpvsSettings), scheduler=scheduler))
        node.mode = await started(settings)
        await fresh(node).become(service(number, endpoints(number, *ENDS)))
        await SCHEDULERS[scheduler](Asked(world, number, which=number % 2))

    loop.run_until_complete(check())


def test_a_scheduler_that_the_kernel_lacks_is_named(loop: asyncio.AbstractEventLoop) -> None:
    settings = QUICK.with_section(replace(QUICK.section(IpvsSettings), scheduler="twos"))
    assert "twos" in loop.run_until_complete(runtime("ipvs").unsupported(settings))


def test_a_client_keeps_its_endpoint_for_a_time(world: World, loop: asyncio.AbstractEventLoop, node: Node) -> None:
    """Over UDP, whose connections the kernel forgets after a second, so that only affinity keeps a client."""
    config = {"clientIP": {"timeoutSeconds": 3}}

    def served(*ends: str) -> Any:
        return service(1, endpoints(1, *ends), sessionAffinity="ClientIP", sessionAffinityConfig=config)

    async def ends() -> set[str]:
        asked = [surely(world, CLIENTS["outside"][0], both("vip", 1)[0], "UDP", 80) for _ in range(6)]
        return {NAMES[(await each).backend] for each in asked}

    async def check() -> None:
        await fresh(node).become(served(*ENDS))
        (first,) = await ends()
        await node.change(served(*(end for end in ENDS if end != first)))
        (second,) = await ends()
        assert second != first
        await node.change(served(*ENDS))
        assert await ends() == {second}
        deadline_s = time.monotonic() + 3 * DEADLINE_S
        while remembered():
            assert time.monotonic() < deadline_s, remembered()
            await asyncio.sleep(0.1)
        (third,) = await ends()  # round robin, which nobody else has asked meanwhile
        assert third != second

    loop.run_until_complete(check())


def fresh(node: Node) -> Node:
    node.planner = None
    return node


def remembered() -> list[str]:
    """Clients with an endpoint, and connections."""
    listed = subprocess.run(["ipvsadm", "-Lnc"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if " UDP " in f" {line} " or ":0 " in line]


def destinations(*, leaving: bool) -> set[tuple[str, str]]:
    """Virtual servers and their destinations, those without weight or the others."""
    listed = subprocess.run(["ipvsadm", "-Sn"], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listed.splitlines() if line.startswith("-a")]
    return {(row[2], row[4]) for row in rows if (row[-1] == "0") == leaving}


async def loaded(world: World, changes: Callable[[Load], Awaitable[None]]) -> Load:
    """The load while changes are made. The kernel drops answers of UDP from an endpoint that has just been deleted."""
    load = Load(world, resend_s=5.0)
    clients = [
        asyncio.create_task(load.client(who, kind, which))
        for who in ("outside", "pod1", "node")
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
        for which in (0, 1)
    ]
    try:
        await changes(load)
    finally:
        load.is_over = True
        await asyncio.gather(*clients)
    return load


def rollout() -> Iterator[tuple[str, ...]]:
    """The endpoints that there are, step by step: each goes once and comes back."""
    for gone in ENDS:
        left = tuple(end for end in ENDS if end != gone)
        yield left
        yield left[:2]
        yield ENDS


def test_endpoints_are_replaced_under_load(world: World, loop: asyncio.AbstractEventLoop, node: Node) -> None:
    """No connection fails, none that is open ends, none comes to an endpoint that is gone; what is left over goes."""

    async def change(load: Load) -> None:
        for ends in islice(rollout(), 12):
            load.coming(ends)
            await node.change(service(1, endpoints(1, *ends)))
            load.gone(ends)
            before = load.done.total()
            deadline_s = time.monotonic() + DEADLINE_S
            while load.done.total() < before + 12:
                assert time.monotonic() < deadline_s, load.failures
                await asyncio.sleep(0.01)

    async def check() -> None:
        # An answer that takes a second on a busy machine shall still find its way.
        node.mode = await started(QUICK.with_section(replace(QUICK.section(IpvsSettings), udp_timeout_s=60)))
        await fresh(node).become(service(1, endpoints(1, *ENDS)))
        patient = [await connect(world, "outside", (both("vip", 1)[each % 2], 80), each % 2) for each in range(8)]
        load = await loaded(world, change)
        assert not load.failures
        assert {NAMES[address] for address in load.done} == set(ENDS)
        await node.change(service(1, endpoints(1, "p1")))
        assert {await end_of(each) for each in patient} == set(ENDS)
        patient = [await connect(world, "outside", (both("vip", 1)[0], 80)) for _ in range(2)]
        await node.change(service(1, endpoints(1, "r1")))
        with node.mode.watch(lambda _: None):
            await until(lambda: bool(destinations(leaving=True)))
            assert [await end_of(each) for each in patient] == ["p1", "p1"]

    loop.run_until_complete(check())


async def until(there: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not there():
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.1)
