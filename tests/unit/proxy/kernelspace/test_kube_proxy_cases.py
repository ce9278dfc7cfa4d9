"""What kube-proxy's own tests expect of HCN's objects (pkg/proxy/winkernel/proxier_test.go), of kdns.

kube-proxy's tests count the ids that their double gives out. Here ids are derived from addresses, so the facts about
the objects are compared.
"""

from typing import Any

import pytest
from fake_hcn import FakeHcn
from hcn_node import HcnNode, functions
from msgspec.structs import replace
from small_cluster import endpoints, service

from kdns.cluster.objects import EndpointSlice, Object, Service
from kdns.errors import ApplyError
from kdns.proxy.kernelspace.mode import WindowsNetwork
from kdns.proxy.kernelspace.schema import LoadBalancerKey, endpoint_id, load_balancer_id

VIP = "10.96.0.1"
REMOTE = "10.1.1.2"
PORTS = [{"name": "tcp", "protocol": "TCP", "port": 80, "nodePort": 30001}]


def web(*ends: str, number: int = 1, **spec: Any) -> tuple[Object, ...]:
    """A Service of type NodePort, as most of these tests have it."""
    vip = f"10.96.0.{number}"
    given: dict[str, Any] = {"clusterIP": vip, "clusterIPs": [vip], "externalIPs": [], "ingress": []}
    ports = [{**PORTS[0], "nodePort": 30000 + number}]
    return service(number, endpoints(number, *ends), **{"type": "NodePort", "ports": ports, **given, **spec})


def overlay(*objects: tuple[Object, ...], enables_dsr: bool = True) -> HcnNode:
    """A node on an overlay network."""
    simulated = FakeHcn(network_type="Overlay", subnets={"10.1.1.0/24": "10.0.0.3"})
    network = WindowsNetwork("Pods", "10.1.0.9")
    return HcnNode(*objects, service=simulated, network=network, enables_dsr=enables_dsr)


def balancer(node: HcnNode, vip: str = VIP, port: int = 80) -> dict[str, Any]:
    """The load balancer of a destination."""
    return node.service.load_balancers[load_balancer_id(LoadBalancerKey("IPv4", vip, 6, port))]


def endpoint(node: HcnNode, address: str) -> dict[str, Any]:
    """The endpoint of an address that kdns has created."""
    return node.service.endpoints[endpoint_id("Pods", address)]


async def test_shared_remote_endpoint_delete() -> None:
    """TestSharedRemoteEndpointDelete: an endpoint stays as long as some Service has it."""
    node = HcnNode(web("r1"), web("r1", number=2))
    await node.sync()
    assert functions(await node.delete(Service, "s2")) == ["DeleteLoadBalancer"] * 2
    assert endpoint(node, REMOTE)
    assert functions(await node.delete(Service, "s1")) == [*["DeleteLoadBalancer"] * 2, "DeleteEndpoint"]


async def test_update_load_balancer_when_supported() -> None:
    """TestUpdateLoadBalancerWhenSupported: the load balancer keeps its id, and the old endpoint is deleted."""
    node = overlay(web("r1"))
    await node.sync()
    found = functions(await node.change(*endpoints(1, "r2")))
    assert found == ["CreateEndpoint", *["ModifyLoadBalancer"] * 2, "DeleteEndpoint"]
    assert balancer(node)["HostComputeEndpoints"] == [endpoint_id("Pods", "10.1.1.3")]


async def test_update_load_balancer_when_unsupported() -> None:
    """TestUpdateLoadBalancerWhenUnsupported: it is deleted and created again."""
    node = overlay(web("r1"))
    node.service.version = (13, 2)
    await node.sync()
    found = functions(await node.change(*endpoints(1, "r2")))
    replaced = ["DeleteLoadBalancer", "CreateLoadBalancer"]
    assert found == ["CreateEndpoint", *replaced, *replaced, "DeleteEndpoint"]


async def test_no_load_balancer_without_endpoints() -> None:
    """A Service without endpoints has no load balancer, as in syncProxyRules."""
    node = HcnNode(web())
    await node.sync()
    assert node.service.load_balancers == {}
    await node.change(*endpoints(1, "r1"))
    assert len(node.service.load_balancers) == 2
    await node.change(*endpoints(1))
    assert (node.service.load_balancers, len(node.service.endpoints)) == ({}, 2)


async def test_health_checks_without_a_port_of_the_service() -> None:
    """Without a health check node port, health checks have the port of /healthz, as in syncProxyRules."""
    node = HcnNode(
        web("p1", type="LoadBalancer", ingress=[{"ip": "198.51.101.1"}]),
        network=WindowsNetwork("Pods", "", "cbr0", 10256),
    )
    node.service.add_pod("10.1.0.254", name="cbr0")
    await node.sync()
    assert balancer(node, "198.51.101.1", 10256)["PortMappings"][0]["InternalPort"] == 10256


async def test_remote_and_local_endpoints_same_ip() -> None:
    """TestRemoteAndLocalEndpointsSameIP: the endpoint of the CNI plugin serves both Services."""
    elsewhere = web("p1", number=2)
    slices = [
        replace(each, endpoints=tuple(replace(end, node_name="there") for end in each.endpoints or ()))
        for each in elsewhere[1:]
        if isinstance(each, EndpointSlice)
    ]
    node = HcnNode(web("p1"), (elsewhere[0], *slices))
    await node.sync()
    assert balancer(node)["HostComputeEndpoints"] == balancer(node, "10.96.0.2")["HostComputeEndpoints"]
    assert len(node.service.endpoints) == 2


async def test_remote_endpoint_delete_does_not_affect_local_endpoint_with_same_ip() -> None:
    """TestRemoteEndpointDeleteDoesNotAffectLocalEndpointWithSameIP: the CNI plugin's endpoint stays."""
    node = HcnNode(web("p1", "r1"), web("p1", "r1", number=2))
    await node.sync()
    local = node.service.add_pod(REMOTE)
    here = [
        replace(each, endpoints=tuple(replace(end, node_name="here") for end in each.endpoints or ()))
        for each in endpoints(3, "r1")
    ]
    service_3 = web(number=3)[0]
    await node.change(service_3, *here)
    assert balancer(node, "10.96.0.3")["HostComputeEndpoints"] == [local]
    await node.change(*endpoints(1), *endpoints(2))
    assert set(node.service.load_balancers) == {balancer(node, "10.96.0.3")["ID"].lower(), node_port_id(30003)}
    assert local in node.service.endpoints
    assert endpoint_id("Pods", REMOTE) not in node.service.endpoints


def node_port_id(port: int) -> str:
    """The id of a node port's load balancer."""
    return load_balancer_id(LoadBalancerKey("IPv4", "", 6, port))


async def test_endpoint_transition_with_load_balancer_failures() -> None:
    """TestEndpointTransitionWithLBFailures: no endpoint is deleted that a load balancer still has."""
    node = HcnNode(web("p1", "r1", "r2"), web("p1", "r1", "r2", number=2))
    await node.sync()
    before = {name: dict(each) for name, each in node.service.load_balancers.items()}
    node.service.fails = lambda function, _: 0x80070005 if function == "HcnModifyLoadBalancer" else 0
    with pytest.raises(ApplyError, match="0x80070005"):
        await node.change(*endpoints(1, "p1", "r1"), *endpoints(2, "p1", "r1"))
    assert node.service.load_balancers == before
    assert endpoint(node, "10.1.1.3")
    node.service.fails = lambda _function, _settings: 0
    assert functions(await node.sync()) == [*["ModifyLoadBalancer"] * 4, "DeleteEndpoint"]
