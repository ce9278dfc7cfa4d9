"""Where node ports are, and what depends on it, as matches of rules."""

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest
from small_cluster import CONFIG

from kdns.cluster.state import State
from kdns.net import Family
from kdns.proxy.iptables.base_chains import Features, base_chains, node_port_destinations, serves_loopback
from kdns.proxy.iptables.mode import IPTABLES
from kdns.proxy.plan.config import NodeView
from kdns.proxy.plan.plan import FamilyPlan
from kdns.proxy.plan.planner import plan
from kdns.proxy.xtables.names import FIXED

NODE = NodeView("here", primary=tuple(map(ip_address, ("192.0.2.1", "2001:db8::1"))))
VIEW = replace(NODE, addresses=(*NODE.primary, ip_address("192.0.2.9"), ip_address("198.51.100.9")))
LOCAL = "-m addrtype --dst-type LOCAL"


def family_plan(family: Family, networks: str, **changed: bool) -> FamilyPlan:
    addresses = tuple(text if text == "primary" else ip_network(text) for text in networks.split())
    config = replace(CONFIG, mode=IPTABLES, node_port_addresses=addresses, **changed)  # type: ignore[arg-type]
    return plan(State(), VIEW, config).of(family)


DESTINATIONS: list[tuple[Family, str, bool, list[str]]] = [
    # family, nodePortAddresses, localhostNodePorts, matches of destinations
    ("IPv4", "", True, [LOCAL]),
    ("IPv4", "0.0.0.0/0", True, [LOCAL]),
    ("IPv4", "", False, [f"! -d 127.0.0.0/8 {LOCAL}"]),
    ("IPv6", "", True, [f"! -d ::1/128 {LOCAL}"]),
    ("IPv4", "primary", True, ["-d 192.0.2.1/32"]),
    ("IPv6", "primary", True, ["-d 2001:db8::1/128"]),
    ("IPv4", "192.0.2.0/24", True, ["-d 192.0.2.1/32", "-d 192.0.2.9/32"]),
    ("IPv4", "203.0.113.0/24", True, []),
    ("IPv4", "127.0.0.0/8", True, ["-d 127.0.0.0/8"]),
    ("IPv4", "127.0.0.0/8", False, []),
    ("IPv4", "127.1.0.0/16 192.0.2.1/32", True, ["-d 127.1.0.0/16", "-d 192.0.2.1/32"]),
    ("IPv4", "126.0.0.0/7", True, ["-d 127.0.0.0/8"]),
    ("IPv6", "fe80::/64", True, [f"-d fe80::/64 {LOCAL}"]),
    ("IPv6", "fe00::/8", True, [f"-d fe80::/10 {LOCAL}"]),
    ("IPv6", "::1/128", True, []),
    ("IPv6", "192.0.2.0/24", True, [f"! -d ::1/128 {LOCAL}"]),
]


@pytest.mark.parametrize(("family", "networks", "localhost", "wanted"), DESTINATIONS)
def test_destinations_of_node_ports(family: Family, networks: str, localhost: bool, wanted: list[str]) -> None:
    made = family_plan(family, networks, localhost_node_ports=localhost)
    assert list(node_port_destinations(made)) == wanted
    (services,) = (
        base_chain
        for base_chain in base_chains(made, Features())
        if (base_chain.table, base_chain.name) == ("nat", "KUBE-SERVICES")
    )
    assert len(services.rules) == len(wanted)
    (firewall,) = (base_chain for base_chain in base_chains(made, Features()) if base_chain.name == "KUBE-FIREWALL")
    has_loopback = wanted == [LOCAL] or any(each.startswith("-d 127.") for each in wanted)
    assert serves_loopback(made) is bool(firewall.rules) is has_loopback


def test_the_fixed_chains_are_those_that_are_named() -> None:
    made = [(base_chain.table, base_chain.name) for base_chain in base_chains(family_plan("IPv4", ""), Features())]
    assert sorted(made) == sorted((table, name) for table, names in FIXED.items() for name in names)
