"""Recorded facts about kube-proxy: which endpoints a node uses, and the fate of single packets, through the plan."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address, ip_network

import msgspec
import nft_walk
import pytest
from recorded_cases import Json, recorded

from kdns.cluster.objects import EndpointSlice, Service
from kdns.cluster.state import State
from kdns.net import family_of, join_host_port
from kdns.proxy.iptables.mode import IPTABLES
from kdns.proxy.ipvs.mode import IPVS
from kdns.proxy.nftables.mode import NFTABLES
from kdns.proxy.nftables.table import Table
from kdns.proxy.plan.branches import Verdict
from kdns.proxy.plan.config import LocalPods, NodeView, ProxyConfig
from kdns.proxy.plan.endpoints import Candidate, ServiceEndpoint, endpoint_lists
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import plan
from kdns.proxy.plan.semantics import Semantics
from kdns.proxy.trace.trace import Fate, Packet, Trace, trace

FLOWS, CHOICES = "packetflow-cases.json", "endpoint-categorization-cases.json"
FATES = {Fate.REJECTED: "REJECT", Fate.DROPPED: "DROP", Fate.ACCEPTED: "ACCEPT"}


def report(name: str, results: Mapping[str, bool]) -> None:
    failed = [case for case, agrees in results.items() if not agrees]
    print(f"{name}: {len(results) - len(failed)} passed, 0 known deviations, {len(failed)} failed")
    assert failed == []


def candidate(row: Json) -> Candidate:
    address, _, port = row["endpoint"].rpartition(":")
    return Candidate(
        ServiceEndpoint(address, int(port), row["isLocal"]),
        row["ready"],
        row["serving"],
        row["terminating"],
        frozenset(row["zoneHints"]),
        frozenset(row["nodeHints"]),
    )


def choice_agrees(case: Json) -> bool:
    told = case["service"]
    node = NodeView(case["nodeName"], (case["nodeLabels"] or {}).get("topology.kubernetes.io/zone", ""))
    gated = "feature gate disabled" in case["name"]
    got = endpoint_lists(
        [candidate(row) for row in case["endpoints"]],
        node,
        internal_local=told["internalPolicyLocal"],
        external_local=told["externalPolicyLocal"],
        is_external=told["externallyAccessible"],
        node_hints=not gated,
    )
    expect = case["expect"]
    lists = {"clusterEndpoints": got.cluster, "localEndpoints": got.local, "allReachableEndpoints": got.reachable}
    same = all(sorted(map(str, found)) == sorted(expect[name] or []) for name, found in lists.items())
    return same and got.has_any == bool(expect["hasAnyEndpoints"])


def test_endpoint_choice_facts() -> None:
    report(CHOICES, {case["name"]: choice_agrees(case) for case in recorded(CHOICES)["cases"]})


def planned(case: Json, mode: Semantics) -> tuple[Plan, NodeView]:
    told = case["config"]
    state = State()
    for service in case["services"]:
        state.upsert(msgspec.convert(service, Service))
    for endpoint_slice in case["endpointSlices"]:
        state.upsert(msgspec.convert(endpoint_slice, EndpointSlice))
    node = NodeView(
        told["nodeName"],
        told["topologyLabels"].get("topology.kubernetes.io/zone", ""),
        (ip_address(told["nodeIP"]),),
        tuple(map(ip_address, told["localNodeIPs"])),
    )
    config = ProxyConfig(
        mode,
        masquerade_all=told["masqueradeAll"],
        local_pods=LocalPods((ip_network(told["detectLocal"][1]),)) if told["detectLocal"] else None,
        node_port_addresses=tuple(map(ip_network, told["nodePortAddresses"])),
        localhost_node_ports=told.get("localhostNodePorts", False),
        service_cidrs=tuple(map(ip_network, told.get("serviceCIDRs", ()))),
    )
    return plan(state, node, config), node


def flows(mode: Semantics, kube_proxys: str = "") -> Iterator[tuple[Plan, NodeView, str, Json]]:
    """The recorded flows of a mode, with their plan in this mode and their names."""
    for case in recorded(FLOWS)["cases"]:
        if case["config"]["mode"] == (kube_proxys or mode.name):
            made, node = planned(case, mode)
            for number, flow in enumerate(case["flows"]):
                yield made, node, f"{case['id']}/{number}: {flow['name']}", flow


def traced(made: Plan, flow: Json) -> Trace:
    packet = Packet(ip_address(flow["sourceIP"]), ip_address(flow["destIP"]), flow["protocol"], flow["destPort"])
    return trace(made, packet)


@pytest.mark.parametrize("mode", [IPTABLES, NFTABLES], ids=lambda mode: mode.name)
def test_packetflow_facts(mode: Semantics) -> None:
    report(f"{FLOWS} ({mode.name})", {name: agrees(traced(made, flow), flow) for made, _, name, flow in flows(mode)})


def agrees(found: Trace, flow: Json) -> bool:
    expect = flow["expect"]
    if "dnat" in expect:
        masquerade = found.masquerade or bool(found.hairpins)
        endpoints = sorted(map(str, found.endpoints))
        return bool(endpoints == sorted(expect["dnat"]) and masquerade == expect["masquerade"])
    if "verdict" in expect:
        return bool(FATES.get(found.fate) == expect["verdict"])
    return found.fate is Fate.UNTOUCHED


def test_packetflow_facts_through_the_written_ruleset() -> None:
    """Those of mode iptables: tests/properties has its text agree with the plan."""
    results = {}
    for made, node, name, flow in flows(NFTABLES):
        rules = nft_walk.read(Table(made.of(family_of(ip_address(flow["destIP"])))).whole())
        packet = nft_walk.At(flow["sourceIP"], flow["destIP"], flow["protocol"].lower(), flow["destPort"])
        results[name] = ends_agree(nft_walk.walk(rules, packet, map(str, node.addresses)), flow["expect"])
    report(f"{FLOWS} (nftables text)", results)


def ends_agree(ends: list[nft_walk.At], expect: Json) -> bool:
    if "dnat" in expect:
        found = sorted(join_host_port(at.daddr, at.dport) for at in ends)
        masqueraded = any(at.is_masqueraded for at in ends)
        return (
            all(at.is_dnat for at in ends) and found == sorted(expect["dnat"]) and masqueraded == expect["masquerade"]
        )
    if "verdict" in expect:
        return [at.ended for at in ends] == [expect["verdict"].lower()]
    return [(at.is_dnat, at.ended) for at in ends] == [(False, "")]


IPVS_DIFFERS: dict[str, tuple[int, Callable[[Json, Trace], bool]]] = {
    # why → in how many of the flows, and what becomes of the packet
    "there are no node ports at loopback addresses": (
        13,
        lambda flow, found: ip_address(flow["destIP"]).is_loopback and found.fate is Fate.UNTOUCHED,
    ),
    "with externalTrafficPolicy Local all clients have the one list of local endpoints": (
        11,
        lambda flow, found: (
            set(map(str, found.endpoints)) < set(flow["expect"].get("dnat", ()))
            and found.verdict is Verdict.LOCAL
            and found.masquerade == flow["expect"]["masquerade"]
        ),
    ),
    "addresses of Services are the node's own: ports that no Service port defines are refused": (
        2,
        lambda flow, found: "untouched" in flow["expect"] and found.fate is Fate.REJECTED,
    ),
}


def test_the_flows_of_iptables_in_mode_ipvs() -> None:
    """What differs from iptables has one of the reasons."""
    reasons, results = Counter[str](), {}
    for made, _, name, flow in flows(IPVS, "iptables"):
        found = traced(made, flow)
        is_same = agrees(found, flow)
        whys = [why for why, (_, holds) in IPVS_DIFFERS.items() if not is_same and holds(flow, found)]
        reasons.update(whys)
        results[name] = is_same or len(whys) == 1
    assert reasons == {why: count for why, (count, _) in IPVS_DIFFERS.items()}
    report(f"{FLOWS} (ipvs, {reasons.total()} with a reason)", results)
