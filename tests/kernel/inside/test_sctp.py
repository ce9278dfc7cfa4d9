"""SCTP for real: every kind of front, both families, beside TCP and UDP on the same port numbers."""

import asyncio
import socket
from ipaddress import ip_address
from typing import Final

from packet_probe import wrong
from patience import surely
from small_cluster import (
    CLIENTS,
    CONFIG,
    ENDPOINTS,
    NODE_VIEW,
    PROTOCOLS,
    Row,
    both,
    endpoints,
    read,
    sent,
    service,
    state,
)
from world import KINDS, World

from kdns.cluster.objects import EndpointSlice
from kdns.net import FAMILIES
from kdns.proxy.nftables.io.proxier import NftablesProxier
from kdns.proxy.plan.planner import Planner

ALL_ENDS: Final = ("p1", "p2", "r1", "r2")
RANGES: Final = [f"{ip_address(CLIENTS['outside'][0])}/32", f"{ip_address(CLIENTS['outside'][1])}/128"]
OBJECTS: Final = (
    service(1, endpoints(1, "p1", "r1")),
    service(2, endpoints(2, "p1", "r1"), internal="Local", external="Local"),
    service(3, endpoints(3)),
    service(4, endpoints(4, *ALL_ENDS), sessionAffinity="ClientIP"),
    service(5, endpoints(5, "p1"), protocols=("SCTP",)),
    service(6, endpoints(6, "r1"), loadBalancerSourceRanges=RANGES),
)
ALL: Final = """
    pod1                  vip1        p1,r1
    outside,node          vip1        p1,r1 masq
    outside               ext1        p1,r1 masq
    outside               lb1         p1,r1 masq
    outside,pod1,node     node:30001  p1,r1 masq
    remote                vip2        p1 masq
    outside               lb2         p1
    pod2                  node:30002  p1,r1
    pod1,outside,node     vip3        refused
    outside               node:30003  refused
    outside               lb6         r1 masq
    outside2              lb6         dropped
"""
SCTP_ONLY: Final = """
    pod1                  vip5        p1
    pod2                  vip5        p1
    outside               node:30005  p1 masq
    outside               vip5:81     refused
"""
NOT_SCTP: Final = """
    pod2,outside          vip5        refused
"""
TABLES: Final = ((ALL, PROTOCOLS), (SCTP_ONLY, ("SCTP",)), (NOT_SCTP, ("TCP", "UDP")))
PACKETS: Final[list[tuple[Row, str]]] = [
    (row, protocol) for table, protocols in TABLES for row in read(table) for protocol in protocols
]
AT_ONCE: Final = 10


def test_packets(world: World, loop: asyncio.AbstractEventLoop) -> None:
    packets = [sent(row, family, protocol) for family in FAMILIES for row, protocol in PACKETS]

    async def check() -> list[str]:
        await NftablesProxier().sync_full(Planner(state(*OBJECTS), NODE_VIEW, CONFIG).plan)
        gate = asyncio.Semaphore(AT_ONCE)
        return [what for what in await asyncio.gather(*(wrong(world, gate, packet) for packet in packets)) if what]

    assert not loop.run_until_complete(check())


def test_clients_stay_where_they_are(world: World, loop: asyncio.AbstractEventLoop) -> None:
    """With affinity a client keeps its endpoint while it is there, and then another; associations keep theirs."""

    async def ends(which: int) -> set[str]:
        told = [await surely(world, CLIENTS["outside"][which], both("vip", 4)[which], "SCTP", 80) for _ in range(8)]
        return {answer.backend or answer.error for answer in told}

    async def check() -> None:
        known = state(*OBJECTS)
        planner, mode = Planner(known, NODE_VIEW, CONFIG), NftablesProxier()
        await mode.sync_full(planner.plan)

        async def follow(*slices: EndpointSlice) -> None:
            changes = [change for endpoint_slice in slices if (change := known.upsert(endpoint_slice))]
            await mode.sync_partial(planner.plan, planner.changed(changes))

        patient = [await associated(world, which) for which in (0, 1)]
        for which in (0, 1):
            (first,) = await ends(which)
            left = [end for end, addresses in ENDPOINTS.items() if end != "h1" and first not in addresses]
            await follow(*endpoints(1, "p2"), *endpoints(4, *left))
            (second,) = await ends(which)
            assert second != first
            await follow(*endpoints(4, *ALL_ENDS))
            assert await ends(which) == {second}
        for which, client in enumerate(patient):
            fresh = await associated(world, which)
            assert await answer(fresh) == ENDPOINTS["p2"][which]
            assert await answer(client) in {ENDPOINTS["p1"][which], ENDPOINTS["r1"][which]}

    loop.run_until_complete(check())


async def associated(world: World, which: int) -> socket.socket:
    kind, number = KINDS["SCTP"]
    client = world.socket("outside", CLIENTS["outside"][which], kind, protocol=number)
    async with asyncio.timeout(60):
        await asyncio.get_running_loop().sock_connect(client, (both("vip", 1)[which], 80))
    return client


async def answer(client: socket.socket) -> str:
    """Who answers on it; ends it."""
    loop = asyncio.get_running_loop()
    with client:
        async with asyncio.timeout(60):
            await loop.sock_sendall(client, b"hello")
            return (await loop.sock_recv(client, 100)).decode().split()[0]
