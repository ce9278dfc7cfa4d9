"""Random Services and endpoints: what the trace says of a packet is what the kernel does with it."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address, ip_network
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from world import NODE, OUTSIDE, PODS, Answer, World

from kdns.aio.nftablesmode import NftablesMode
from kdns.cluster.objects import (
    Conditions,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Ingress,
    LoadBalancerStatus,
    Service,
    ServiceMeta,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
    SliceLabels,
    SliceMeta,
)
from kdns.cluster.state import State
from kdns.proxy.config import LocalPods, NodeView, ProxyConfig
from kdns.proxy.plan import Plan
from kdns.proxy.planner import plan
from kdns.proxy.trace import Fate, Packet, trace

FAMILIES: dict[int, dict[str, Any]] = {
    4: {
        "type": "IPv4",
        "vips": ("10.96.0.1", "10.96.0.2"),
        "external": ("198.51.100.1",),
        "balancer": "198.51.100.9",
        "unused": "10.96.0.77",
        "ranges": ("203.0.113.0/24", "10.1.0.2/32"),
    },
    6: {
        "type": "IPv6",
        "vips": ("fd00:96::1", "fd00:96::2"),
        "external": ("2001:db8:5::1",),
        "balancer": "2001:db8:5::9",
        "unused": "fd00:96::77",
        "ranges": ("2001:db8:2::100/128",),
    },
}
LOCAL = LocalPods((ip_network("10.1.0.0/24"), ip_network("fd00:1::/64")))
SERVICE_CIDRS = (ip_network("10.96.0.0/24"), ip_network("fd00:96::/112"))
NODE_VIEW = NodeView("here", "z1", (ip_address(NODE[0]), ip_address(NODE[2])), tuple(map(ip_address, NODE)))


def of(addresses: tuple[str, ...], version: int) -> list[str]:
    return [each for each in addresses if ip_address(each).version == version]


@st.composite
def services(draw: st.DrawFn, version: int, number: int) -> tuple[Service, EndpointSlice]:
    told = FAMILIES[version]
    kind = draw(st.sampled_from(("ClusterIP", "NodePort", "LoadBalancer")))
    ports = [ServicePort(80, "p", draw(st.sampled_from(("TCP", "UDP"))), 30080 + number if kind != "ClusterIP" else 0)]
    spec = ServiceSpec(
        type=kind,
        cluster_ip=told["vips"][number],
        ports=tuple(ports),
        external_ips=draw(st.sampled_from(((), told["external"]))),
        load_balancer_source_ranges=draw(st.sampled_from(((), told["ranges"]))),
        external_traffic_policy=draw(st.sampled_from(("Cluster", "Local"))),
        internal_traffic_policy=draw(st.sampled_from(("Cluster", "Local"))),
        session_affinity=draw(st.sampled_from(("None", "ClientIP"))),
    )
    status = ServiceStatus(LoadBalancerStatus((Ingress(told["balancer"]),))) if kind == "LoadBalancer" else None
    pods = [(each, space) for space, addresses in PODS.items() for each in of(addresses, version)]
    flags = st.sampled_from((None, True, False))
    endpoints = tuple(
        Endpoint(
            (address,),
            Conditions(draw(flags), draw(flags), draw(flags)),
            node_name="there" if space == "remote" else "here",
        )
        for address, space in draw(st.lists(st.sampled_from(pods), max_size=4, unique=True))
    )
    port = EndpointPort("p", draw(st.sampled_from((8080, 8443))), ports[0].protocol)
    meta = SliceMeta(f"s{number}", "shop", SliceLabels(f"s{number}"))
    return Service(ServiceMeta(f"s{number}", "shop"), spec, status), EndpointSlice(
        meta, str(told["type"]), endpoints, (port,)
    )


@st.composite
def states(draw: st.DrawFn) -> tuple[State, ProxyConfig, int]:
    version = draw(st.sampled_from((4, 6)))
    state = State()
    for number in range(draw(st.integers(1, 2))):
        for each in draw(services(version, number)):
            state.upsert(each)
    config = ProxyConfig(
        masquerade_all=draw(st.booleans()),
        local_pods=draw(st.sampled_from((None, LOCAL))),
        node_port_addresses=draw(st.sampled_from(((), ("primary",)))),
        service_cidrs=SERVICE_CIDRS,
    )
    return state, config, version


def packets(version: int) -> list[tuple[str, str, str, int]]:
    told = FAMILIES[version]
    sources = of((*PODS["pod1"], *PODS["pod2"], *OUTSIDE, NODE[0], NODE[2]), version)
    targets = [(vip, port) for vip in (*told["vips"], *told["external"], told["balancer"]) for port in (80,)]
    targets += [(told["vips"][0], 81), (told["unused"], 80)]
    targets += [(address, port) for address in of(NODE, version) for port in (30080, 30081)]
    return [
        (source, str(to), protocol, port) for source in sources for to, port in targets for protocol in ("TCP", "UDP")
    ]


def agrees(made: Plan, packet: tuple[str, str, str, int], answer: Answer) -> str:
    """What is wrong, "" if nothing is."""
    source, destination, protocol, port = packet
    told = trace(made, Packet(ip_address(source), ip_address(destination), protocol, port))
    match told.fate:
        case Fate.FORWARDED:
            chosen = [each for each in told.backends if (each.address, each.port) == (answer.backend, answer.port)]
            if not chosen:
                return f"told one of {told.backends}, got {answer}"
            told_so = told.masquerade or chosen[0] in told.hairpins
            return "" if answer.fits(source, masqueraded=told_so) else f"told {told}, got {answer}"
        case Fate.REJECTED:
            wanted = {"rejected", "dropped"} if source in NODE else {"rejected"}  # UDP to oneself ends in EPERM
            return "" if answer.error in wanted else f"told {told}, got {answer}"
        case Fate.DROPPED:
            return "" if answer.error == "dropped" else f"told {told}, got {answer}"
        case _:
            return "" if answer.error else f"told {told}, got {answer}"


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(states())
def test_trace_and_kernel_agree(
    world: World, loop: asyncio.AbstractEventLoop, given_state: tuple[State, ProxyConfig, int]
) -> None:
    state, config, version = given_state
    made = plan(state, NODE_VIEW, config)

    async def check() -> list[str]:
        await NftablesMode().establish(made)
        world.forget()
        asked = packets(version)
        answers = await asyncio.gather(*(world.probe(*packet) for packet in asked))
        wrong = ((packet, agrees(made, packet, answer)) for packet, answer in zip(asked, answers, strict=True))
        return [f"{packet}: {what}" for packet, what in wrong if what]

    assert not loop.run_until_complete(check())
