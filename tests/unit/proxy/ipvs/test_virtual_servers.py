"""Which virtual servers a front has, and how they choose."""

from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

import pytest
from small_cluster import CONFIG, NODE_VIEW, endpoints, planned, service, state

from kdns.net import Family
from kdns.netlink.ipvs import Destination, ServerOptions, VirtualServer, VirtualServerKey
from kdns.netlink.uapi import IP_VS_SVC_F_PERSISTENT, IP_VS_SVC_F_SCHED2
from kdns.proxy.ipvs.ipvs import Ipvs, IpvsOptions
from kdns.proxy.ipvs.mode import IPVS
from kdns.proxy.ipvs.sets import LOOP_BACK, MAX_NAME, SETS, SOURCE_CIDR, SOURCE_IP, set_name
from kdns.proxy.ipvs.settings import SCHEDULERS, chosen_by
from kdns.proxy.plan.planner import plan

BOTH: Final = {("10.1.0.2", 8080): Destination(), ("10.1.1.2", 8080): Destination()}


def content(*objects: Any, options: IpvsOptions | None = None, **changed: Any) -> Ipvs:
    config = replace(CONFIG, mode=IPVS, **changed)
    family_plan = plan(state(*objects), NODE_VIEW, config).ipv4
    return Ipvs(family_plan, options) if options else Ipvs(family_plan)


def web(**spec: Any) -> Any:
    return service(1, endpoints(1, "p1", "r1"), protocols=("TCP",), **spec)


def test_a_service_has_a_virtual_server_at_each_of_its_addresses_and_at_the_nodes() -> None:
    made = content(web(), node_port_addresses=())
    at_nodes = {VirtualServerKey(str(own), 30001, "TCP") for own in NODE_VIEW.addresses if own.version == 4}
    assert at_nodes < set(made.virtual_servers)
    assert {key.address for key in made.virtual_servers} - {key.address for key in at_nodes} == made.addresses
    assert {
        virtual_server == VirtualServer(ServerOptions("rr"), BOTH) for virtual_server in made.virtual_servers.values()
    } == {True}


@pytest.mark.parametrize(
    ("scheduler", "spec", "wanted"),
    [
        ("lc", {}, ServerOptions("lc")),
        ("mh", {}, ServerOptions("mh", IP_VS_SVC_F_SCHED2)),
        ("rr", {"sessionAffinity": "ClientIP"}, ServerOptions("rr", IP_VS_SVC_F_PERSISTENT, 10800)),
        (
            "mh",
            {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}},
            ServerOptions("mh", IP_VS_SVC_F_SCHED2 | IP_VS_SVC_F_PERSISTENT, 60),
        ),
    ],
)
def test_schedulers_and_affinity(scheduler: str, spec: dict[str, Any], wanted: ServerOptions) -> None:
    made = content(web(**spec), options=IpvsOptions(scheduler=scheduler)).virtual_servers.values()
    assert {each.options for each in made} == {wanted}


def test_each_scheduler_says_how_it_chooses() -> None:
    page = (Path(__file__).parents[4] / "docs" / "ipvs.md").read_text()
    assert [name for name in SCHEDULERS if not chosen_by(name) or f"`{name}`" not in page] == []
    assert chosen_by("new") == "as the kernel's scheduler new chooses"


def test_an_address_of_the_node_is_not_put_on_kube_ipvs0() -> None:
    made = content(web(externalIPs=["192.0.2.9", "198.51.100.7"]))
    assert VirtualServerKey("192.0.2.9", 80, "TCP") in made.virtual_servers
    assert made.addresses == {"10.96.0.1", "198.51.100.7", "198.51.101.1"}


def test_virtual_servers_of_others_are_left_alone() -> None:
    made = content(web(), options=IpvsOptions(excluded=(ip_network("203.0.113.0/24"),)))
    there = [
        *made.virtual_servers,
        VirtualServerKey("203.0.113.7", 80, "TCP"),
        VirtualServerKey("fd00::1", 80, "TCP"),
        VirtualServerKey("198.18.0.1", 80, "TCP"),
    ]
    assert [key for key in there if made.is_stale(key)] == [VirtualServerKey("198.18.0.1", 80, "TCP")]


def test_names_of_sets_are_as_long_as_the_kernel_has_them_and_differ() -> None:
    names = [set_name(name, family) for name in SETS for family in ("IPv4", "IPv6")]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) == MAX_NAME
    assert set_name("KUBE-LOAD-BALANCER-SOURCE-CIDR", "IPv6") == "KUBE-6-LOAD-BALANCER-SOURCE-CID"


RANGES: Final = ["198.51.101.1/32", "2001:db8:6::1/128", "203.0.113.0/24", "2001:db8:7::/64"]
GUARDED: Final[dict[str, Any]] = {"loadBalancerSourceRanges": RANGES}
PORTS: Final = [{"name": "tcp", "protocol": "TCP", "port": 80}]
INSIDE: Final[dict[str, Any]] = {"externalIPs": [], "ingress": [], "ports": PORTS, "type": "ClusterIP"}


@pytest.mark.parametrize(
    ("spec", "name", "family", "wanted"),
    [
        (GUARDED, SOURCE_IP, "IPv4", ["198.51.101.1,tcp:80,198.51.101.1"]),
        (GUARDED, SOURCE_CIDR, "IPv4", ["198.51.101.1,tcp:80,203.0.113.0/24"]),
        (GUARDED, SOURCE_IP, "IPv6", ["2001:db8:6::1,tcp:80,2001:db8:6::1"]),
        (GUARDED, SOURCE_CIDR, "IPv6", ["2001:db8:6::1,tcp:80,2001:db8:7::/64"]),
        ({}, LOOP_BACK, "IPv4", ["10.1.0.2,tcp:8080,10.1.0.2"]),
        ({**INSIDE, "internal": "Local"}, LOOP_BACK, "IPv4", ["10.1.0.2,tcp:8080,10.1.0.2"]),
        ({**INSIDE, "internal": "Local"}, LOOP_BACK, "IPv6", ["fd00:1::2,tcp:8080,fd00:1::2"]),
    ],
)
def test_entries(spec: dict[str, Any], name: str, family: Family, wanted: list[str]) -> None:
    web = service(1, endpoints(1, "p1", "r1"), protocols=("TCP",), **spec)
    made = Ipvs(planned(web, mode=IPVS).of(family))
    assert list(made.sets[set_name(name, family)].entries) == wanted
