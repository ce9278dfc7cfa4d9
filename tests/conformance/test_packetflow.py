"""Recorded facts about kube-proxy: which endpoints a node uses, and the fate of single packets, through the plan."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, TypeAlias

import ipt_walk
import ipvs_walk
import msgspec
import nft_walk
import pytest

from kdns.cluster.objects import EndpointSlice, Service
from kdns.cluster.state import State
from kdns.net import FAMILIES, family_of
from kdns.proxy.iptables.mode import IPTABLES
from kdns.proxy.iptables.text import family_text
from kdns.proxy.ipvs.mode import IPVS
from kdns.proxy.ipvs.text import ipvs_text
from kdns.proxy.nftables.mode import NFTABLES
from kdns.proxy.nftables.table import Table
from kdns.proxy.plan.branches import Verdict
from kdns.proxy.plan.config import LocalPods, NodeView, ProxyConfig
from kdns.proxy.plan.endpoints import Candidate, Policies, ServiceEndpoint, endpoint_lists
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import plan
from kdns.proxy.plan.semantics import Semantics
from kdns.proxy.trace.trace import Fate, Packet, Trace, trace

FACTS = Path(__file__).parents[2].parent / "shared" / "conformance"
FLOWS, CHOICES = FACTS / "packetflow-cases.json", FACTS / "endpoint-categorization-cases.json"
Case: TypeAlias = dict[str, Any]

pytestmark = pytest.mark.skipif(not FACTS.exists(), reason=f"the recorded facts are not here: {FACTS}")

FATES = {Fate.REJECTED: "REJECT", Fate.DROPPED: "DROP", Fate.ACCEPTED: "ACCEPT"}


def report(name: str, results: dict[str, bool]) -> None:
    failed = [case for case, agrees in results.items() if not agrees]
    print(f"{name}: {len(results) - len(failed)} passed, 0 known deviations, {len(failed)} failed")
    assert not failed


def candidate(row: Case) -> Candidate:
    address, _, port = row["endpoint"].rpartition(":")
    return Candidate(
        ServiceEndpoint(address, int(port), row["isLocal"]),
        row["ready"],
        row["serving"],
        row["terminating"],
        frozenset(row["zoneHints"]),
        frozenset(row["nodeHints"]),
    )


def choice_agrees(case: Case) -> bool:
    told = case["service"]
    policies = Policies(told["internalPolicyLocal"], told["externalPolicyLocal"], told["externallyAccessible"])
    node = NodeView(case["nodeName"], (case["nodeLabels"] or {}).get("topology.kubernetes.io/zone", ""))
    gated = "feature gate disabled" in case["name"]
    got = endpoint_lists([candidate(row) for row in case["endpoints"]], policies, node, node_hints=not gated)
    expect = case["expect"]
    lists = {
        "clusterEndpoints": got.cluster,
        "localEndpoints": got.local,
        "allReachableEndpoints": got.reachable,
    }
    same = all(sorted(map(written, found)) == sorted(expect[name] or []) for name, found in lists.items())
    return same and got.has_any == bool(expect["hasAnyEndpoints"])


def written(endpoint: ServiceEndpoint) -> str:
    return (
        f"{endpoint.address}:{endpoint.port}"
        if ":" not in endpoint.address
        else f"[{endpoint.address}]:{endpoint.port}"
    )


def test_endpoint_choice_facts() -> None:
    cases = json.loads(CHOICES.read_text())["cases"]
    report(CHOICES.name, {case["name"]: choice_agrees(case) for case in cases})


def flow_agrees(found: Trace, expect: Case) -> bool:
    if "dnat" in expect:
        masquerade = found.masquerade or bool(found.hairpins)
        endpoints = sorted(map(written, found.endpoints))
        return bool(endpoints == sorted(expect["dnat"]) and masquerade == expect["masquerade"])
    if "verdict" in expect:
        return bool(FATES.get(found.fate) == expect["verdict"])
    return found.fate is Fate.UNTOUCHED


def planned(case: Case, mode: Semantics | None = None) -> tuple[Plan, NodeView]:
    told = case["config"]
    state = State()
    for service in case["services"]:
        state.upsert(msgspec.convert(service, Service))
    for each in case["endpointSlices"]:
        state.upsert(msgspec.convert(each, EndpointSlice))
    node = NodeView(
        told["nodeName"],
        told["topologyLabels"].get("topology.kubernetes.io/zone", ""),
        (ip_address(told["nodeIP"]),),
        tuple(map(ip_address, told["localNodeIPs"])),
    )
    config = ProxyConfig(
        mode or {"iptables": IPTABLES, "nftables": NFTABLES}[told["mode"]],
        masquerade_all=told["masqueradeAll"],
        local_pods=LocalPods((ip_network(told["detectLocal"][1]),)) if told["detectLocal"] else None,
        node_port_addresses=tuple(map(ip_network, told["nodePortAddresses"])),
        localhost_node_ports=told.get("localhostNodePorts", False),
        service_cidrs=tuple(map(ip_network, told.get("serviceCIDRs", ()))),
    )
    return plan(state, node, config), node


def flows(case: Case) -> dict[str, bool]:
    made, _ = planned(case)
    results = {}
    for number, flow in enumerate(case["flows"]):
        packet = Packet(ip_address(flow["sourceIP"]), ip_address(flow["destIP"]), flow["protocol"], flow["destPort"])
        results[f"{case['id']}/{number}: {flow['name']}"] = flow_agrees(trace(made, packet), flow["expect"])
    return results


def rendered_flows(case: Case) -> dict[str, bool]:
    """The flows through the text of the ruleset."""
    made, node = planned(case)
    rules = {family: nft_walk.read(Table(made.of(family)).whole()) for family in FAMILIES}
    results = {}
    for number, flow in enumerate(case["flows"]):
        family = family_of(ip_address(flow["destIP"]))
        packet = nft_walk.At(flow["sourceIP"], flow["destIP"], flow["protocol"].lower(), flow["destPort"])
        ends = nft_walk.walk(rules[family], packet, map(str, node.addresses))
        results[f"{case['id']}/{number}: {flow['name']}"] = ends_agree(ends, flow["expect"])
    return results


def iptables_flows(case: Case) -> dict[str, bool]:
    """The flows through the text of the restores."""
    made, node = planned(case)
    kernels = {family: ipt_walk.Kernel() for family in FAMILIES}
    for family in FAMILIES:
        kernels[family].restore(family_text(made.of(family)))
    results = {}
    for number, flow in enumerate(case["flows"]):
        family = family_of(ip_address(flow["destIP"]))
        packet = ipt_walk.At(flow["sourceIP"], flow["destIP"], flow["protocol"].lower(), flow["destPort"])
        ends = ipt_walk.walk(kernels[family], packet, map(str, node.addresses))
        results[f"{case['id']}/{number}: {flow['name']}"] = ends_agree(ends, flow["expect"])
    return results


def ends_agree(ends: list[nft_walk.At] | list[ipt_walk.At], expect: Case) -> bool:
    if "dnat" in expect:
        found = sorted(f"[{at.daddr}]:{at.dport}" if ":" in at.daddr else f"{at.daddr}:{at.dport}" for at in ends)
        masqueraded = any(at.is_masqueraded for at in ends)
        return (
            all(at.is_dnat for at in ends) and found == sorted(expect["dnat"]) and masqueraded == expect["masquerade"]
        )
    if "verdict" in expect:
        return [at.ended for at in ends] == [expect["verdict"].lower()]
    return [(at.is_dnat, at.ended) for at in ends] == [(False, "")]


def test_packetflow_facts() -> None:
    results: dict[str, bool] = {}
    for case in json.loads(FLOWS.read_text())["cases"]:
        results |= flows(case)
    report(FLOWS.name, results)


def test_packetflow_facts_through_the_written_ruleset() -> None:
    results: dict[str, bool] = {}
    for case in json.loads(FLOWS.read_text())["cases"]:
        if case["config"]["mode"] == "nftables":
            results |= rendered_flows(case)
    report(f"{FLOWS.name} (nftables text)", results)


def test_packetflow_facts_through_the_written_restores() -> None:
    results: dict[str, bool] = {}
    for case in json.loads(FLOWS.read_text())["cases"]:
        if case["config"]["mode"] == "iptables":
            results |= iptables_flows(case)
    report(f"{FLOWS.name} (iptables text)", results)


IPVS_DIFFERS: dict[str, tuple[int, Callable[[Case, Trace], bool]]] = {
    # why → in how many of the flows, and what becomes of the packet
    "there are no node ports at loopback addresses": (
        13,
        lambda flow, found: ip_address(flow["destIP"]).is_loopback and found.fate is Fate.UNTOUCHED,
    ),
    "with externalTrafficPolicy Local all clients have the one list of local endpoints": (
        11,
        lambda flow, found: (
            set(map(written, found.endpoints)) < set(flow["expect"].get("dnat", ()))
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
    """Through the plan and through the text, which agree; what differs from iptables has one of the reasons."""
    reasons: Counter[str] = Counter()
    results: dict[str, bool] = {}
    for case in json.loads(FLOWS.read_text())["cases"]:
        if case["config"]["mode"] != "iptables":
            continue
        made, node = planned(case, IPVS)
        own = [str(address) for address in node.addresses if not address.is_loopback]
        contents = {family: ipvs_walk.Content(text, own) for family, text in ipvs_walk.parts(ipvs_text(made)).items()}
        for number, flow in enumerate(case["flows"]):
            packet = Packet(
                ip_address(flow["sourceIP"]), ip_address(flow["destIP"]), flow["protocol"], flow["destPort"]
            )
            found = trace(made, packet)
            at = ipt_walk.At(flow["sourceIP"], flow["destIP"], packet.protocol.lower(), packet.port)
            ends = ipvs_walk.walk(contents[family_of(packet.destination)], at)
            agrees = flow_agrees(found, flow["expect"])
            whys = [why for why, (_, holds) in IPVS_DIFFERS.items() if not agrees and holds(flow, found)]
            reasons.update(whys)
            is_same = agrees or len(whys) == 1
            results[f"{case['id']}/{number}: {flow['name']}"] = is_same and ends_agree(ends, expected(found))
    assert reasons == {why: count for why, (count, _) in IPVS_DIFFERS.items()}
    report(f"{FLOWS.name} (ipvs text, {reasons.total()} with a reason)", results)


def expected(found: Trace) -> Case:
    """A trace as the facts write what becomes of a packet."""
    if found.fate is Fate.FORWARDED:
        masquerade = found.masquerade or bool(found.hairpins)
        return {"dnat": [*map(written, found.endpoints)], "masquerade": masquerade}
    return {"verdict": FATES[found.fate]} if found.fate in FATES else {}
