"""Random Services and endpoints that change: what the trace says of a packet is what the kernel does with it.

The kernel carries the rules of all rounds before. After the last one it holds what a fresh start would put there.
"""

import asyncio
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network
from typing import Final, TypeAlias

import msgspec
from dataplanes import DATAPLANE, EXPLORES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from patience import AGAIN
from small_cluster import CONFIG, LOCAL_PODS, NODE_VIEW
from world import NODE, OUTSIDE, PODS, Answer, World

from kdns.cluster.objects import EndpointSlice, Service
from kdns.cluster.state import State
from kdns.net import FAMILIES, VERSION, Family
from kdns.proxy.nftables.mode import NFTABLES
from kdns.proxy.plan.config import LocalPods, ProxyConfig
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import Planner, plan
from kdns.proxy.trace.trace import Fate, Packet, trace

Write: TypeAlias = Service | EndpointSlice | tuple[type[Service | EndpointSlice], tuple[str, str]]
"""An object as it is from now on, or one that is gone."""

VIPS: Final = {"IPv4": ("10.96.0.1", "10.96.0.2"), "IPv6": ("fd00:96::1", "fd00:96::2")}
UNUSED: Final = {"IPv4": "10.96.0.77", "IPv6": "fd00:96::77"}
OTHERS: Final = {
    "IPv4": ("198.51.100.1", "198.51.100.9", "192.0.2.9"),
    "IPv6": ("2001:db8:5::1", "2001:db8:5::9", "2001:db8:2::9"),
}
"""External addresses and those of load balancers; the last is the node's."""
RANGES: Final = {
    "IPv4": ("203.0.113.0/24", "10.1.0.2/32", "192.0.2.0/30"),
    "IPv6": ("2001:db8:2::101/128", "fd00:1::/64", "2001:db8:2::/126"),
}
SLICES: Final = ("a", "b")
POLICIES: Final = ("Cluster", "Local")
DETECTORS: Final = (None, LOCAL_PODS, LocalPods(bridge="pods"), LocalPods(interface_prefix="po"))


@dataclass(frozen=True, slots=True)
class Story:
    """What the dataplane is told, and what is written round by round; whether it tidies up after each."""

    family: Family
    config: ProxyConfig
    rounds: tuple[tuple[tuple[Write, ...], bool], ...]


@st.composite
def services(draw: st.DrawFn, family: Family, number: int) -> Service:
    kind = draw(st.sampled_from(("ClusterIP", "NodePort", "LoadBalancer")))
    named = draw(st.lists(st.sampled_from(("p TCP 80", "q UDP 80", "r TCP 443")), min_size=1, max_size=3, unique=True))
    ports = [each.split() for each in named]
    some = st.lists(st.sampled_from(OTHERS[family]), max_size=2, unique=True)
    modes = st.sampled_from((None, "VIP", "Proxy"))
    told = {
        "metadata": {"name": f"s{number}", "namespace": "shop"},
        "spec": {
            "type": kind,
            "clusterIP": VIPS[family][number],
            "ports": [
                {
                    "name": name,
                    "protocol": protocol,
                    "port": int(port),
                    "nodePort": 30000 + 10 * number + int(port) // 100 if kind != "ClusterIP" else 0,
                }
                for name, protocol, port in ports
            ],
            "externalIPs": draw(some),
            "loadBalancerSourceRanges": draw(st.lists(st.sampled_from(RANGES[family]), max_size=2, unique=True)),
            "externalTrafficPolicy": draw(st.sampled_from(POLICIES)),
            "internalTrafficPolicy": draw(st.sampled_from(POLICIES)),
            "sessionAffinity": draw(st.sampled_from(("None", "None", "ClientIP"))),
        },
    }
    if kind == "LoadBalancer":
        told["status"] = {"loadBalancer": {"ingress": [{"ip": each, "ipMode": draw(modes)} for each in draw(some)]}}
    return msgspec.convert(told, Service)


@st.composite
def slices(draw: st.DrawFn, family: Family, number: int) -> EndpointSlice:
    spaces = (*PODS.items(), ("node", (NODE[0], NODE[2])))
    own = [(each, space) for space, addresses in spaces for each in addresses if of(each, family)]
    flags = st.sampled_from((None, True, True, False))
    zones = st.sampled_from(((), (), ("z1",), ("z2",)))
    with_hints = draw(st.booleans())
    rows = [
        {
            "addresses": [address],
            "conditions": {"ready": draw(flags), "serving": draw(flags), "terminating": draw(flags)},
            "nodeName": "there" if space == "remote" else "here",
            "hints": {"forZones": [{"name": zone} for zone in draw(zones)]} if with_hints else None,
        }
        for address, space in draw(st.lists(st.sampled_from(own), max_size=4, unique=True))
    ]
    told = {
        "metadata": {
            "name": f"s{number}-{draw(st.sampled_from(SLICES))}",
            "namespace": "shop",
            "labels": {"kubernetes.io/service-name": f"s{number}"},
        },
        "addressType": family,
        "endpoints": rows,
        "ports": [
            {"name": name, "protocol": protocol, "port": draw(st.sampled_from((8080, 8443)))}
            for name, protocol in (("p", "TCP"), ("q", "UDP"), ("r", "TCP"))
        ],
    }
    return msgspec.convert(told, EndpointSlice)


@st.composite
def stories(draw: st.DrawFn) -> Story:
    family = draw(st.sampled_from(FAMILIES))
    networks = tuple(ip_network(each) for each in ("192.0.2.8/29", "2001:db8:2::8/125"))
    config = ProxyConfig(
        NFTABLES,
        masquerade_all=draw(st.booleans()),
        local_pods=draw(
            st.sampled_from((None, LOCAL_PODS, LocalPods(bridge="pods"), LocalPods(interface_prefix="po")))
        ),
        node_port_addresses=draw(st.sampled_from(((), ("primary",), networks))),
        service_cidrs=CONFIG.service_cidrs,
    )
    numbers = st.integers(0, 1)
    written = st.one_of(
        numbers.flatmap(lambda number: services(family, number)),
        numbers.flatmap(lambda number: slices(family, number)),
        numbers.flatmap(lambda number: slices(family, number)),
        numbers.map(lambda number: (Service, ("shop", f"s{number}"))),
        st.tuples(numbers, st.sampled_from(SLICES)).map(
            lambda pair: (EndpointSlice, ("shop", f"s{pair[0]}-{pair[1]}"))
        ),
    )
    first = tuple(each for number in (0, 1) for each in (draw(services(family, number)), draw(slices(family, number))))
    later = draw(st.lists(st.tuples(st.lists(written, min_size=1, max_size=3).map(tuple), st.booleans()), max_size=3))
    return Story(family, config, ((first, False), *later))


def of(address: str, family: Family) -> bool:
    return ip_address(address).version == VERSION[family]


def packets(family: Family) -> list[tuple[str, str, str, int]]:
    clients = (*PODS["pod1"], *PODS["pod2"], *OUTSIDE, NODE[0], NODE[2])
    targets = [(vip, port) for vip in (*VIPS[family], *OTHERS[family]) for port in (80, 443)]
    targets += [(VIPS[family][0], 81), (UNUSED[family], 80)]
    targets += [(node, port) for node in NODE if of(node, family) for port in (30000, 30004, 30010)]
    return [
        (client, target, protocol, port)
        for client in clients
        if of(client, family)
        for target, port in targets
        for protocol in ("TCP", "UDP")
    ]


INTERFACES: Final = {"pod1": "pod1", "pod2": "pods"}


def arrives(client: str) -> str:
    return next((INTERFACES[space] for space in INTERFACES if client in PODS[space]), "")


def disagreement(made: Plan, packet: tuple[str, str, str, int], answer: Answer) -> str:
    source, destination, protocol, port = packet
    told = trace(made, Packet(ip_address(source), ip_address(destination), protocol, port, arrives(source)))
    match told.fate:
        case Fate.FORWARDED:
            chosen = [
                endpoint
                for endpoint in told.endpoints
                if (endpoint.address, endpoint.port) == (answer.backend, answer.port)
            ]
            if not chosen:
                return f"told one of {told.endpoints}, got {answer}"
            right = answer.fits(source, masqueraded=told.sees_node(chosen[0]))
            return "" if right else f"told {told}, got {answer}"
        case Fate.REJECTED:
            wanted = {"rejected", "dropped"} if source in NODE else {"rejected"}  # UDP to oneself ends in EPERM
            return "" if answer.error in wanted else f"told {told}, got {answer}"
        case Fate.DROPPED:
            return "" if answer.error == "dropped" else f"told {told}, got {answer}"
        case _:
            return "" if answer.error else f"told {told}, got {answer}"


@settings(
    max_examples=DATAPLANE.examples,
    derandomize=not EXPLORES,  # on other kernels, where tests/conftest.py is not read, too
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(stories())
def test_trace_and_kernel_agree(world: World, loop: asyncio.AbstractEventLoop, story: Story) -> None:
    state, mode, config = State(), DATAPLANE.proxier(), replace(story.config, mode=DATAPLANE.mode)
    planner = Planner(state, NODE_VIEW, config)

    async def follow() -> None:
        await mode.sync_full(planner.plan)
        for writes, is_quiet in story.rounds:
            made = [state.delete(*write) if isinstance(write, tuple) else state.upsert(write) for write in writes]
            differences = planner.changed([change for change in made if change])
            await mode.sync_partial(planner.plan, differences)
            if is_quiet:
                await mode.sweep()

    async def ask() -> list[str]:
        gate = asyncio.Semaphore(100)

        async def wrong(packet: tuple[str, str, str, int]) -> str:
            async with gate:
                for attempt in AGAIN:  # TCP in IPv6 may heed a refusal of its second packet only, a second later
                    answer = await world.probe(*packet, patience_s=3.0 if attempt else None)
                    what = disagreement(planner.plan, packet, answer)
                    if not what or answer.error != "dropped":
                        break
                return what and f"{packet}: {what}"

        return [what for what in await asyncio.gather(*map(wrong, packets(story.family))) if what]

    loop.run_until_complete(follow())
    world.forget()
    assert not loop.run_until_complete(ask())
    loop.run_until_complete(mode.sweep())
    held = DATAPLANE.rules(story.family)
    loop.run_until_complete(DATAPLANE.proxier().sync_full(plan(state, NODE_VIEW, config)))
    assert held == DATAPLANE.rules(story.family)
