"""The rows of proxy modes, here and in the dataplane."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from ipaddress import ip_address, ip_network
from typing import Any

import msgspec
import pytest
from small_cluster import CONFIG, NODE_VIEW, endpoints, service, state

from kdns.cluster.objects import Service
from kdns.proxy.iptables.mode import IPTABLES
from kdns.proxy.modes import MODES
from kdns.proxy.nftables.mode import NFTABLES
from kdns.proxy.plan.node_ports import NodePortAddresses
from kdns.proxy.plan.plan import FamilyPlan, Plan
from kdns.proxy.plan.planner import Planner, plan
from kdns.proxy.plan.semantics import Semantics
from kdns.proxy.settings.plan_config import proxy_config
from kdns.proxy.settings.settings import Settings
from kdns.proxy.takeover.io.modes import runtime
from kdns.proxy.trace.explain import explained
from kdns.proxy.trace.trace import Fate, Packet, trace

RENDERS_OR_RUNS = {"monitor", "proxier", "relay_set", "table", "tables", "text"}
"""Modules of a mode that renders or runs."""


def test_each_mode_has_a_room_that_starts_it() -> None:
    assert all(mode is runtime(name).mode for name, mode in MODES.items())
    assert all(fallback in MODES.keys() - {mode.name} for mode in MODES.values() for fallback in mode.fallbacks)
    with pytest.raises(KeyError):
        runtime("netsh")


def test_a_mode_is_imported_when_it_runs_or_is_rendered() -> None:
    """Clean-ups of all modes are: a proxy of any mode may have run before."""
    rooms = tuple(f"{mode.room}." for mode in MODES.values())
    program = (
        "import sys, kdns.apps.proxy\n"
        "from kdns.proxy.takeover.io.modes import clean_ups\n"
        "clean_ups()\n"
        f"print([each for each in sys.modules if each.startswith({rooms})"
        f" and each.rpartition('.')[2] in {RENDERS_OR_RUNS}])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


LOCALHOST, VIP = ip_address("127.0.0.1"), ip_address("10.96.0.1")
LINK_LOCAL = ip_address("fe80::1")
SOON = {"clientIP": {"timeoutSeconds": 60}}


def planned(mode: Semantics) -> FamilyPlan:
    """The plan of a Service with everything that modes may treat differently."""
    web = service(
        1,
        endpoints(1, "p1", "r1"),
        loadBalancerSourceRanges=["203.0.113.0/24"],
        external="Local",
        healthCheckNodePort=32000,
    )
    lonely = service(2, loadBalancerSourceRanges=["203.0.113.0/24"])
    config = replace(CONFIG, mode=mode, node_port_addresses=())
    return plan(state(web, lonely), NODE_VIEW, config).ipv4


def clients(family_plan: FamilyPlan, number: int) -> list[Any]:
    return [
        branch.client
        for port in family_plan.ports.values()
        if port.name.service == f"s{number}"
        for branch in port.load_balancer
    ]


def node_ports(mode: Semantics, addresses: tuple[Any, ...] = ()) -> NodePortAddresses:
    """Where node ports are in IPv6."""
    return plan(state(), NODE_VIEW, replace(CONFIG, mode=mode, node_port_addresses=addresses)).ipv6.node_ports


def limits(mode: Semantics, number: int, **spec: Any) -> set[str]:
    """What a mode does not do for a Service with two endpoints, by both families."""
    made = plan(state(service(number, endpoints(number, "p1", "r1"), **spec)), NODE_VIEW, replace(CONFIG, mode=mode))
    return {text for _, text in made.limits}


def uneven(mode: Semantics) -> FamilyPlan:
    of_one, of_two = endpoints(1, "p1"), endpoints(1, "r1", "r2", slice_name="b")
    ports = [msgspec.structs.replace(port, port=9090) for port in of_two[0].ports or ()]
    others = [msgspec.structs.replace(each, ports=tuple(ports)) for each in of_two]
    return plan(state(service(1, of_one), others), NODE_VIEW, replace(CONFIG, mode=mode)).ipv4


def undefined(mode: Semantics) -> Fate:
    """What happens to a packet to an undefined port of a cluster IP."""
    family_plan = planned(mode)
    return trace(Plan(family_plan, family_plan), Packet(ip_address("10.1.0.3"), VIP, "TCP", 9)).fate


SEMANTICS: dict[str, tuple[object, Callable[[Semantics], object]]] = {
    # field → another value than mode nftables', and what has to differ then
    "protocols": (frozenset({"TCP"}), lambda mode: len(planned(mode).fronts)),
    "guards_without_endpoints": (False, lambda mode: clients(planned(mode), 2)),
    "rejects_undefined_ports": (False, undefined),
    "drops_unallocated": (False, lambda mode: planned(mode).unallocated),
    "hairpins_everywhere": (True, lambda mode: [port.hairpins for port in planned(mode).ports.values()]),
    "loopback_node_ports": (frozenset({"IPv4"}), lambda mode: LOCALHOST in planned(mode).node_ports),
    "accepts_health_checks": (True, lambda mode: planned(mode).accepted_health_check_ports),
    "link_local_node_ports": (False, lambda mode: LINK_LOCAL in node_ports(mode)),
    "has_one_list": (True, lambda mode: [port.external for port in planned(mode).ports.values()]),
    "owns_addresses": (True, lambda mode: planned(mode).virtual_ips),
    "relays": (True, lambda mode: [port.cluster_ip for port in planned(mode).ports.values()]),
    "treats_clients_alike": (True, lambda mode: [port.external for port in planned(mode).ports.values()]),
    "restricts_sources": (False, lambda mode: clients(planned(mode), 1)),
    "restricts_node_ports": (False, lambda mode: node_ports(mode, ("primary",)).networks),
    "times_affinity": (False, lambda mode: limits(mode, 2, sessionAffinity="ClientIP", sessionAffinityConfig=SOON)),
    "has_one_target_port": (True, lambda mode: [port.endpoints for port in uneven(mode).ports.values()]),
    "supported_endpoints": (1, lambda mode: limits(mode, 1)),
}


def test_a_packet_to_a_front_without_endpoints_is_left_alone_where_the_mode_cannot_refuse() -> None:
    for ends, refused in (((), Fate.REJECTED), (("r1",), Fate.DROPPED)):
        objects = service(1, endpoints(1, *ends), internal="Local")
        for mode, fate in ((NFTABLES, refused), (replace(NFTABLES, refuses=False), Fate.UNTOUCHED)):
            made = plan(state(objects), NODE_VIEW, replace(CONFIG, mode=mode))
            found = trace(made, Packet(ip_address("10.1.0.3"), VIP, "TCP", 80))
            assert (found.fate, found.front is None) == (fate, False)


def test_what_a_loopback_range_does_not_allocate_is_not_dropped() -> None:
    """Relays listen there themselves, and the kernel refuses all else."""
    ranges = (*CONFIG.service_cidrs, ip_network("127.96.0.0/16"))
    family_plan = plan(state(), NODE_VIEW, replace(CONFIG, service_cidrs=ranges)).ipv4
    assert family_plan.unallocated == plan(state(), NODE_VIEW, CONFIG).ipv4.unallocated != ()


@pytest.mark.parametrize("name", SEMANTICS)
def test_semantics_govern_the_plan(name: str) -> None:
    other, made = SEMANTICS[name]
    changed = replace(NFTABLES, **{name: other})  # type: ignore[arg-type]
    assert made(NFTABLES) != made(changed)


def test_where_node_ports_are_by_default_is_semantics_too() -> None:
    found = {name: proxy_config(Settings(mode=name), None).node_port_addresses for name in ("nftables", "iptables")}
    assert found == {"nftables": ("primary",), "iptables": ()}


def test_route_localnet_is_semantics_too() -> None:
    def fate(mode: Semantics) -> object:
        made = plan(state(service(1, endpoints(1, "r1"))), NODE_VIEW, replace(CONFIG, mode=mode))
        return trace(made, Packet(LOCALHOST, VIP, "TCP", 80)).fate

    assert fate(IPTABLES) is not fate(replace(IPTABLES, routes_loopback=False))


def test_each_field_says_what_it_means() -> None:
    meanings = [field.metadata["meaning"] for field in fields(Semantics) if field.name != "name"]
    assert all(meanings)
    assert len(set(meanings)) == len(meanings)


def test_no_semantics_are_left_out_above() -> None:
    assert {field.name for field in fields(Semantics)} == {
        *SEMANTICS,
        "name",
        "primary_node_ports",
        "refuses",
        "routes_loopback",
    }


LIMITED: list[tuple[str, dict[str, Any], Semantics, str]] = [
    (
        "source ranges",
        {"loadBalancerSourceRanges": ["203.0.113.0/24", "2001:db8::/32"]},
        replace(NFTABLES, restricts_sources=False),
        "loadBalancerSourceRanges has no effect in mode nftables: every client is served",
    ),
    (
        "node ports",
        {},
        replace(NFTABLES, restricts_node_ports=False),
        "nodePortAddresses has no effect in mode nftables: node ports are at all addresses of the node",
    ),
    (
        "affinity",
        {"sessionAffinity": "ClientIP", "sessionAffinityConfig": SOON},
        replace(NFTABLES, times_affinity=False),
        "the timeoutSeconds of session affinity have no effect in mode nftables",
    ),
    (
        "many endpoints",
        {},
        replace(NFTABLES, supported_endpoints=1),
        "mode nftables supports 1 endpoints of a Service, and it has 2",
    ),
]
"""What → what differs in the Service, the mode, and its limit."""


@pytest.mark.parametrize(("spec", "mode", "text"), [row[1:] for row in LIMITED], ids=[row[0] for row in LIMITED])
def test_what_a_mode_does_not_do_is_said_of_the_service(spec: dict[str, Any], mode: Semantics, text: str) -> None:
    assert limits(mode, 1, **spec) == {text}
    assert limits(NFTABLES, 1, **spec) == set()


def test_a_limit_is_a_reason_at_the_fronts_that_it_is_about() -> None:
    objects = service(1, endpoints(1, "p1"), loadBalancerSourceRanges=["203.0.113.0/24"])
    mode = replace(NFTABLES, restricts_sources=False)
    made = plan(state(objects), NODE_VIEW, replace(CONFIG, mode=mode))
    for target, is_about in (("198.51.101.1", True), ("198.51.100.1", False), ("10.96.0.1", False)):
        found = trace(made, Packet(ip_address("192.0.2.100"), ip_address(target), "TCP", 80))
        assert any("loadBalancerSourceRanges" in reason for reason in found.reasons) == is_about
        assert found.fate is Fate.FORWARDED


def test_a_limit_goes_with_its_service() -> None:
    known = state(service(1, endpoints(1, "p1", "r1")))
    planner = Planner(known, NODE_VIEW, replace(CONFIG, mode=replace(NFTABLES, supported_endpoints=1)))
    assert planner.plan.limits
    change = known.delete(Service, ("shop", "s1"))
    planner.changed([change] if change else [])
    assert planner.plan.limits == {}


def test_a_protocol_that_a_mode_does_not_serve_is_refused_with_the_reason() -> None:
    mode = replace(NFTABLES, protocols=frozenset({"TCP", "UDP"}))
    made = plan(state(service(1, endpoints(1, "p1"))), NODE_VIEW, replace(CONFIG, mode=mode))
    (refusal,) = made.ipv4.refusals(VIP, "SCTP", 80)
    assert refusal.reason == "mode nftables serves TCP and UDP, not SCTP"
    assert (("shop", "s1"), "cluster IP 10.96.0.1:80/SCTP") in made.refusals


def test_an_endpoint_of_another_port_is_left_out_with_the_reason() -> None:
    of_one, of_two = endpoints(1, "p1"), endpoints(1, "r1", "r2", slice_name="b")
    ports = [msgspec.structs.replace(port, port=9090) for port in of_two[0].ports or ()]
    known = state(service(1, of_one), [msgspec.structs.replace(each, ports=tuple(ports)) for each in of_two])
    mode = replace(NFTABLES, has_one_target_port=True)
    made = plan(known, NODE_VIEW, replace(CONFIG, mode=mode))
    found = explained(known, made, Packet(ip_address("10.1.0.3"), VIP, "TCP", 80))
    assert {endpoint.port for endpoint in found.trace.endpoints} == {9090}
    assert [each.reason for each in found.unused] == [
        "has another port than 9090: mode nftables uses endpoints of one port only"
    ]
    assert "mode nftables uses endpoints of one port only, and the endpoints have the ports 8080, 9090" in found.reasons
