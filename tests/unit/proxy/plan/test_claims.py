"""Destinations that no Service gets, and which of several Services gets one: alike in every mode, and trace says why.

192.0.2.1 is an address of the node with node ports, 192.0.2.2 one without; 203.0.113.5 and 2001:db8::5 are elsewhere.
"""

from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any

import msgspec
import pytest

from kdns.cluster.objects import EndpointSlice, Key, Service
from kdns.cluster.state import State
from kdns.proxy.iptables.mode import IPTABLES
from kdns.proxy.nftables.mode import NFTABLES
from kdns.proxy.plan.claims import API_SERVICE
from kdns.proxy.plan.config import OF_THE_NODE, LocalPods, NodeView, ProtectedPort, ProxyConfig
from kdns.proxy.plan.plan import SHADOWS, SPECIAL_ENDPOINT, FrontKey, Plan
from kdns.proxy.plan.planner import Planner, plan
from kdns.proxy.plan.semantics import Semantics
from kdns.proxy.trace.explain import explained
from kdns.proxy.trace.trace import Packet, trace
from kdns.proxy.userspace.mode import USERSPACE

NODE = NodeView("here", "", (ip_address("192.0.2.1"),), (ip_address("192.0.2.1"), ip_address("192.0.2.2")))
MODES = (NFTABLES, IPTABLES, USERSPACE)
CLIENT = {4: ip_address("203.0.113.9"), 6: ip_address("2001:db8::9")}
OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"


def config(mode: Semantics = NFTABLES, **changed: Any) -> ProxyConfig:
    return replace(ProxyConfig(mode), **changed)


def service(name: str, *external_ips: str, created: str | None = None, ports: Any = None, **rest: Any) -> Service:
    """A Service with the number of its name in its cluster IPs; without `ports` it has port 80/TCP."""
    number = sum(map(ord, name)) % 200
    spec = {
        "type": "LoadBalancer",
        "clusterIP": f"10.96.0.{number}",
        "clusterIPs": [f"10.96.0.{number}", f"fd00:96::{number:x}"],
        "externalIPs": list(external_ips),
        "ports": ports or [{"port": 80}],
    }
    row = {"metadata": {"name": name, "namespace": "shop", "creationTimestamp": created}, "spec": spec | rest}
    return msgspec.convert(row, Service)


def balanced(name: str, address: str, port: int, created: str | None = None) -> Service:
    one = service(name, created=created, ports=[{"port": port}])
    return msgspec.convert(
        msgspec.to_builtins(one) | {"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}, Service
    )


def endpoint_slice(key: Key, port: dict[str, Any], *addresses: str) -> EndpointSlice:
    namespace, name = key
    row = {
        "metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]} for address in addresses],
        "ports": [port],
    }
    return msgspec.convert(row, EndpointSlice)


def api_servers(*addresses: str, port: int = 6443) -> EndpointSlice:
    return endpoint_slice(API_SERVICE, {"name": "https", "port": port}, *addresses)


def state(*objects: Service | EndpointSlice) -> State:
    found = State()
    for obj in objects:
        found.upsert(obj)
    return found


def owner(made: Plan, address: str, port: int, protocol: str = "TCP") -> str:
    parsed = ip_address(address)
    front = made.of("IPv4" if parsed.version == 4 else "IPv6").front_of(parsed, protocol, port)
    return front.port.name.service if front else ""


def reasons(known: State, made: Plan, address: str, port: int, protocol: str = "TCP") -> str:
    destination = ip_address(address)
    packet = Packet(CLIENT[destination.version], destination, protocol, port)
    return "\n".join(explained(known, made, packet).reasons)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize(
    ("address", "port", "protocol", "why"),
    [
        ("192.0.2.1", 22, "TCP", "it is ssh of this node"),
        ("192.0.2.2", 22, "TCP", "it is ssh of this node"),
        ("192.0.2.1", 10250, "TCP", "it is the kubelet of this node"),
        ("192.0.2.1", 6443, "TCP", "it is the API server"),
        ("203.0.113.5", 6443, "TCP", "it is the API server"),
        ("203.0.113.7", 443, "TCP", "it is the API server as clients know it"),
        ("8.8.8.8", 53, "UDP", "it is named by protectedPorts"),
        ("2001:db8:7::1", 53, "TCP", "it is named by protectedPorts"),
        ("192.0.2.1", 30080, "TCP", "it is the node port of Service shop/victim"),
        ("192.0.2.1", 32000, "TCP", "it is the health check node port of Service shop/victim"),
        # … and what stays possible, as in kube-proxy
        ("192.0.2.1", 443, "TCP", ""),
        ("192.0.2.1", 22, "UDP", ""),
        ("192.0.2.1", 30080, "UDP", ""),
        ("192.0.2.2", 30080, "TCP", ""),
        ("192.0.2.1", 30090, "TCP", ""),
        ("203.0.113.5", 22, "TCP", ""),
        ("203.0.113.5", 6444, "TCP", ""),
        ("8.8.4.4", 53, "UDP", ""),
    ],
)
def test_destinations_that_no_service_gets(mode: Semantics, address: str, port: int, protocol: str, why: str) -> None:
    named = (
        *OF_THE_NODE,
        ProtectedPort("the API server as clients know it", 443, "TCP", ip_network("203.0.113.7")),
        ProtectedPort("named by protectedPorts", 53, "", ip_network("8.8.8.0/24")),
        ProtectedPort("named by protectedPorts", 53, "", ip_network("2001:db8:7::/48")),
    )
    victim = service(
        "victim",
        ports=[{"port": 80, "nodePort": 30080}],
        externalTrafficPolicy="Local",
        healthCheckNodePort=32000,
    )
    ports = [{"name": "a", "port": port, "protocol": protocol}, {"name": "own", "port": 81, "nodePort": 30090}]
    wanted = "" if why else "claims"
    before = "victim" if "30080" in f"{port}" and why else ""
    for asking in (
        service("claims", address, created=OLD, ports=ports),
        balanced("claims", address, port) if protocol == "TCP" else None,
    ):
        if not asking:
            continue
        known = state(asking, victim, api_servers("192.0.2.1", "203.0.113.5"))
        made = plan(known, NODE, config(mode, protected_ports=named))
        assert owner(made, address, port, protocol) == (wanted or before)
        assert (why in reasons(known, made, address, port, protocol)) if why else True
        refused = {
            str(key): each.reason
            for family_plan in (made.ipv4, made.ipv6)
            for key, (each,) in family_plan.refused.items()
        }
        assert list(refused.values()) == ([why] if why else [])


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("port", [22, 6443, 10250, 30022])
def test_a_node_port_takes_nothing_of_the_node_either(mode: Semantics, port: int) -> None:
    known = state(service("wide", ports=[{"port": 80, "nodePort": port}]), api_servers("192.0.2.1"))
    made = plan(known, NODE, config(mode))
    assert owner(made, "192.0.2.1", port) == ("wide" if port == 30022 else "")
    assert (FrontKey("", "TCP", port) in made.ipv4.refused) == (port != 30022)
    elsewhere = plan(known, replace(NODE, primary=(), addresses=()), config(mode))
    assert FrontKey("", "TCP", port) in elsewhere.ipv4.fronts


SPECIAL = (
    ("127.0.0.1", "127.0.0.1 is a loopback address"),
    ("::1", "::1 is a loopback address"),
    ("0.0.0.0", "0.0.0.0 is the unspecified address"),
    ("224.0.0.1", "224.0.0.1 is a multicast address"),
    ("169.254.169.254", "169.254.169.254 is a link-local address"),
    ("fe80::1", "fe80::1 is a link-local address"),
    ("255.255.255.255", "255.255.255.255 is the broadcast address"),
    ("198.51.100.7", ""),
)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("kind", ["cluster IP", "external IP", "load balancer's address"])
@pytest.mark.parametrize(("address", "why"), SPECIAL)
def test_no_front_is_at_an_address_that_no_service_can_have(mode: Semantics, kind: str, address: str, why: str) -> None:
    match kind:
        case "cluster IP":
            asking = service("a", clusterIP=address, clusterIPs=[address])
        case "external IP":
            asking = service("a", address)
        case _:
            asking = balanced("a", address, 80)
    if mode.relays and "loopback" in why:
        why = ""
    known = state(asking)
    made = plan(known, NODE, config(mode))
    assert owner(made, address, 80) == ("" if why else "a")
    refused = [each.reason for family_plan in (made.ipv4, made.ipv6) for (each,) in family_plan.refused.values()]
    assert refused == ([why] if why else [])
    assert (why in reasons(known, made, address, 80)) if why else True


@pytest.mark.parametrize(
    ("address", "ranges", "why"),
    [
        ("192.0.2.1", (), "192.0.2.1 is an address of this node"),
        ("192.0.2.2", (), "192.0.2.2 is an address of this node"),
        ("192.0.2.1", ("192.0.2.0/24",), "192.0.2.1 is an address of this node"),
        ("192.0.2.2", ("192.0.2.0/24",), ""),
        ("192.0.2.3", (), ""),
    ],
)
def test_a_cluster_ip_is_no_address_of_the_node(address: str, ranges: tuple[str, ...], why: str) -> None:
    """All of its ports would be the Service's. A node-local cache has that of its DNS servers, in a service range."""
    known = state(service("a", clusterIP=address, clusterIPs=[address]))
    made = plan(known, NODE, config(service_cidrs=tuple(map(ip_network, ranges))))
    assert owner(made, address, 80) == ("" if why else "a")
    assert [each.reason for (each,) in made.ipv4.refused.values()] == ([why] if why else [])


def test_a_cluster_ip_takes_no_protected_port() -> None:
    known = state(service("a", clusterIP="203.0.113.5", clusterIPs=["203.0.113.5"], ports=[{"port": 6443}]))
    known.upsert(api_servers("203.0.113.5"))
    assert owner(plan(known, NODE, config()), "203.0.113.5", 6443) == ""


@pytest.mark.parametrize("port", [0, 70_000])
def test_a_port_out_of_range_has_no_front(port: int) -> None:
    """Objects of the API cannot have one; those that are made here may."""
    known = state(service("a"))
    wrong = msgspec.structs.replace(known.services["shop", "a"].spec.ports[0], port=port)  # type: ignore[index]
    spec = msgspec.structs.replace(known.services["shop", "a"].spec, ports=(wrong,))
    known.upsert(msgspec.structs.replace(known.services["shop", "a"], spec=spec))
    made = plan(known, NODE, config())
    assert [each.reason for (each,) in made.ipv4.refused.values()] == [f"{port} is not a port from 1 to 65535"]
    assert not made.ipv4.fronts


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize(
    ("first", "second", "wanted", "why"),
    [
        (("zoo", NEW), ("ant", OLD), "ant", "Service shop/ant has it, which is older"),
        (("zoo", OLD), ("ant", NEW), "zoo", "Service shop/zoo has it, which is older"),
        (("zoo", OLD), ("ant", OLD), "ant", "Service shop/ant has it, which is as old and comes first by name"),
        (("zoo", NEW), ("ant", None), "zoo", "Service shop/zoo has it, which is older"),
        (("zoo", None), ("ant", None), "ant", "which is as old and comes first by name"),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_of_two_claims_the_older_service_has_it(
    mode: Semantics, first: tuple[str, str], second: tuple[str, str], wanted: str, why: str, order: int
) -> None:
    services = [service(name, "203.0.113.5", created=created) for name, created in (first, second)]
    known = state(*services[::order])
    made = plan(known, NODE, config(mode))
    assert owner(made, "203.0.113.5", 80) == wanted
    assert why in reasons(known, made, "203.0.113.5", 80)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_an_older_external_ip_takes_neither_a_cluster_ip_nor_a_balancers_address(mode: Semantics) -> None:
    taken = service("taken", created=NEW)
    known = state(
        service("old", taken.spec.cluster_ip, "203.0.113.5", created=OLD),
        taken,
        balanced("new", "203.0.113.5", 80, NEW),
    )
    made = plan(known, NODE, config(mode))
    assert owner(made, taken.spec.cluster_ip, 80) == "taken"
    assert owner(made, "203.0.113.5", 80) == "new"
    assert "it is the cluster IP of Service shop/taken" in reasons(known, made, taken.spec.cluster_ip, 80)
    assert "it is the load balancer IP of Service shop/new" in reasons(known, made, "203.0.113.5", 80)


def test_a_claim_waits_until_what_refuses_it_is_gone() -> None:
    asking = service("asks", "192.0.2.1", "203.0.113.5", ports=[{"name": "n", "port": 30080}, {"port": 6443}])
    victim = service("victim", ports=[{"port": 80, "nodePort": 30080}])
    known = state(asking)
    planner = Planner(known, NODE, config())

    def owners() -> list[str]:
        assert planner.plan == plan(known, NODE, config())
        return [
            owner(planner.plan, address, port)
            for address, port in (("192.0.2.1", 30080), ("192.0.2.1", 6443), ("203.0.113.5", 6443))
        ]

    assert owners() == ["asks", "asks", "asks"]
    for obj, wanted in (
        (victim, ["victim", "asks", "asks"]),
        (api_servers("192.0.2.1"), ["victim", "", "asks"]),
        (api_servers("203.0.113.5"), ["victim", "asks", ""]),
        (service("victim"), ["asks", "asks", ""]),
    ):
        change = known.upsert(obj)
        assert change
        differences = planner.changed([change])
        assert differences["IPv4"]
        assert owners() == wanted


def test_without_external_ips_none_is_served_and_trace_says_why() -> None:
    known = state(service("a", "203.0.113.5"), balanced("b", "203.0.113.6", 80))
    made = plan(known, NODE, config(external_ips=False))
    assert [owner(made, f"203.0.113.{number}", 80) for number in (5, 6)] == ["", "b"]
    assert (
        "Service shop/a names it as external IP and does not get it: the feature gate AllowServiceExternalIPs is off"
        in reasons(known, made, "203.0.113.5", 80)
    )


DNS, POD, PODS = "10.96.0.53", "10.244.1.9", "an address of Pods, which are in 10.244.0.0/16"
SHADOWED = {
    # what a Service names → what is said of it, and when the other Service is gone
    "another's cluster IP": (DNS, "the cluster IP of shop/dns", ""),
    "an endpoint of another": (POD, "an endpoint of shop/dns", PODS),
    "an address of a Pod": ("10.244.7.7", PODS, PODS),
    "its own cluster IP": ("10.96.0.9", "", ""),
    "any other address": ("203.0.113.5", "", ""),
}


def dns() -> tuple[Service, EndpointSlice]:
    port = {"name": "dns", "port": 53, "protocol": "UDP"}
    return service("dns", clusterIP=DNS, clusterIPs=[DNS], ports=[port]), endpoint_slice(("shop", "dns"), port, POD)


@pytest.mark.parametrize("is_external", [True, False])
@pytest.mark.parametrize("what", SHADOWED)
def test_an_address_of_another_service_or_of_a_pod_is_named_or_refused(what: str, is_external: bool) -> None:
    address, shadowed, left = SHADOWED[what]
    ports = [{"port": 443}]
    taking = service("taker", *([address] * is_external), ports=ports, clusterIP="10.96.0.9", clusterIPs=["10.96.0.9"])
    if not is_external:
        status = {"loadBalancer": {"ingress": [{"ip": address}]}}
        taking = msgspec.convert(msgspec.to_builtins(taking) | {"status": status}, Service)
    kind = "external IP" if is_external else "load balancer IP"
    pods = LocalPods((ip_network("10.244.0.0/16"),))
    said, said_later = (
        {(("shop", "taker"), f"{kind} {address}:443/TCP shadows {each}"): SHADOWS} if each else {}
        for each in (shadowed, left)
    )
    refused = f"it shadows {shadowed}, and the feature gate AllowAddressShadowing is off"
    for objects in ((taking, *dns()), (*dns(), taking)):
        known = State()
        planner, strict = (
            Planner(known, NODE, config(local_pods=pods, shadowing=allowed)) for allowed in (True, False)
        )
        for obj in objects:
            change = known.upsert(obj)
            for each in (planner, strict):
                each.changed([change] if change else [])
            assert planner.plan == plan(known, NODE, planner.config)
            assert strict.plan == plan(known, NODE, strict.config)
        assert planner.plan.limits == said
        traced = trace(planner.plan, Packet(CLIENT[4], ip_address(address), "TCP", 443))
        assert [each for each in traced.reasons if "shadows" in each] == (
            [f"it shadows {shadowed}"] if shadowed else []
        )
        assert strict.plan.limits == {}
        reasons = [reason for reason in strict.plan.refusals.values() if "shadows" in reason]
        assert reasons == ([refused] if shadowed else [])
        changes = [known.delete(Service, ("shop", "dns")), known.delete(EndpointSlice, ("shop", "dns"))]
        planner.changed([change for change in changes if change])
        assert planner.plan == plan(known, NODE, planner.config)
        assert planner.plan.limits == said_later


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("127.0.0.1", "a loopback address, which each machine has itself"),
        ("169.254.169.254", "a link-local address"),
        ("0.0.0.0", "the unspecified address"),
        ("224.0.0.1", "a multicast address"),
        ("10.244.1.9", ""),
    ],
)
def test_endpoints_that_no_pod_has_are_named(address: str, says: str) -> None:
    known = state(service("web"), endpoint_slice(("shop", "web"), {"port": 80}, address))
    said = {(("shop", "web"), f"its endpoint {address} is {says}"): SPECIAL_ENDPOINT} if says else {}
    assert plan(known, NODE, config()).limits == said
    if address == "127.0.0.1":
        assert plan(known, NODE, config(USERSPACE)).limits == {}, "relays are programs of this machine"
        assert plan(known, NODE, config(is_whole_cluster=True)).limits == {}
