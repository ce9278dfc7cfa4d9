"""The proxier of mode kernelspace on a simulated service: restarts, others' objects, failures and the watch."""

import asyncio
import json
from collections.abc import Callable

import pytest
from fake_hcn import PORT_EXISTS, FakeHcn
from hcn_node import HcnNode, functions
from msgspec.structs import replace
from small_cluster import ENDPOINTS, NODE_VIEW, endpoints, service

from kdns.cluster.objects import EndpointSlice, Service
from kdns.errors import ApplyError
from kdns.proxy.kernelspace.io import start as starting
from kdns.proxy.kernelspace.io.clean_up import remove_hcn_objects
from kdns.proxy.kernelspace.io.compute_network import ComputeNetwork
from kdns.proxy.kernelspace.io.libraries import host_mac, libraries
from kdns.proxy.kernelspace.io.proxier import remove_objects
from kdns.proxy.kernelspace.mode import KERNELSPACE
from kdns.proxy.kernelspace.schema import LoadBalancerKey, endpoint_id, load_balancer_id
from kdns.proxy.kernelspace.settings import KernelspaceSettings, WindowsNetwork
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Footprint
from kdns.proxy.sync.io.runner import SyncResult, SyncRunner
from kdns.proxy.sync.schedule import SyncTiming
from kdns.proxy.takeover.io.modes import runtime
from kdns.runtime.metrics import MetricFamilies

VIP = LoadBalancerKey("IPv4", "10.96.0.1", 6, 80)
WEB = service(1, endpoints(1, "p1", "r1"), protocols=("TCP",))


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - another task changes it
            await asyncio.sleep(0.002)


async def test_a_restart_finds_its_own_objects() -> None:
    node = HcnNode(WEB)
    assert len(await node.sync()) == 10
    before = json.dumps([node.service.endpoints, node.service.load_balancers])
    node.start()
    assert await node.sync() == []
    assert json.dumps([node.service.endpoints, node.service.load_balancers]) == before


async def test_what_went_while_no_process_was_at_work_goes_at_the_start() -> None:
    node = HcnNode(WEB, service(2, endpoints(2, "r2"), protocols=("TCP",)))
    await node.sync()
    node = HcnNode(service(1, endpoints(1, "p1"), protocols=("TCP",)), service=node.service, pods=())
    found = functions(await node.sync())
    assert found == [*["ModifyLoadBalancer"] * 8, *["DeleteLoadBalancer"] * 8, *["DeleteEndpoint"] * 4]
    assert len(node.service.load_balancers) == 8


async def test_load_balancers_of_others_are_replaced_one_by_one() -> None:
    """kube-proxy's have other ids. A destination has no load balancer only between two requests."""
    node = HcnNode(WEB)
    await node.sync()
    of_kube_proxy = {}
    for number, document in enumerate(node.service.load_balancers.values()):
        made = f"6a0d3e8c-0000-4000-8000-{number:012}"
        of_kube_proxy[made] = {**document, "ID": made.upper()}
    node.service.load_balancers = of_kube_proxy
    node.start()
    assert functions(await node.sync()) == ["DeleteLoadBalancer", "CreateLoadBalancer"] * 8
    assert load_balancer_id(VIP) in node.service.load_balancers


async def test_an_endpoint_of_another_program_is_used_and_stays() -> None:
    node = HcnNode(WEB)
    other = node.service.add_pod(*ENDPOINTS["r1"])
    await node.sync()
    assert other in node.service.load_balancers[load_balancer_id(VIP)]["HostComputeEndpoints"]
    await node.delete(Service, "s1")
    assert set(node.service.endpoints) >= {other}
    assert len(node.service.endpoints) == 3


async def test_a_pod_of_this_node_that_is_new_is_read_before_it_is_used() -> None:
    node = HcnNode(WEB, pods=("p1",))
    await node.sync()
    made = node.service.add_pod(*ENDPOINTS["p2"])
    await node.change(*endpoints(1, "p1", "p2", "r1"))
    assert made in node.service.load_balancers[load_balancer_id(VIP)]["HostComputeEndpoints"]


async def test_an_endpoint_of_this_node_that_hcn_does_not_have_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    node = HcnNode(WEB, pods=(), poll_s=0.01)
    changes: list[str] = []
    await node.sync()
    assert node.service.load_balancers[load_balancer_id(VIP)]["HostComputeEndpoints"] == [
        endpoint_id("Pods", ENDPOINTS["r1"][0])
    ]
    assert capsys.readouterr().out.count("endpoints of this node are left out") == 1
    with node.proxier.watch(changes.append):
        made = node.service.add_pod(*ENDPOINTS["p1"])
        await until(lambda: changes)
    assert changes[0] == f"unknown: endpoint {made} of this node was created"
    await node.sync()
    assert made in node.service.load_balancers[load_balancer_id(VIP)]["HostComputeEndpoints"]


@pytest.mark.parametrize("kind", ["load balancer", "endpoint"])
async def test_the_watch_notices_what_is_gone(kind: str) -> None:
    node = HcnNode(WEB, poll_s=0.01)
    await node.sync()
    changes: list[str] = []
    with node.proxier.watch(changes.append):
        await asyncio.sleep(0.05)
        assert changes == []
        name = load_balancer_id(VIP)
        if kind == "load balancer":
            del node.service.load_balancers[name]
        else:
            name = endpoint_id("Pods", ENDPOINTS["r1"][0])
            del node.service.endpoints[name]
        await until(lambda: changes)
    assert changes[0] == f"unknown: {kind} {name} is gone"
    await node.sync()
    assert len(node.service.load_balancers) == 8


def sabotaged(vip: str) -> Callable[[str, str], int]:
    """The destination of this VIP is refused, as where a program listens there."""
    return lambda function, settings: (
        PORT_EXISTS if function == "HcnCreateLoadBalancer" and f'["{vip}"]' in settings else 0
    )


async def test_a_refused_load_balancer_leaves_the_others() -> None:
    node = HcnNode(WEB)
    node.service.fails = sabotaged("198.51.100.1")
    await node.sync()
    assert len(node.service.load_balancers) == 7
    assert list(node.proxier.rejected) == [("shop", "s1")]
    await node.change(*endpoints(1, "p1", "p2"))
    assert len(node.service.load_balancers) == 7
    assert list(node.proxier.rejected) == [("shop", "s1")]
    node.service.fails = lambda _function, _settings: 0
    await node.change(*endpoints(1, "p1"))
    assert (len(node.service.load_balancers), node.proxier.rejected) == (8, {})
    assert set(functions(await node.sync())) == {"DeleteEndpoint"}  # they stayed while something was refused
    assert await node.sync() == []


async def test_the_limits_of_services_are_in_the_result_once() -> None:
    node = HcnNode(service(1, endpoints(1, "p1"), loadBalancerSourceRanges=["203.0.113.0/24"]))
    node.state.synced |= {Service, EndpointSlice}
    runner = SyncRunner(node.state, node.proxier, lambda: (NODE_VIEW, node.config), SyncTiming(0.0, 0.1))
    results: list[SyncResult] = []
    runner.subscribers.append(results.append)
    work = asyncio.create_task(runner.run())
    try:
        await until(lambda: results)
        runner.foreign_change("a test")
        await until(lambda: len(results) > 1)
    finally:
        work.cancel()
    text = "loadBalancerSourceRanges has no effect in mode kernelspace: every client is served"
    assert [list(result.limits) for result in results[:2]] == [[(("shop", "s1"), text)], []]
    assert {what for _, what in results[0].refused} >= {"cluster IP 10.96.0.1:80/SCTP"}


async def test_without_an_answer_nobody_is_left_out() -> None:
    node = HcnNode(WEB)
    node.service.fails = lambda _function, _settings: 0x800706BA
    with pytest.raises(ApplyError):
        await node.sync()
    assert node.proxier.rejected == {}


@pytest.mark.parametrize(
    "function", ["HcnCreateEndpoint", "HcnCreateLoadBalancer", "HcnOpenNetwork", "HcnEnumerateLoadBalancers"]
)
async def test_any_failure_is_mended_by_the_next_full_sync(function: str) -> None:
    node = HcnNode(WEB)
    calls = iter([0x800706BA])
    node.service.fails = lambda called, _: next(calls, 0) if called == function else 0
    with pytest.raises(ApplyError):
        await node.sync()
    await node.sync()
    assert (len(node.service.load_balancers), len(node.service.endpoints)) == (8, 4)
    assert await node.sync() == []


async def test_the_end_of_the_process() -> None:
    node = HcnNode(WEB)
    await node.sync()
    await node.proxier.close(keep_rules=True)
    assert len(node.service.load_balancers) == 8
    await node.proxier.close(keep_rules=False)
    assert (node.service.load_balancers, len(node.service.endpoints)) == ({}, 2)


async def test_a_clean_up_removes_what_kdns_has_created() -> None:
    node = HcnNode(WEB)
    await node.sync()
    other = "6a0d3e8c-0000-4000-8000-000000000001"
    document = node.service.load_balancers.pop(load_balancer_id(VIP))
    node.service.load_balancers[other] = {**document, "ID": other, "HostComputeEndpoints": []}
    removed = remove_objects(ComputeNetwork(node.libraries.functions))
    assert len(removed) == 9
    assert list(node.service.load_balancers) == [other]


async def test_counters() -> None:
    node = HcnNode(WEB)
    metrics = MetricFamilies()
    node.proxier.counters.register(metrics)
    await node.sync()
    await node.proxier.counters.read(node.planner.plan)
    values = {sample.name: sample.value for family in metrics.collect() for sample in family.samples}
    assert values == {"kdns_hcn_load_balancers": 8.0, "kdns_hcn_endpoints": 2.0}


OVERLAYS = [
    (WindowsNetwork("Pods"), "an overlay network needs a source VIP"),
    (WindowsNetwork("Pods", "10.1.0.9"), ""),
]


@pytest.mark.parametrize(("network", "reason"), OVERLAYS)
async def test_an_overlay_network(network: WindowsNetwork, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    node = HcnNode(WEB, service=FakeHcn(network_type="Overlay"), network=network)
    if reason:
        with pytest.raises(ApplyError, match=reason):
            await node.sync()
        return
    await node.sync()
    assert {
        len(load_balancer["FrontendVIPs"])
        for load_balancer in node.service.load_balancers.values()
        if "FrontendVIPs" in load_balancer
    } == {1}
    assert all(
        ":" not in str(load_balancer.get("FrontendVIPs")) for load_balancer in node.service.load_balancers.values()
    )
    assert "virtual IPs of IPv6 are not served" in capsys.readouterr().out
    # Without a route the endpoint counts as outside of the cluster: the node's address is the source.
    assert node.service.load_balancers[load_balancer_id(VIP)]["SourceVIP"] == "192.0.2.1"


async def test_an_endpoint_follows_its_node() -> None:
    """The provider address of an existing endpoint is modified when its Pods' range is at another node."""
    simulated = FakeHcn(network_type="Overlay", subnets={"10.1.1.0/24": "192.0.2.7"})
    node = HcnNode(WEB, service=simulated, network=WindowsNetwork("Pods", "10.1.0.9"))
    await node.sync()
    simulated.subnets = {"10.1.1.0/24": "192.0.2.8"}
    assert functions(await node.sync()) == ["ModifyEndpoint"]


async def test_an_endpoint_at_a_cluster_ip_is_the_same_in_any_order() -> None:
    """A cluster IP has an endpoint on an overlay network, which differs from that of a Pod at this address."""
    vip = [
        replace(endpoint, endpoints=tuple(replace(end, addresses=("10.96.0.1",)) for end in endpoint.endpoints or ()))
        for endpoint in endpoints(2, "r1")
        if endpoint.address_type == "IPv4"
    ]
    second = (service(2, protocols=("TCP",))[0], *vip)
    made = []
    for first, then in ((WEB, second), (second, WEB)):
        simulated = FakeHcn(network_type="Overlay", subnets={"10.96.0.1/32": "192.0.2.7"})
        node = HcnNode(first, service=simulated, network=WindowsNetwork("Pods", "10.1.0.9"))
        await node.sync()
        await node.change(*then)
        await node.sync()
        made.append(simulated.endpoints[endpoint_id("Pods", "10.96.0.1")]["Policies"])
    assert made[0] == made[1]


@pytest.mark.parametrize(("route", "provider"), [("192.0.2.8", "192.0.2.8"), ("", "192.0.2.1")])
async def test_the_route_to_a_new_node_is_read_before_it_is_used(route: str, provider: str) -> None:
    """Routes are read again for a new endpoint without one: once, as endpoints outside of the cluster have none."""
    known, new = (ENDPOINTS[each][0] for each in ("r1", "r2"))
    simulated = FakeHcn(network_type="Overlay", subnets={f"{known}/32": "192.0.2.7"})
    node = HcnNode(WEB, service=simulated, network=WindowsNetwork("Pods", "10.1.0.9"))
    await node.sync()
    called: list[str] = []
    simulated.fails = lambda function, _: called.append(function) or 0  # type: ignore[func-returns-value]
    await node.change(*endpoints(1, "p1"))
    await node.change(*endpoints(1, "p1", "r1"))
    assert "HcnEnumerateNetworks" not in called
    simulated.subnets |= {f"{new}/32": route} if route else {}
    await node.change(*endpoints(1, "p1", "r2"))
    await node.change(*endpoints(1, "p2", "r2"))
    assert called.count("HcnEnumerateNetworks") == 1
    policies = simulated.endpoints[endpoint_id("Pods", new)]["Policies"]
    assert policies == [{"Type": "ProviderAddress", "Settings": {"ProviderAddress": provider}}]


async def test_health_checks_without_their_endpoint(capsys: pytest.CaptureFixture[str]) -> None:
    node = HcnNode(WEB, network=WindowsNetwork("Pods", "", "cbr0", 10256))
    await node.sync()
    assert "network Pods has no endpoint cbr0" in capsys.readouterr().out
    assert len(node.service.load_balancers) == 8


async def test_elsewhere_the_mode_says_that_it_needs_windows() -> None:
    assert await runtime("kernelspace").unsupported(Settings(mode="kernelspace")) == (
        "mode kernelspace needs Windows, and this machine runs linux"
    )
    assert await remove_hcn_objects(Settings(), Footprint()) == []
    for ask in (libraries, lambda: host_mac("192.0.2.1")):
        with pytest.raises(ApplyError, match="needs Windows"):
            ask()


@pytest.mark.parametrize(
    ("version", "name", "reason"),
    [
        ((11, 10), "Pods", "version 11.10 of the host network service; expected 12.0 or later"),
        ((13, 2), "", "the network is not known; expected winkernel.networkName, --network-name or $KUBE_NETWORK"),
        ((13, 2), "Pods", ""),
    ],
)
async def test_what_the_mode_needs(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], name: str, reason: str
) -> None:
    node = HcnNode(service=FakeHcn(version=version))
    monkeypatch.delenv(starting.NETWORK_VARIABLE, raising=False)
    monkeypatch.setattr(starting, "libraries", lambda: node.libraries.functions)
    settings = Settings(mode="kernelspace").with_section(KernelspaceSettings(network_name=name))
    assert (await runtime("kernelspace").unsupported(settings)).startswith(reason or "")
    assert bool(await runtime("kernelspace").unsupported(settings)) == bool(reason)


async def test_the_network_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    node = HcnNode(WEB)
    monkeypatch.setenv(starting.NETWORK_VARIABLE, "Pods")
    monkeypatch.setattr(starting, "libraries", lambda: node.libraries.functions)
    mode = await runtime("kernelspace").start(Settings(mode="kernelspace"))
    await mode.sync_full(node.planner.plan)
    assert len(node.service.load_balancers) == 8
    assert (mode.footprint, mode.udp_targets, mode.name) == (Footprint(), None, KERNELSPACE.name)


async def test_the_network_may_be_created_after_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    node = HcnNode(WEB, service=FakeHcn(network_name=""))
    monkeypatch.setattr(starting, "libraries", lambda: node.libraries.functions)
    mode = await runtime("kernelspace").start(
        Settings(mode="kernelspace").with_section(KernelspaceSettings(network_name="Pods"))
    )
    with pytest.raises(ApplyError, match=r"there is no network Pods; expected one of \[\]"):
        await mode.sync_full(node.planner.plan)
    node.service.network_name = "Pods"
    await mode.sync_full(node.planner.plan)
    assert len(node.service.load_balancers) == 8
    node.service.network_name = ""
    await mode.close(keep_rules=False)  # as when the network was deleted first
    assert node.service.load_balancers == {}


async def test_a_front_comes_before_health_checks_at_its_destination() -> None:
    checked = service(1, endpoints(1, "p1"), ports=[{"name": "tcp", "protocol": "TCP", "port": 10256}])
    node = HcnNode(checked, network=WindowsNetwork("Pods", "", "cbr0", 10256))
    node.service.add_pod("10.1.0.254", name="cbr0")
    await node.sync()
    key = LoadBalancerKey("IPv4", "198.51.101.1", 6, 10256)
    (mapping,) = node.service.load_balancers[load_balancer_id(key)]["PortMappings"]
    assert mapping["InternalPort"] == 8080


async def test_the_end_of_a_remote_endpoint_leaves_a_local_one_of_the_same_address() -> None:
    """kube-proxy's TestRemoteEndpointDeleteDoesNotAffectLocalEndpointWithSameIP."""
    address = ENDPOINTS["r1"][0]
    node = HcnNode(WEB, service(2, endpoints(2, "p1", "r1"), protocols=("TCP",)))
    await node.sync()
    local = node.service.add_pod(address)
    here = [
        replace(endpoint, endpoints=tuple(replace(end, node_name="here") for end in endpoint.endpoints or ()))
        for endpoint in endpoints(3, "r1")
    ]
    await node.change(service(3, protocols=("TCP",))[0], *here)
    of_third = load_balancer_id(VIP._replace(vip="10.96.0.3"))
    assert node.service.load_balancers[of_third]["HostComputeEndpoints"] == [local]
    await node.change(*endpoints(1), *endpoints(2))
    assert load_balancer_id(VIP) not in node.service.load_balancers
    assert of_third in node.service.load_balancers
    assert local in node.service.endpoints
    assert endpoint_id("Pods", address) not in node.service.endpoints


async def test_no_endpoint_is_deleted_that_a_load_balancer_still_has() -> None:
    """kube-proxy's TestEndpointTransitionWithLBFailures."""
    node = HcnNode(service(1, endpoints(1, "p1", "r1", "r2"), protocols=("TCP",)))
    await node.sync()
    before = {name: dict(each) for name, each in node.service.load_balancers.items()}
    node.service.fails = lambda function, _: 0x80070005 if function == "HcnModifyLoadBalancer" else 0
    with pytest.raises(ApplyError, match="0x80070005"):
        await node.change(*endpoints(1, "p1", "r1"))
    assert node.service.load_balancers == before
    assert endpoint_id("Pods", ENDPOINTS["r2"][0]) in node.service.endpoints
    node.service.fails = lambda _function, _settings: 0
    assert functions(await node.sync()) == [*["ModifyLoadBalancer"] * 8, *["DeleteEndpoint"] * 2]


async def test_health_checks_without_a_port_of_the_service_have_that_of_healthz() -> None:
    node = HcnNode(WEB, network=WindowsNetwork("Pods", "", "cbr0", 10256))
    node.service.add_pod("10.1.0.254", name="cbr0")
    await node.sync()
    assert load_balancer_id(LoadBalancerKey("IPv4", "198.51.101.1", 6, 10256)) in node.service.load_balancers
