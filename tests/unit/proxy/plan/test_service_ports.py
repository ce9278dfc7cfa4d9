"""What the plan holds beside what packets show: which Services it has, and what it makes of each setting."""

from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as replace_struct
from small_cluster import CONFIG, NODE_VIEW, both, endpoints, service, state

from kdns.cluster.objects import Conditions, Endpoint, EndpointPort, EndpointSlice, Service, SliceLabels, SliceMeta
from kdns.net import FAMILIES
from kdns.proxy.iptables.mode import IPTABLES
from kdns.proxy.plan.branches import (
    Client,
    SourceNat,
    Verdict,
)
from kdns.proxy.plan.config import LocalPods, NodeView
from kdns.proxy.plan.endpoints import candidates
from kdns.proxy.plan.plan import FrontKind, PortPlan
from kdns.proxy.plan.planner import plan
from kdns.proxy.plan.semantics import Semantics
from kdns.proxy.plan.service_ports import AFFINITY_DEFAULT_S, empty_plan
from kdns.proxy.userspace.mode import USERSPACE

HERE = endpoints(1, "p1", "r1")


def planned(metadata: dict[str, Any] | None = None, **changed: Any) -> dict[str, list[PortPlan]]:
    """The ports of the first Service by family, with changes to its spec and metadata."""
    found, *slices = service(1, HERE, protocols=("TCP",), **changed)
    if metadata:
        told = msgspec.to_builtins(found)
        found = msgspec.convert(told | {"metadata": told["metadata"] | metadata}, Service)
    made = plan(state((found, *slices)), NODE_VIEW, CONFIG)
    return {family: list(made.of(family).ports.values()) for family in FAMILIES}


@pytest.mark.parametrize(
    ("changed", "families"),
    [
        ({}, ["IPv4", "IPv6"]),
        ({"type": "ExternalName"}, []),
        ({"clusterIP": "None", "clusterIPs": ["None"]}, []),
        ({"clusterIP": "", "clusterIPs": []}, []),
        ({"clusterIPs": []}, ["IPv4"]),
        ({"clusterIP": "fd00:96::1", "clusterIPs": ["fd00:96::1"]}, ["IPv6"]),
        ({"clusterIP": "FD00:96::0:1", "clusterIPs": ["FD00:96::0:1"]}, ["IPv6"]),
        ({"clusterIP": "nonsense", "clusterIPs": ["nonsense"]}, []),
        ({"clusterIP": "fe80::1%eth0", "clusterIPs": ["fe80::1%eth0; flush ruleset"]}, []),
        ({"metadata": {"labels": {"service.kubernetes.io/service-proxy-name": "other"}}}, []),
        ({"metadata": {"labels": {"service.kubernetes.io/service-proxy-name": ""}}}, []),
        ({"metadata": {"labels": {"app": "web"}}}, ["IPv4", "IPv6"]),
    ],
)
def test_which_services_it_has(changed: dict[str, Any], families: list[str]) -> None:
    made = planned(**changed)
    assert [family for family in FAMILIES if made[family]] == families
    for family in families:
        assert made[family][0].fronts[0][0].address == both("vip", 1)[FAMILIES.index(family)]


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({}, {"affinity_s": 0, "health_check_port": 0, "source_ranges": ()}),
        ({"sessionAffinity": "ClientIP"}, {"affinity_s": AFFINITY_DEFAULT_S}),
        (
            {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}},
            {"affinity_s": 60},
        ),
        *(
            (
                {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": timeout_s}}},
                {"affinity_s": affinity_s},
            )
            for timeout_s, affinity_s in ((-1, 10800), (0, 10800), (1, 1), (86400, 86400), (86401, 86400))
        ),
        ({"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}, {"affinity_s": 0}),
        ({"healthCheckNodePort": 32000}, {"health_check_port": 0}),
        ({"healthCheckNodePort": 32000, "external": "Local"}, {"health_check_port": 32000}),
        ({"healthCheckNodePort": 32000, "external": "Local", "type": "NodePort"}, {"health_check_port": 0}),
        ({"loadBalancerSourceRanges": ["2001:db8::/32"]}, {"source_ranges": ()}),
        ({"loadBalancerSourceRanges": ["0.0.0.0/0", "10.0.0.0/8"]}, {"source_ranges": ()}),
        ({"loadBalancerSourceRanges": ["x"]}, {"source_ranges": ()}),
        ({"loadBalancerSourceRanges": [" 10.1.2.3/8 "]}, {"source_ranges": (ip_network("10.0.0.0/8"),)}),
        (
            {"loadBalancerSourceRanges": ["192.0.2.0/24"]},
            {"source_ranges": (ip_network("192.0.2.0/24"), ip_network("198.51.101.1/32"))},
        ),
    ],
)
def test_what_it_makes_of_settings(changed: dict[str, Any], wanted: dict[str, Any]) -> None:
    (port,) = planned(**changed)["IPv4"]
    assert {name: getattr(port, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("changed", "external_local"),
    [
        ({"external": "Local"}, True),
        ({"external": "Local", "type": "NodePort"}, True),
        ({"external": "Local", "type": "ClusterIP"}, True),
        ({"external": "Local", "type": "ClusterIP", "externalIPs": []}, False),
        ({"external": "Cluster"}, False),
    ],
)
def test_an_external_policy_is_for_services_that_can_be_reached_from_outside(
    changed: dict[str, Any], external_local: bool
) -> None:
    (port,) = planned(**changed)["IPv4"]
    verdicts = {branch.client: branch.verdict for branch in port.external}
    assert verdicts.get(Client.NODE) is (Verdict.CLUSTER if external_local else None)
    assert verdicts[Client.ANY] is (Verdict.LOCAL if external_local else Verdict.CLUSTER)
    assert port.cluster_ip[-1].verdict is Verdict.CLUSTER


def test_what_is_left_of_a_former_type_leads_to_endpoints() -> None:
    """nft takes no draw among none, and refuses the whole table with it."""
    (port,) = planned(type="ClusterIP", externalIPs=[], internal="Local")["IPv4"]
    assert {FrontKind.LOAD_BALANCER_IP, FrontKind.NODE_PORT} <= {kind for _, kind in port.fronts}
    assert port.external[-1].verdict is Verdict.CLUSTER
    assert len(port.endpoints.cluster) == 2


def test_fronts_are_of_their_family_each_once_and_canonical() -> None:
    (port,) = planned(externalIPs=["2001:DB8:5::0:1", "198.51.100.1", "2001:db8:5::1", "x"])["IPv6"]
    assert [(key.address, kind) for key, kind in port.fronts] == [
        ("fd00:96::1", FrontKind.CLUSTER_IP),
        ("2001:db8:5::1", FrontKind.EXTERNAL_IP),
        ("2001:db8:6::1", FrontKind.LOAD_BALANCER_IP),
        ("", FrontKind.NODE_PORT),
    ]


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("::ffff:10.1.0.9", ["10.1.0.9"]),
        ("010.001.000.009", ["10.1.0.9"]),
        ("fd00:1::9", []),
        ("web.example", []),
    ],
)
def test_an_endpoint_is_of_its_slices_family(address: str, found: list[str]) -> None:
    """Older API servers have let such addresses in; one of them must not spoil the table of a family."""
    web, *_ = service(1, (), protocols=("TCP",))
    assert isinstance(web, Service)
    meta = SliceMeta("s", web.metadata.namespace, SliceLabels(web.metadata.name))
    ports = tuple(EndpointPort(each.name, 80, each.protocol) for each in web.ports)
    made = EndpointSlice(meta, "IPv4", (Endpoint((address,)),), ports)
    (port,) = plan(state((web, made)), NODE_VIEW, CONFIG).ipv4.ports.values()
    assert [each.address for each in port.endpoints.cluster] == found


V4, V6 = ip_network("10.1.0.0/24"), ip_network("fd00:1::/64")
BOTH = NodeView("here", "", (ip_address("192.0.2.1"), ip_address("2001:db8::1")))


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({"local_pods": None}, {Client.ANY: False}),
        ({"local_pods": LocalPods((V4,))}, {Client.LOCAL_POD: False, Client.ANY: True}),
        ({"local_pods": LocalPods((V6,))}, {Client.ANY: False}),
        ({"local_pods": LocalPods(bridge="br0")}, {Client.LOCAL_POD: False, Client.ANY: True}),
        ({"local_pods": LocalPods(interface_prefix="veth")}, {Client.LOCAL_POD: False, Client.ANY: True}),
        ({"local_pods": LocalPods((V4,)), "masquerade_all": True}, {Client.ANY: True}),
        ({"local_pods": LocalPods((V4,)), "mode": USERSPACE}, {Client.ANY: True}),
    ],
)
def test_whom_cluster_ips_masquerade(changed: dict[str, Any], wanted: dict[Client, bool]) -> None:
    config = replace(CONFIG, **changed)
    (port,) = plan(state(service(1, HERE, protocols=("TCP",))), BOTH, config).ipv4.ports.values()
    assert {branch.client: branch.masquerade for branch in port.cluster_ip} == wanted


L, C, R, D = Verdict.LOCAL, Verdict.CLUSTER, Verdict.REJECT, Verdict.DROP
POD, NODE, ANY, OUTSIDE = Client.LOCAL_POD, Client.NODE, Client.ANY, Client.OUTSIDE_SOURCE_RANGES
PLAIN, RELAYS = SourceNat(detects_pods=True), SourceNat(detects_pods=True, relays=True)


def test_source_ranges_do_not_overlap() -> None:
    ranges = ["203.0.113.128/25", "203.0.113.0/25", "10.0.0.0/8", "10.1.0.0/16"]
    made = plan(state(service(1, endpoints(1, "p1"), loadBalancerSourceRanges=ranges)), NODE_VIEW, CONFIG).ipv4
    by_kind = {
        front.kind: [str(source_range) for source_range in front.source_ranges] for front in made.fronts.values()
    }
    assert by_kind[FrontKind.LOAD_BALANCER_IP] == ["10.0.0.0/8", "203.0.113.0/24"]
    assert by_kind[FrontKind.CLUSTER_IP] == []


@pytest.mark.parametrize(("mode", "is_guarded"), [(CONFIG.mode, True), (IPTABLES, False)])
def test_source_ranges_without_endpoints_are_a_modes_own(mode: Semantics, *, is_guarded: bool) -> None:
    web = service(1, (), protocols=("TCP",), loadBalancerSourceRanges=["203.0.113.0/24"])
    (port,) = plan(state(web), NODE_VIEW, replace(CONFIG, mode=mode)).ipv4.ports.values()
    assert [branch.client for branch in port.load_balancer] == [OUTSIDE, ANY] if is_guarded else [ANY]
    assert [branch.client for branch in port.external] == [ANY]


@pytest.mark.parametrize(("mode", "wanted"), [(CONFIG.mode, ["10.1.0.2"]), (IPTABLES, ["10.1.0.2", "10.1.1.2"])])
def test_which_endpoints_are_hairpins(mode: Semantics, wanted: list[str]) -> None:
    (port,) = plan(
        state(service(1, HERE, protocols=("TCP",))), NODE_VIEW, replace(CONFIG, mode=mode)
    ).ipv4.ports.values()
    assert list(port.hairpins) == wanted


def test_protocols_that_a_mode_has_not_have_no_fronts() -> None:
    for protocol, mode in (("SCTP", USERSPACE), ("TCP . 1 } \nflush ruleset", CONFIG.mode)):
        web, *slices = service(1, (), protocols=("TCP",))
        assert isinstance(web, Service)
        ports = tuple(replace_struct(port, protocol=protocol) for port in web.ports)
        odd = replace_struct(web, spec=replace_struct(web.spec, ports=ports))
        assert not plan(state((odd, *slices)), NODE_VIEW, replace(CONFIG, mode=mode)).ipv4.fronts


@pytest.mark.parametrize(
    ("addresses", "ipv4", "ipv6"),
    [
        (("primary",), ["192.0.2.1/32"], ["2001:db8::1/128"]),
        ((), ["0.0.0.0/0"], ["::/0"]),
        ((ip_network("192.0.2.0/24"),), ["192.0.2.0/24"], ["::/0"]),
        (("primary", ip_network("10.0.0.0/8")), ["10.0.0.0/8", "192.0.2.1/32"], ["2001:db8::1/128"]),
        ((ip_network("127.0.0.0/8"), "primary"), ["127.0.0.0/8", "192.0.2.1/32"], ["2001:db8::1/128"]),
        ((ip_network("192.0.2.0/24"), ip_network("0.0.0.0/0")), ["0.0.0.0/0"], ["::/0"]),
        ((ip_network("10.0.0.0/8"), ip_network("2001:db8::/32")), ["10.0.0.0/8"], ["2001:db8::/32"]),
    ],
)
def test_where_node_ports_are(addresses: tuple[Any, ...], ipv4: list[str], ipv6: list[str]) -> None:
    config = replace(CONFIG, node_port_addresses=addresses)
    found = [[str(network) for network in empty_plan(family, config, BOTH).node_ports.networks] for family in FAMILIES]
    assert found == [ipv4, ipv6]


@pytest.mark.parametrize(
    ("mode", "address", "is_served"),
    [
        (CONFIG.mode, "127.0.0.1", False),
        (IPTABLES, "127.0.0.1", True),
        (IPTABLES, "::1", False),
        (USERSPACE, "::1", True),
    ],
)
def test_node_ports_at_localhost_are_a_modes_own(mode: Any, address: str, is_served: bool) -> None:
    config = replace(CONFIG, mode=mode, node_port_addresses=())
    made = plan(state(), NODE_VIEW, config)
    family_plan = made.of("IPv6" if ":" in address else "IPv4")
    assert (ip_address(address) in family_plan.node_ports) == is_served
    assert ip_address("203.0.113.77") not in family_plan.node_ports


@pytest.mark.parametrize(
    ("port", "is_used"),
    [(None, False), (-1, False), (0, False), (1, True), (65535, True), (65536, False), (70000, False)],
)
def test_only_port_numbers_that_a_packet_can_have(port: int | None, *, is_used: bool) -> None:
    row = EndpointSlice(SliceMeta("s", "shop"), "IPv4", (Endpoint(("10.1.0.1",)),), (EndpointPort("p", port),))
    found = candidates([row], "IPv4", "p", "TCP", "here")
    assert [(each.endpoint.address, each.endpoint.port) for each in found] == ([("10.1.0.1", port)] if is_used else [])


@pytest.mark.parametrize("is_first", [True, False])
def test_of_an_address_in_two_slices_the_one_that_is_not_terminating_counts(*, is_first: bool) -> None:
    leaving = Endpoint(("10.1.0.1",), Conditions(ready=False, serving=True, terminating=True))
    port = (EndpointPort("p", 80),)
    rows = [EndpointSlice(SliceMeta("a", "shop"), "IPv4", (leaving,), port)]
    rows.insert(is_first, EndpointSlice(SliceMeta("b", "shop"), "IPv4", (Endpoint(("10.1.0.1",)),), port))
    (found,) = candidates(rows, "IPv4", "p", "TCP", "here")
    assert (found.is_ready, found.is_terminating) == (True, False)


def test_an_endpoint_that_is_not_ready_stands_in_only_while_it_terminates() -> None:
    waiting = Endpoint(("10.1.0.1",), Conditions(ready=False, serving=True))
    row = EndpointSlice(SliceMeta("s", "shop"), "IPv4", (waiting,), (EndpointPort("p", 80),))
    (candidate,) = candidates([row], "IPv4", "p", "TCP", "here")
    assert not candidate.is_fallback
