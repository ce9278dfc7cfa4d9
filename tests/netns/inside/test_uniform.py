"""Each endpoint is as likely as any other, however many there are, also after changes: counted by the kernel itself."""

from __future__ import annotations

import asyncio
import math
import socket
import subprocess
from collections import Counter
from dataclasses import replace
from ipaddress import ip_address
from typing import Final

import pytest
from dataplanes import DATAPLANE, of_nftables
from small_cluster import CLIENTS, CONFIG, NODE_VIEW, service, state
from world import World

from kdns.cluster.objects import Endpoint, EndpointPort, EndpointSlice, SliceLabels, SliceMeta
from kdns.net import FAMILIES, Family
from kdns.netlink.io.conntrack import udp_flows
from kdns.proxy.plan.planner import Planner, plan

PODS: Final = {"IPv4": "10.4.0.0", "IPv6": "fd00:1:2::"}
"""Where so many endpoints are that nobody has to answer; they are routed to the other node and end there."""
VIP: Final = {"IPv4": "10.96.0.1", "IPv6": "fd00:96::1"}
SLICE: Final = 1000
SIZES: Final = (1, 2, 3, 100, 70_000, 3, 1)
"""From few endpoints to more than 16 bits can number, which are for a release, and to few again."""
CONFIG_OF_MODE: Final = replace(CONFIG, mode=DATAPLANE.mode)
DRAWS: Final = 2000
ENOUGH_FOR_ONE: Final = 100
"""Draws where there is one endpoint, which none may miss."""
GROUPS: Final = 50
"""More endpoints than this are counted in groups, so that enough draws fall on each."""
DEVIATION: Final = 5.0
"""Standard deviations that chance may bring: more in one of 3.5 million runs."""


@pytest.fixture
def many(world: World) -> World:
    for version, network in (("-4", "10.4.0.0/14"), ("-6", "fd00:1:2::/96")):
        gateway = ("via", "169.254.3.2", "onlink") if version == "-4" else ("via", "fe80::3:2")
        subprocess.run(["ip", version, "route", "replace", network, *gateway, "dev", "remote"], check=True)
        end = ["ip", version, "-n", world.names["remote"], "route", "replace", "blackhole", network]
        subprocess.run(end, check=True)
    return world


def slices(family: Family, start: int, count: int) -> list[EndpointSlice]:
    """Slices with `count` endpoints from the one of this number on."""
    first = ip_address(PODS[family]) + start
    cuts = [(at, min(at + SLICE, count)) for at in range(0, max(count, 1), SLICE)]
    return [
        EndpointSlice(
            SliceMeta(f"s1-{family.lower()}-{number}", "shop", SliceLabels("s1")),
            family,
            tuple(Endpoint((str(first + each),)) for each in range(at, end)),
            (EndpointPort("udp", 8080, "UDP"),),
        )
        for number, (at, end) in enumerate(cuts)
    ]


def drawn(world: World, family: Family, draws: int) -> Counter[str]:
    """To which endpoint each of so many new flows goes."""
    source = CLIENTS["outside"][FAMILIES.index(family)]

    def send() -> None:
        kind = socket.AF_INET if family == "IPv4" else socket.AF_INET6
        for port in range(10000, 10000 + draws):
            with socket.socket(kind, socket.SOCK_DGRAM) as client:
                client.bind((source, port))
                client.sendto(b"hello", (VIP[family], 80))

    world.forget()
    world.inside("outside", send)
    return Counter(flow.answers_from[0] for flow in udp_flows(family) if flow.destination == (VIP[family], 80))


def assert_uniform(world: World, family: Family, start: int, count: int) -> None:
    """Every draw has an endpoint, and chi-square is what chance allows."""
    draws = DRAWS if count > 1 else ENOUGH_FOR_ONE
    found = drawn(world, family, draws)
    assert found.total() == draws
    first = int(ip_address(PODS[family])) + start
    groups = min(count, GROUPS)
    observed = Counter((int(ip_address(address)) - first) * groups // count for address in found.elements())
    assert set(observed) <= set(range(groups))
    sizes = Counter(number * groups // count for number in range(count))
    wanted = {group: draws * size / count for group, size in sizes.items()}
    chi_square = sum((observed[group] - want) ** 2 / want for group, want in wanted.items())
    freedom = groups - 1
    limit = freedom * (1 - 2 / (9 * freedom) + DEVIATION * math.sqrt(2 / (9 * freedom))) ** 3 if freedom else 0.0
    assert chi_square <= limit, (chi_square, limit, sorted(observed.items()))


@pytest.mark.parametrize("most", [100, pytest.param(70_000, marks=(pytest.mark.release, of_nftables))])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_endpoint_is_as_likely(many: World, loop: asyncio.AbstractEventLoop, family: Family, most: int) -> None:
    known = state(service(1, protocols=("UDP",), externalIPs=[], ingress=[]))
    planner, mode = Planner(known, NODE_VIEW, CONFIG_OF_MODE), DATAPLANE.proxier()
    loop.run_until_complete(mode.sync_full(planner.plan))
    for start, count in [(start, count) for count in SIZES for start in (0, 1) if count <= most]:
        wanted = {each.key: each for each in slices(family, start, count)}
        changes = [known.delete(EndpointSlice, key) for key in list(known.slices) if key not in wanted]
        changes += [known.upsert(each) for each in wanted.values()]
        differences = planner.changed([change for change in changes if change])
        loop.run_until_complete(mode.sync_partial(planner.plan, differences))
        assert_uniform(many, family, start, count)
        loop.run_until_complete(mode.sweep())


def test_it_is_so_after_a_fresh_start_too(many: World, loop: asyncio.AbstractEventLoop) -> None:
    known = state(service(1, protocols=("UDP",)), slices("IPv4", 0, 100))
    loop.run_until_complete(DATAPLANE.proxier().sync_full(plan(known, NODE_VIEW, CONFIG_OF_MODE)))
    assert_uniform(many, "IPv4", 0, 100)
