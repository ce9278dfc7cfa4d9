"""Which relays a plan has, where they listen, and what they do for their clients."""

from collections.abc import Iterable
from ipaddress import ip_address, ip_network
from typing import Any

import msgspec
import pytest
from rendering import rendered

from kdns.cluster.objects import EndpointSlice, Service
from kdns.cluster.state import State
from kdns.proxy.plan.branches import Verdict
from kdns.proxy.plan.config import LocalPods, NodeView, ProxyConfig
from kdns.proxy.plan.endpoints import ServiceEndpoint
from kdns.proxy.plan.plan import FrontKey, Plan
from kdns.proxy.plan.planner import plan
from kdns.proxy.userspace.mode import USERSPACE
from kdns.proxy.userspace.relays import RelayKey, leads_back, relay_addresses, relay_keys
from kdns.proxy.userspace.sessions import Sessions

NODE = NodeView("here", "", (ip_address("192.0.2.1"),), (ip_address("192.0.2.1"), ip_address("192.0.2.9")))
PODS = LocalPods((ip_network("10.1.0.0/24"),))


def service(vip: str = "10.96.0.1", name: str = "web", **spec: Any) -> Service:
    told = {
        "type": "LoadBalancer",
        "clusterIP": vip,
        "ports": [{"port": 80, "nodePort": 30080, "protocol": spec.pop("protocol", "TCP")}],
    }
    status = {"loadBalancer": {"ingress": [{"ip": "198.51.100.9"}]}}
    metadata = {"name": name, "namespace": "shop"}
    return msgspec.convert({"metadata": metadata, "spec": told | spec, "status": status}, Service)


def endpoints(*pairs: tuple[str, str], protocol: str = "TCP", name: str = "web", port: int = 8080) -> EndpointSlice:
    metadata = {"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": name}}
    rows = [{"addresses": [address], "nodeName": node} for address, node in pairs]
    ports = [{"name": "", "port": port, "protocol": protocol}]
    return msgspec.convert({"metadata": metadata, "endpoints": rows, "ports": ports}, EndpointSlice)


def planned(*objects: Service | EndpointSlice, **config: Any) -> Plan:
    state = State()
    for obj in objects:
        state.upsert(obj)
    told: dict[str, Any] = {"node_port_addresses": (), "local_pods": PODS}
    return plan(state, NODE, ProxyConfig(USERSPACE, **told | config))


LISTED = {Verdict.CLUSTER: "any", Verdict.LOCAL: "local", None: ""}
HERE, THERE = ("10.1.0.2", "here"), ("10.1.1.2", "there")
KINDS = {"10.96.0.1": "vip", "198.51.100.9": "lb", "": "node", "127.96.0.1": "loopback"}
CASES: list[tuple[str, dict[str, Any], tuple[tuple[str, str], ...], str]] = [
    ("both anywhere", {}, (HERE, THERE), "vip any, lb any, node any"),
    ("nobody", {}, (), ""),
    ("internal local", {"internalTrafficPolicy": "Local"}, (HERE, THERE), "vip local, lb any, node any"),
    ("internal local, nobody here", {"internalTrafficPolicy": "Local"}, (THERE,), "lb any, node any"),
    (
        "external local",
        {"externalTrafficPolicy": "Local"},
        (HERE, THERE),
        "vip any, lb any, lb local, node any, node local",
    ),
    ("external local, nobody here", {"externalTrafficPolicy": "Local"}, (THERE,), "vip any, lb any, node any"),
    ("loopback", {"vip": "127.96.0.1"}, (HERE,), "loopback , lb any, node any"),
    ("SCTP", {"protocol": "SCTP"}, (HERE,), ""),
]


@pytest.mark.parametrize(("name", "spec", "pairs", "wanted"), CASES)
def test_relays_wanted(name: str, spec: dict[str, Any], pairs: tuple[tuple[str, str], ...], wanted: str) -> None:
    family_plan = planned(service(**spec), endpoints(*pairs, protocol=spec.get("protocol", "TCP"))).ipv4
    for captures in (True, False):
        keys = [key for front in family_plan.fronts.values() for key in relay_keys("IPv4", front, captures=captures)]
        got = [f"{KINDS[key.front.address]} {LISTED[key.endpoint_set]}" for key in keys]
        if captures:
            assert ", ".join(got) == wanted, name
        else:
            assert {each.split()[0] for each in got} == {each.split()[0] for each in wanted.split(", ") if each}, name


NETWORKS = [
    ((), ("0.0.0.0",), ("::",)),
    (("127.0.0.0/8", "192.0.2.9/32"), ("192.0.2.9", "127.0.0.1"), ("::",)),
    (("198.51.100.0/24", "2001:db8::/32"), (), ()),
]


@pytest.mark.parametrize(("networks", "ipv4", "ipv6"), NETWORKS)
def test_where_node_ports_are(networks: Iterable[str], ipv4: tuple[str, ...], ipv6: tuple[str, ...]) -> None:
    made = planned(node_port_addresses=tuple(ip_network(network) for network in networks))
    assert tuple(family_plan.node_ports.listen_addresses(loopback=True) for family_plan in (made.ipv4, made.ipv6)) == (
        ipv4,
        ipv6,
    )


@pytest.mark.parametrize(
    ("primary", "own", "ipv4", "ipv6"),
    [
        (("192.0.2.1",), ("192.0.2.1", "192.0.2.9"), "192.0.2.1 192.0.2.9 127.0.0.1", "::1"),
        ((), ("192.0.2.9", "2001:db8::9"), "192.0.2.9 127.0.0.1", "2001:db8::9 ::1"),
        (("2001:db8::1",), (), "127.0.0.1", "2001:db8::1 ::1"),
    ],
)
def test_where_relays_that_capture_may_listen(
    primary: tuple[str, ...], own: tuple[str, ...], ipv4: str, ipv6: str
) -> None:
    node = NodeView("here", "", tuple(map(ip_address, primary)), tuple(map(ip_address, own)))
    made = plan(State(), node, ProxyConfig(USERSPACE))
    assert [" ".join(map(str, relay_addresses(each))) for each in (made.ipv4, made.ipv6)] == [ipv4, ipv6]


BACK = [
    ("10.1.0.2", 80, False),
    ("10.96.0.1", 80, True),
    ("10.96.0.1", 81, False),
    ("198.51.100.9", 80, True),
    ("192.0.2.9", 30080, True),
    ("127.0.0.1", 30080, True),
    ("192.0.2.9", 80, False),
    ("203.0.113.1", 30080, False),
]


@pytest.mark.parametrize(("address", "port", "wanted"), BACK)
def test_endpoints_that_lead_back(address: str, port: int, *, wanted: bool) -> None:
    family_plan = planned(service(), endpoints(HERE)).ipv4
    assert leads_back(family_plan, ServiceEndpoint(address, port), "TCP") is wanted
    assert not leads_back(family_plan, ServiceEndpoint(address, port), "UDP")


def test_a_relay_passes_over_endpoints_that_lead_back() -> None:
    made = planned(service(), endpoints(("198.51.100.9", "here"), HERE, ("10.96.0.1", "here"), port=80))
    sessions = Sessions(made)
    session = sessions.accept(RelayKey("IPv4", FrontKey("10.96.0.1", "TCP", 80)), "192.0.2.100")
    assert session
    assert [sessions.next_endpoint(session, 0) for _ in range(3)] == [
        ServiceEndpoint("10.1.0.2", 80, is_local=True)
    ] * 3


SESSIONS = [
    # relay's address and list, client → verdict and endpoints
    ("10.96.0.1", None, "192.0.2.100", Verdict.CLUSTER, 2),
    ("198.51.100.9", None, "10.1.0.9", Verdict.CLUSTER, 2),
    ("198.51.100.9", None, "203.0.113.1", Verdict.LOCAL, 1),
    ("198.51.100.9", Verdict.CLUSTER, "203.0.113.1", Verdict.CLUSTER, 2),
    ("198.51.100.9", Verdict.LOCAL, "10.1.0.9", Verdict.LOCAL, 1),
    ("198.51.100.9", None, "198.18.0.1", Verdict.DROP, 0),
    ("198.51.100.9", Verdict.CLUSTER, "198.18.0.1", Verdict.DROP, 0),
]


@pytest.mark.parametrize(("address", "name", "client", "verdict", "count"), SESSIONS)
def test_what_a_relay_is_told_of_a_client(
    address: str, name: Verdict | None, client: str, verdict: Verdict, count: int
) -> None:
    ranges = ["203.0.113.0/24", "10.0.0.0/8"]
    web = service(externalTrafficPolicy="Local", loadBalancerSourceRanges=ranges)
    sessions = Sessions(planned(web, endpoints(HERE, THERE)))
    session = sessions.accept(RelayKey("IPv4", FrontKey(address, "TCP", 80), name), client)
    assert session
    assert (session.branch.verdict, len(session.endpoints)) == (verdict, count)
    assert sessions.accept(RelayKey("IPv4", FrontKey("10.96.0.2", "TCP", 80)), client) is None


def test_render_names_every_relay() -> None:
    text = rendered(planned(service(externalTrafficPolicy="Local"), endpoints(HERE, THERE)))
    assert [line.removeprefix("#   ") for line in text.splitlines() if line.startswith("#   ")] == [
        "relay 1: TCP 10.96.0.1:80, cluster IP of shop/web, to 2 endpoints",
        "relay 2: TCP 198.51.100.9:80, load balancer IP of shop/web, to 2 endpoints, for this node and its Pods",
        "relay 3: TCP 198.51.100.9:80, load balancer IP of shop/web, to 1 endpoint of this node",
        "relay 4: TCP *:30080, node port of shop/web, to 2 endpoints, for this node and its Pods",
        "relay 5: TCP *:30080, node port of shop/web, to 1 endpoint of this node",
    ]
    none = rendered(planned(service(internalTrafficPolicy="Local"), endpoints(THERE)))
    assert "no relay: TCP 10.96.0.1:80, cluster IP of shop/web: drop" in none
