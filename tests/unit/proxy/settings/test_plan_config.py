"""What settings and the Node object say together: the node as the plan sees it."""

from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest
from settings_text import read

from kdns.cluster.objects import Node, NodeAddress, NodeLabels, NodeMeta, NodeSpec, NodeStatus
from kdns.net import parse_network, parse_unmapped_address
from kdns.proxy.kernelspace.settings import WindowsNetwork, windows_network
from kdns.proxy.plan.config import LocalPods, NodeView
from kdns.proxy.settings.plan_config import node_view, proxy_config
from kdns.proxy.userspace.mode import USERSPACE

N1 = Node(
    NodeMeta("n1", NodeLabels("a")),
    NodeSpec("10.244.1.0/24", ("10.244.1.0/24", "fd00:1::/80")),
    NodeStatus((
        NodeAddress("ExternalIP", "198.51.100.1"), NodeAddress("InternalIP", "192.0.2.1"),
        NodeAddress("InternalIP", "fd00::1"), NodeAddress("Hostname", "n1"), NodeAddress("InternalIP", "192.0.2.9"),
    )),
)  # fmt: skip


def pods(*texts: str) -> LocalPods:
    return LocalPods(tuple(network for text in texts if (network := parse_network(text))))


def addresses(*texts: str) -> tuple[Any, ...]:
    return tuple(map(parse_unmapped_address, texts))


OWN = addresses("10.0.0.9")


@pytest.mark.parametrize(
    ("node", "bind", "known", "expected"),
    [
        (N1, "0.0.0.0", None, NodeView("n1", "a", addresses("192.0.2.1", "fd00::1"),
         addresses("fd00::1", "192.0.2.1", "192.0.2.9", "198.51.100.1"))),
        (N1, "198.51.100.7", (), NodeView("n1", "a", addresses("198.51.100.7", "fd00::1"),
         addresses("198.51.100.7", "fd00::1"))),
        (None, "", addresses("127.0.0.1", "10.0.0.1", "::1"),
         NodeView("n1", "", OWN, addresses("10.0.0.1", "10.0.0.9"))),
        (N1, "", addresses("10.0.0.1"), NodeView("n1", "a", OWN, addresses("10.0.0.1", "10.0.0.9"))),
        (N1, "", addresses("10.0.0.1", "fd00::1"), NodeView("n1", "a", addresses("192.0.2.1", "fd00::1"),
         addresses("10.0.0.1", "fd00::1", "192.0.2.1"))),
        (None, "::", None, NodeView("n1")),
    ],
)  # fmt: skip
def test_the_node(node: Node | None, bind: str, known: Any, expected: NodeView) -> None:
    found = node_view(node, "n1", bind_address=bind, addresses=known, defaults=OWN)
    assert replace(found, addresses=()) == replace(expected, addresses=())
    assert set(found.addresses) == set(expected.addresses)


@pytest.mark.parametrize(
    ("text", "node", "local_pods", "node_ports"),
    [
        ("", N1, None, ("primary",)),
        ("clusterCIDR: '10.0.0.0/8,fd00::/64'", N1, pods("10.0.0.0/8", "fd00::/64"), ("primary",)),
        ("detectLocalMode: NodeCIDR", N1, pods("10.244.1.0/24", "fd00:1::/80"), ("primary",)),
        ("detectLocalMode: NodeCIDR", None, None, ("primary",)),
        ("detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: b}", N1,
         LocalPods(bridge="b"), ("primary",)),
        ("detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: v}", N1,
         LocalPods(interface_prefix="v"), ("primary",)),
        ("mode: iptables", N1, None, ()),
        ("mode: iptables\nnodePortAddresses: [primary]", N1, None, ("primary",)),
        ("nodePortAddresses: [10.0.0.0/8]", N1, None, (parse_network("10.0.0.0/8"),)),
        ("nodePortAddresses: [10.0.0.0/8, primary, localhost]", N1, None,
         (parse_network("10.0.0.0/8"), "primary", parse_network("127.0.0.0/8"), parse_network("::1/128"))),
        ("nodePortAddresses: [all, 10.0.0.0/8]", N1, None,
         tuple(map(parse_network, ("0.0.0.0/0", "::/0", "10.0.0.0/8")))),
    ],
)  # fmt: skip
def test_the_configuration_of_the_plan(text: str, node: Node | None, local_pods: Any, node_ports: Any) -> None:
    found = proxy_config(read(text), node, ("10.96.0.0/16", "fd00:96::/112"))
    assert (found.local_pods, found.node_port_addresses) == (local_pods, node_ports)
    assert list(map(str, found.service_cidrs)) == ["10.96.0.0/16", "fd00:96::/112"]


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("mode: userspace", "mode", USERSPACE),
        ("", "localhost_node_ports", True),
        ("mode: iptables\niptables: {localhostNodePorts: false}", "localhost_node_ports", False),
        ("mode: userspace\niptables: {localhostNodePorts: false}", "localhost_node_ports", False),
        ("", "node_hints", True),
        ("featureGates: {PreferSameTrafficDistribution: false}", "node_hints", False),
        ("", "external_ips", True),
        ("featureGates: {AllowServiceExternalIPs: false}", "external_ips", False),
        ("mode: nftables\nnftables: {masqueradeAll: true}", "masquerade_all", True),
        ("mode: nftables\niptables: {masqueradeAll: true}", "masquerade_all", False),
        ("mode: ipvs\niptables: {masqueradeAll: true}", "masquerade_all", True),
        ("mode: userspace\nnftables: {masqueradeAll: true}", "masquerade_all", True),
        ("mode: kernelspace", "masquerade_all", True),
        ("mode: kernelspace\nwinkernel: {enableDSR: true}", "masquerade_all", False),
        ("mode: kernelspace\nwinkernel: {enableDSR: true}\niptables: {masqueradeAll: true}", "masquerade_all", True),
    ],
)
def test_the_rest_of_the_configuration_of_the_plan(text: str, field: str, value: object) -> None:
    assert getattr(proxy_config(read(text), None), field) == value


def test_the_section_winkernel() -> None:
    given = "mode: kernelspace\nwinkernel: {networkName: Pods, sourceVip: 10.244.1.2, forwardHealthCheckVip: true"
    assert windows_network(read(f"{given}}}")) == WindowsNetwork("Pods", "10.244.1.2", "cbr0", 10256)
    other = read(f"healthzBindAddress: 0.0.0.0:99\n{given}, rootHnsEndpointName: root}}")
    assert windows_network(other) == WindowsNetwork("Pods", "10.244.1.2", "root", 99)
    assert windows_network(read("winkernel: {networkName: Pods}")) == WindowsNetwork("Pods")


def test_the_protected_ports() -> None:
    text = "healthzBindAddress: 0.0.0.0:10300\nprotectedPorts: [2222, '10.0.0.0/8:22/tcp', '[2001:db8::/32]:53/UDP']"
    api_servers = [(ip_address("203.0.113.1"), 443), (ip_address("2001:db8::1"), 443)]
    found = proxy_config(read(text), None, (), api_servers)
    assert [
        (protected_port.port, protected_port.protocol, str(protected_port.network or ""))
        for protected_port in found.protected_ports
    ] == [
        (22, "TCP", ""),
        (10250, "TCP", ""),
        (10300, "TCP", ""),
        (443, "TCP", "203.0.113.1/32"),
        (443, "TCP", "2001:db8::1/128"),
        (2222, "", ""),
        (22, "TCP", "10.0.0.0/8"),
        (53, "UDP", "2001:db8::/32"),
    ]
