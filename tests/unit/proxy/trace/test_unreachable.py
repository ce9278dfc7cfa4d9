"""Clients whose packets stay on the node: which endpoints they cannot reach, and loopback addresses of balancers."""

from dataclasses import replace
from ipaddress import ip_address

import pytest
from msgspec import structs
from small_cluster import CONFIG, ENDPOINTS, NODE_VIEW, endpoints, planned, service, state

from kdns.proxy.iptables.mode import IPTABLES
from kdns.proxy.nftables.mode import NFTABLES
from kdns.proxy.plan.endpoints import ServiceEndpoint
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import plan
from kdns.proxy.plan.semantics import Semantics
from kdns.proxy.trace.explain import explained
from kdns.proxy.trace.trace import Fate, Packet, trace
from kdns.proxy.userspace.mode import USERSPACE

LEFT = "the kernel lets nothing from {} out of this node"
UNLESS = "unless net.ipv4.conf.all.route_localnet is 1"


@pytest.mark.parametrize(
    ("mode", "source", "target", "port", "lost", "why"),
    [
        (NFTABLES, "127.0.0.1", "10.96.0.1", 80, "h1 r1", f"from 127.0.0.1 to what is not this node's own, {UNLESS}"),
        (USERSPACE, "127.0.0.1", "10.96.0.1", 80, "h1 r1", f"from 127.0.0.1 to what is not this node's own, {UNLESS}"),
        (IPTABLES, "127.0.0.1", "10.96.0.1", 80, "", ""),
        (NFTABLES, "127.0.0.1", "192.0.2.1", 30001, "r1", f"{LEFT.format('127.0.0.1')}, {UNLESS}"),
        (USERSPACE, "127.0.0.1", "192.0.2.1", 30001, "", ""),
        (NFTABLES, "::1", "fd00:96::1", 80, "r1", LEFT.format("::1")),
        (IPTABLES, "::1", "fd00:96::1", 80, "r1", LEFT.format("::1")),
        (USERSPACE, "::1", "fd00:96::1", 80, "", ""),
        (NFTABLES, "fe80::7", "2001:db8:2::1", 30001, "r1", "the kernel forwards nothing from the link-local address"),
        (NFTABLES, "192.0.2.1", "10.96.0.1", 80, "", ""),
        (NFTABLES, "169.254.4.2", "10.96.0.1", 80, "", ""),
    ],
)
def test_who_is_lost(mode: Semantics, source: str, target: str, port: int, lost: str, why: str) -> None:
    known = state(service(1, endpoints(1, "r1", "h1")))
    made = plan(known, NODE_VIEW, replace(CONFIG, mode=mode))
    found = explained(known, made, Packet(ip_address(source), ip_address(target), "TCP", port))
    told = found.trace
    assert found.unused == (), "no endpoint is left out for its own sake"
    assert told.fate is (Fate.DROPPED if lost == "h1 r1" else Fate.FORWARDED)
    said = [reason for reason in told.reasons if "the kernel" in reason]
    assert [why in reason for reason in said] == [True] * bool(lost)
    if lost == "r1":
        assert said[0].startswith(f"but {ENDPOINTS['r1'][':' in source]} will not be reached: ")


@pytest.mark.parametrize(
    ("mode", "source", "wanted"),
    [
        (NFTABLES, "10.1.0.2", Fate.DROPPED),
        (NFTABLES, "192.0.2.100", Fate.DROPPED),
        (NFTABLES, "192.0.2.1", Fate.FORWARDED),
        (USERSPACE, "10.1.0.2", Fate.FORWARDED),
        (IPTABLES, "10.1.0.2", Fate.FORWARDED),
    ],
)
def test_an_endpoint_at_loopback_is_for_the_node_alone(mode: Semantics, source: str, wanted: Fate) -> None:
    family_plan = planned(service(1, endpoints(1, "r1")), mode=mode).ipv4
    front = next(each for key, each in family_plan.fronts.items() if key.address == "10.96.0.1")
    here = structs.replace(front.port.endpoints, cluster=(ServiceEndpoint("127.0.0.1", 8001),))
    port = structs.replace(front.port, endpoints=here)
    moved = replace(family_plan, fronts={front.key: structs.replace(front, port=port)})
    packet = Packet(ip_address(source), ip_address("10.96.0.1"), front.key.protocol, front.key.port)
    told = trace(Plan(moved, moved), packet)
    assert told.fate is wanted
    assert any("takes nothing for loopback" in reason for reason in told.reasons) == (wanted is Fate.DROPPED)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1"])
def test_a_balancers_loopback_address_is_not_captured(address: str) -> None:
    known = state(service(1, endpoints(1, "r1"), ingress=[{"ip": address}]))
    packet = Packet(ip_address("::1" if ":" in address else "127.0.0.1"), ip_address(address), "TCP", 80)
    made = plan(known, NODE_VIEW, CONFIG)
    assert not [key for family_plan in (made.ipv4, made.ipv6) for key in family_plan.fronts if key.address == address]
    found = explained(known, made, packet)
    assert found.trace.fate is Fate.UNTOUCHED
    assert "it is a load balancer IP of Service shop/s1, but a loopback address" in found.reasons[-1]
    relayed = plan(known, NODE_VIEW, replace(CONFIG, mode=USERSPACE))
    assert trace(relayed, packet).fate is Fate.FORWARDED
