"""The ways of packets to a Service on its page, and what a plan shows on the status page."""

from dataclasses import replace

import pytest
from small_cluster import CONFIG, NODE_VIEW, endpoints, service, state

from kdns.net import Address
from kdns.proxy.nftables.mode import NFTABLES
from kdns.proxy.plan.planner import plan
from kdns.proxy.status.view import SHOWN, plan_section, refused_section, running_advice
from kdns.proxy.status.ways import ways
from kdns.status.page import Link

OBJECTS = (
    service(1, endpoints(1, "p1", "r1"), protocols=("TCP",), clusterIP="10.96.0.1", clusterIPs=["10.96.0.1"]),
    service(2, protocols=("TCP",), clusterIP="10.96.0.2", clusterIPs=["10.96.0.2"]),
    service(3, endpoints(3, "r1"), protocols=("TCP",), clusterIP="10.96.0.3", external="Local"),
)


def rows(number: int, kind: str) -> list[tuple[str, str]]:
    """From whom, and the way, in IPv4."""
    known = state(*OBJECTS)
    planned = plan(known, NODE_VIEW, CONFIG)
    asked = known.services["shop", f"s{number}"]
    return [
        (str(who), str(way))
        for to, known_as, who, way in ways(planned, asked, "/t")
        if known_as == kind and "[" not in to[0]
    ]


def test_clients_with_the_same_way_share_a_row() -> None:
    (pods, of_pods), (others, of_others) = rows(1, "cluster IP")
    assert (pods, others) == (
        "Pods of this node, such as 10.1.0.1",
        "clients elsewhere and this node, such as 192.0.2.2",
    )
    ends = "one of 2 endpoints, each with a chance of 1/2: 10.1.0.2:8080, 10.1.1.2:8080"
    assert of_pods == f"forwarded; {ends}; the endpoint sees 10.1.0.1, a Pod of this node"
    assert "the endpoint sees the node's address" in of_others
    assert rows(2, "cluster IP") == [
        (
            "Pods of this node, clients elsewhere and this node, such as 10.1.0.1",
            "rejected, the sender is told at once; no endpoint is ready, on any node",
        )
    ]


def test_a_local_policy_concerns_others_only() -> None:
    fates = {who.partition(",")[0]: way for who, way in rows(3, "node port")}
    assert fates.keys() == {"Pods of this node", "clients elsewhere", "this node"}
    assert "the one endpoint is 10.1.1.2:8080" in fates["Pods of this node"]
    assert "the one endpoint is 10.1.1.2:8080" in fates["this node"]
    assert fates["clients elsewhere"].startswith("dropped, the sender hears nothing")


def test_a_destination_of_another_service_says_whose_it_is() -> None:
    first = service(1, endpoints(1, "p1"), protocols=("TCP",), created="2020-01-01T00:00:00Z")
    second = service(4, endpoints(4, "p1"), protocols=("TCP",), externalIPs=["198.51.100.1"])
    known = state(first, second)
    asked = known.services["shop", "s4"]
    (way,) = {way for _, kind, _, way in ways(plan(known, NODE_VIEW, CONFIG), asked, "/t") if kind == "external IP"}
    assert "198.51.100.1 port 80/TCP is an external IP of Service shop/s1:tcp" in str(way)


def test_the_first_cell_leads_to_the_trace() -> None:
    known = state(*OBJECTS)
    to, *_ = next(iter(ways(plan(known, NODE_VIEW, CONFIG), known.services["shop", "s1"], "/t")))
    assert to == Link("10.96.0.1:80/TCP", "/t?from=10.1.0.1&to=10.96.0.1%3A80%2FTCP")


@pytest.mark.parametrize("addresses", [(), NODE_VIEW.addresses])
def test_node_ports_of_a_node_without_addresses(addresses: tuple[Address, ...]) -> None:
    node = replace(NODE_VIEW, primary=addresses, addresses=addresses)
    known = state(*OBJECTS)
    shown = [
        way
        for _, kind, _, way in ways(plan(known, node, CONFIG), known.services["shop", "s1"], "/t")
        if kind == "node port"
    ]
    assert ("no IPv4 address of this node has node ports" in shown) is (not addresses)


def test_what_is_refused_and_what_is_warned_of() -> None:
    config = replace(CONFIG, mode=replace(NFTABLES, protocols=frozenset({"TCP"}), supported_endpoints=1))
    planned = plan(
        state(*(service(number, endpoints(number, "p1", "r1")) for number in range(1, 40))), NODE_VIEW, config
    )
    (table,) = plan_section(planned).tables
    assert [row[:2] for row in table.rows] == [("IPv4", "39"), ("IPv6", "39")]
    refused, warnings = refused_section(planned, {("shop", "s1"): "no such match"}).tables
    assert refused.rows[0] == ("shop/s1", "rules that the kernel rejects", "no such match")
    assert len(refused.rows) == SHOWN + 1
    assert refused.rows[-1] == ("…", "", f"and {1 + len(planned.refusals) - SHOWN} more")
    assert warnings.rows[0] == ("shop/s1", "mode nftables supports 1 endpoints of a Service, and it has 2")
    assert len(warnings.rows) == 39
    advice = [one.text for one in running_advice(planned, {("shop", "s1"): "no such match"}, 2)]
    assert advice[0] == "The kernel rejects rules of Service shop/s1: no such match"
    assert len(advice) == len(planned.refusals) + 2
    assert advice[-1] == "Another program changed the rules 2 times."
