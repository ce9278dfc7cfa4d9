"""Mode userspace with real packets: what the trace says of a packet is what relays and the rules before them do."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from dataplanes import DATAPLANE, all_rules, of_nftables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packet_probe import PATIENCE_S, disagreement
from packet_tables import CASES
from patience import AGAIN
from small_cluster import LOCAL_PODS, NODE_VIEW, Case, Sent, sent
from test_agreement import Story, packets, stories
from test_agreement import disagreement as differs
from world import NODE, OUTSIDE, PODS, Answer, World

from kdns.cluster.objects import (
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
from kdns.net import FAMILIES
from kdns.netlink.io.conntrack import udp_flows
from kdns.proxy.plan.config import LocalPods, NodeView, ProxyConfig
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import Planner
from kdns.proxy.sync.io.conntrack import ConntrackReconciler
from kdns.proxy.sync.io.runner import SyncRunner
from kdns.proxy.sync.schedule import SyncTiming
from kdns.proxy.userspace.io.proxier import UserspaceProxier

POD1, POD2, REMOTE = PODS["pod1"], PODS["pod2"], PODS["remote"]
CONFIG = ProxyConfig(DATAPLANE.relays, local_pods=LOCAL_PODS, node_port_addresses=())


@asynccontextmanager
async def mode(**options: Any) -> AsyncIterator[UserspaceProxier]:
    made = UserspaceProxier(DATAPLANE.capture(), draw=lambda count: 0 * count, **options)
    try:
        yield made
    finally:
        await made.close()


async def probed(
    world: World, source: str, to: str, protocol: str, port: int, patience_s: float | None = None
) -> Answer:
    """The answer; "closed" where the connection ended without a word."""
    try:
        return await world.probe(source, to, protocol, port, patience_s)
    except ValueError:
        return Answer(error="closed")


async def surely(world: World, source: str, to: str, protocol: str, port: int) -> Answer:
    """The answer; asked again where it seems to be lost, since the machine may be slow."""
    for attempt in AGAIN:
        answer = await probed(world, source, to, protocol, port, PATIENCE_S if attempt else None)
        if answer.error != "dropped":
            break
    return answer


async def wrong(
    world: World, gate: asyncio.Semaphore, made: Plan, source: str, to: str, protocol: str, port: int
) -> str:
    """What becomes of a packet otherwise than the trace says; nothing where it is as told."""
    packet = source, to, protocol, port
    async with gate:
        for attempt in AGAIN:
            answer = await probed(world, *packet, PATIENCE_S if attempt else None)
            what = differs(made, packet, answer)
            if not what or answer.error != "dropped":
                break
    return what and f"{packet}: {what}"


@pytest.mark.parametrize("of", CASES if DATAPLANE.share == 1 else CASES[:1], ids=lambda of: of.name)
def test_packets(world: World, loop: asyncio.AbstractEventLoop, of: Case) -> None:
    """The tables of mode nftables, but that every endpoint sees the node."""
    of = of.in_mode(DATAPLANE.relays)
    asked = [sent(row, family, protocol) for family in FAMILIES for protocol in ("TCP", "UDP") for row in of.rows]
    made = of.plan

    async def check() -> list[str]:
        async with mode() as relays:
            await relays.sync_full(made)
            world.forget()
            gate = asyncio.Semaphore(50)
            return [what for each in await asyncio.gather(*(otherwise(gate, each) for each in asked)) for what in each]

    async def otherwise(gate: asyncio.Semaphore, packet: Sent) -> list[str]:
        to = str(packet.destination), packet.protocol, packet.port
        async with gate:
            for attempt in AGAIN:
                answer = await probed(world, str(packet.source), *to, PATIENCE_S if attempt else None)
                if packet.ends:
                    is_right = answer.backend in packet.ends and answer.port == 8080 and answer.is_masqueraded
                else:
                    is_right = not disagreement(packet, answer)
                if is_right or answer.error != "dropped":
                    break
        return [] if is_right else [f"{packet}: wanted {packet.row.wanted}, got {answer}"]

    assert not loop.run_until_complete(check())


@settings(
    max_examples=DATAPLANE.examples,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(stories(), st.sampled_from((NODE_VIEW, replace(NODE_VIEW, primary=()))))
def test_trace_and_relays_agree(world: World, loop: asyncio.AbstractEventLoop, story: Story, node: NodeView) -> None:
    """With relays at the node's primary address, and without one, at another one of the node."""
    state = State()
    planner = Planner(state, node, replace(story.config, mode=DATAPLANE.relays))

    async def check() -> list[str]:
        async with mode() as relays:
            await relays.sync_full(planner.plan)
            for writes, is_quiet in story.rounds:
                made = [state.delete(*write) if isinstance(write, tuple) else state.upsert(write) for write in writes]
                differences = planner.changed([change for change in made if change])
                await relays.sync_partial(planner.plan, differences)
                if is_quiet:
                    await relays.sweep()
            world.forget()
            assert not relays.missing
            gate = asyncio.Semaphore(100)
            asked = (wrong(world, gate, planner.plan, *packet) for packet in packets(story.family))
            return [what for what in await asyncio.gather(*asked) if what]

    assert not loop.run_until_complete(check())


def a_service(protocol: str = "TCP", **spec: Any) -> Service:
    status = ServiceStatus(LoadBalancerStatus((Ingress("198.51.100.9"), Ingress("2001:db8:5::9"))))
    made = {"type": "LoadBalancer", "cluster_ip": "10.96.0.1", "cluster_ips": ("10.96.0.1", "fd00:96::1")}
    ports = (ServicePort(80, "p", protocol, 30080),)
    return Service(ServiceMeta("web", "shop"), ServiceSpec(ports=ports, **made | spec), status)


def its_endpoints(*addresses: str, protocol: str = "TCP") -> EndpointSlice:
    family = "IPv6" if ":" in addresses[0] else "IPv4"
    return EndpointSlice(
        SliceMeta(f"web-{family}", "shop", SliceLabels("web")),
        family,
        tuple(Endpoint((address,)) for address in addresses),
        (EndpointPort("p", 8080, protocol),),
    )


def planner(*objects: Service | EndpointSlice, config: ProxyConfig = CONFIG) -> Planner:
    state = State()
    for obj in objects:
        state.upsert(obj)
    return Planner(state, NODE_VIEW, config)


def run(loop: asyncio.AbstractEventLoop, what: Coroutine[Any, Any, None]) -> None:
    loop.run_until_complete(asyncio.wait_for(what, 300))


@pytest.mark.parametrize(
    "pods", [None, LOCAL_PODS, LocalPods(interface_prefix="pod"), LocalPods(bridge="pods")], ids=str
)
@pytest.mark.parametrize("version", [4, 6])
def test_this_nodes_pods_may_leave_it(
    world: World, loop: asyncio.AbstractEventLoop, pods: LocalPods | None, version: int
) -> None:
    """With policy Local and endpoints elsewhere, however Pods are known, behind a bridge too."""

    async def check() -> None:
        spec: dict[str, Any] = {"external_traffic_policy": "Local", "external_ips": ("198.51.100.1", "2001:db8:5::1")}
        slices = its_endpoints(REMOTE[0]), its_endpoints(REMOTE[2])
        made = planner(a_service(**spec), *slices, config=replace(CONFIG, local_pods=pods)).plan
        async with mode() as relays:
            await relays.sync_full(made)
            of_family = [each for each in (*POD1, *POD2, *OUTSIDE, NODE[0], NODE[2]) if (":" in each) == (version == 6)]
            to = (
                ("198.51.100.1", "198.51.100.9", NODE[0])
                if version == 4
                else ("2001:db8:5::1", "2001:db8:5::9", NODE[2])
            )
            asked = [(each, front, "TCP", 30080 if front in NODE else 80) for each in of_family for front in to]
            gate = asyncio.Semaphore(50)
            found = await asyncio.gather(*(wrong(world, gate, made, *packet) for packet in asked))
        assert not any(found), found

    run(loop, check())


@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
@pytest.mark.parametrize("loopback", ["127.0.0.1", "::1"])
def test_node_ports_are_at_loopback_too(
    world: World, loop: asyncio.AbstractEventLoop, protocol: str, loopback: str
) -> None:
    async def check() -> None:
        made = planner(a_service(protocol), *(its_endpoints(each, protocol=protocol) for each in POD1))
        async with mode() as relays:
            await relays.sync_full(made.plan)
            answer = await surely(world, loopback, loopback, protocol, 30080)
            assert answer.backend == POD1[":" in loopback]

    run(loop, check())


@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
def test_relays_are_for_nobody_who_was_not_captured(
    world: World, loop: asyncio.AbstractEventLoop, protocol: str
) -> None:
    async def check() -> None:
        made = planner(a_service(protocol), *(its_endpoints(each, protocol=protocol) for each in POD1))
        async with mode(ports=range(41000, 41010)) as relays:
            await relays.sync_full(made.plan)
            assert len(relays.listening) == 6
            for source, own in (("192.0.2.100", NODE[0]), (NODE[0], NODE[0]), (POD1[0], NODE[0]), (POD1[1], NODE[2])):
                answers = [await world.probe(source, own, protocol, port) for port in range(41000, 41006)]
                assert {answer.error for answer in answers} <= {"rejected", "dropped"}, (source, answers)
            assert (await surely(world, POD1[0], "10.96.0.1", protocol, 80)).backend == POD1[0]

    run(loop, check())


@of_nftables
@pytest.mark.parametrize("family", [0, 1])
def test_changes_are_followed_and_nothing_is_left(world: World, loop: asyncio.AbstractEventLoop, family: int) -> None:
    vip = ("10.96.0.1", "fd00:96::1")[family]

    async def check() -> None:
        made = planner(a_service(), its_endpoints(POD1[family]))
        state = made.state
        async with mode() as relays:
            await relays.sync_full(made.plan)

            async def after(change: Any, ask: Callable[..., Awaitable[Answer]] = surely) -> set[str]:
                differences = made.changed([change])
                await relays.sync_partial(made.plan, differences)
                await relays.sweep()
                answers = [await ask(world, OUTSIDE[2 * family], vip, "TCP", 80) for _ in range(4)]
                return {answer.backend or answer.error for answer in answers}

            both = its_endpoints(POD1[family], POD2[family])
            assert await after(state.upsert(both)) == {POD1[family], POD2[family]}
            assert await after(state.upsert(replace_ports(both, 8443))) == {POD1[family], POD2[family]}
            assert await after(state.delete(EndpointSlice, both.key)) == {"rejected"}
            assert await after(state.upsert(both)) == {POD1[family], POD2[family]}
            assert await after(state.upsert(a_service(session_affinity="ClientIP"))) in ({POD1[family]}, {POD2[family]})
            assert await after(state.upsert(its_endpoints(REMOTE[2 * family]))) == {REMOTE[2 * family]}
            assert await after(state.delete(Service, ("shop", "web")), probed) == {"dropped"}
            assert not relays.listening
            text = all_rules()
            assert "10.96.0.1" not in text
            assert "fd00:96::1" not in text
        assert "kdns" not in all_rules()
        assert "KUBE-" not in all_rules()

    run(loop, check())


def replace_ports(each: EndpointSlice, port: int) -> EndpointSlice:
    return EndpointSlice(each.metadata, each.address_type, each.endpoints, (EndpointPort("p", port, "TCP"),))


@of_nftables
def test_a_client_keeps_its_endpoint(world: World, loop: asyncio.AbstractEventLoop) -> None:
    async def check() -> None:
        spec: dict[str, Any] = {"session_affinity": "ClientIP", "external_ips": ("198.51.100.1",)}
        made = planner(a_service(**spec), its_endpoints(POD1[0], POD2[0], *REMOTE[:2]))
        async with mode() as relays:
            await relays.sync_full(made.plan)
            first = {}
            for source in (POD1[0], POD2[0], OUTSIDE[0], OUTSIDE[1], NODE[0]):
                ways = [("10.96.0.1", 80), ("198.51.100.1", 80), ("198.51.100.9", 80), (NODE[0], 30080)] * 2
                answers = [await surely(world, source, to, "TCP", port) for to, port in ways]
                said = {answer.backend for answer in answers}
                assert len(said) == 1, (source, answers)
                first[source] = said.pop()
            assert set(first.values()) == {POD1[0], POD2[0], *REMOTE[:2]}

    run(loop, check())


@of_nftables
@pytest.mark.parametrize("family", [0, 1])
@pytest.mark.parametrize("node", [NODE_VIEW, replace(NODE_VIEW, primary=())], ids=["primary address", "any address"])
def test_a_udp_client_that_keeps_its_socket_outlives_its_relay(
    world: World, loop: asyncio.AbstractEventLoop, family: int, node: NodeView
) -> None:
    """After a time without endpoints and after a restart it gets an answer, though each of its packets keeps its flow.

    A client whose relay goes on keeps its flow.
    """
    client = world.socket("outside", OUTSIDE[2 * family], socket.SOCK_DGRAM)
    client.connect((("10.96.0.1", "fd00:96::1")[family], 80))

    async def said() -> str:
        try:
            async with asyncio.timeout(0.3):
                await loop.sock_sendall(client, b"hello")
                return (await loop.sock_recv(client, 200)).decode().split()[0]
        except (TimeoutError, OSError):
            return "nobody"

    async def until_said(wanted: str) -> None:
        async with asyncio.timeout(60):
            while await said() != wanted:  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.01)

    @asynccontextmanager
    async def dataplane(state: State) -> AsyncIterator[SyncRunner]:
        relays = UserspaceProxier(DATAPLANE.capture(), draw=lambda count: 0 * count)
        flows = ConntrackReconciler(relays.udp_targets)
        runner = SyncRunner(state, relays, lambda: (node, CONFIG), SyncTiming(0.0, 1.0))
        runner.subscribers.append(flows.synced)
        tasks = [asyncio.create_task(runner.run()), asyncio.create_task(flows.run())]
        try:
            yield runner
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await relays.close()

    async def check() -> None:
        one, two = its_endpoints(POD1[family], protocol="UDP"), its_endpoints(POD2[family], protocol="UDP")
        state = planner(a_service("UDP"), one).state
        state.synced |= {Service, EndpointSlice}
        async with dataplane(state) as runner:
            await until_said(POD1[family])
            before = udp_flows(FAMILIES[family])
            runner.changed([change for change in (state.upsert(two),) if change])
            await until_said(POD2[family])
            assert set(before) <= set(udp_flows(FAMILIES[family]))
            runner.changed([change for change in (state.delete(EndpointSlice, two.key),) if change])
            await until_said("nobody")
            runner.changed([change for change in (state.upsert(one),) if change])
            await until_said(POD1[family])
        async with dataplane(state):
            await until_said(POD1[family])

    world.forget()
    run(loop, check())
    client.close()
