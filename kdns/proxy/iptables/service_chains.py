"""The chains of one Service port in table nat.

KUBE-SVC and KUBE-SVL send to one of the endpoints of their set; each endpoint has a chain KUBE-SEP. KUBE-EXT has the
branches of fronts other than the cluster IP, KUBE-FW lets clients within the source ranges go there.

The kernel remembers the clients of an endpoint for session affinity (xt_recent), no more than its module's ip_list_tot,
which is 100 unless it was loaded with another number: of more clients the one that was longest silent is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from kdns.net import join_host_port
from kdns.proxy.iptables.fronts import list_chain
from kdns.proxy.plan.branches import ENDPOINT_SETS, Client, Verdict
from kdns.proxy.plan.endpoints import ServiceEndpoint
from kdns.proxy.plan.plan import FamilyPlan, Front, FrontKey, FrontKind, PortPlan
from kdns.proxy.xtables.names import MARK_MASQUERADE, NAT, PortChains, endpoint_chain, port_chains
from kdns.proxy.xtables.rules import (
    LOCAL_SOURCE,
    Chain,
    Rule,
    comment,
    destination,
    local_pods,
    not_local_pods,
    port,
    rule,
    source,
)

FrontAt: TypeAlias = Callable[[FrontKey], Front | None]


def service_chains(
    port_plan: PortPlan, family_plan: FamilyPlan, front_at: FrontAt, *, has_comments: bool
) -> Iterator[Chain]:
    """The chains that the fronts of the Service port lead to. `has_comments` is about the rules of endpoints.

    `front_at` finds the plan's fronts, or those of the plan before.

    Differs: kube-proxy also makes chains that nothing leads to, such as KUBE-EXT before there is a load balancer IP.
    """
    fronts = tuple(_fronts_of(port_plan, front_at))
    cluster_ips = [front for front in fronts if front.kind is FrontKind.CLUSTER_IP]
    others = [front for front in fronts if front.kind is not FrontKind.CLUSTER_IP]
    lists = {verdict for front in (*cluster_ips, *others[:1]) for verdict in front.lists}
    names = port_chains(port_plan.name)
    chains: dict[str, tuple[ServiceEndpoint, str]] = {}
    for verdict in ENDPOINT_SETS:
        if verdict in lists:
            endpoints = _endpoint_chains(port_plan, verdict)
            chains |= endpoints
            rules = (
                *_cluster_ip_rules(cluster_ips, verdict, family_plan),
                *_list_rules(port_plan, endpoints, has_comments),
            )
            yield Chain(NAT, list_chain(verdict, names), rules)
    if others:
        yield Chain(NAT, names.external, tuple(_external_rules(port_plan, family_plan, names)))
    if any(front.is_guarded for front in others):
        yield Chain(NAT, names.firewall, tuple(_source_range_rules(port_plan, names)))
    for name, (endpoint, written) in chains.items():
        yield Chain(NAT, name, tuple(_endpoint_rules(port_plan, endpoint, written, name, has_comments)))


def _fronts_of(port_plan: PortPlan, front_at: FrontAt) -> Iterator[Front]:
    for key in dict.fromkeys(key for key, _ in port_plan.fronts):
        front = front_at(key)
        if front and front.port.name == port_plan.name and front.lists:
            yield front


def _endpoint_chains(port_plan: PortPlan, verdict: Verdict) -> dict[str, tuple[ServiceEndpoint, str]]:
    """The set's endpoints by the names of their chains, in kube-proxy's order: that of their texts."""
    written = sorted(
        (join_host_port(endpoint.address, endpoint.port), endpoint) for endpoint in port_plan.endpoints_of(verdict)
    )
    return {endpoint_chain(port_plan.name, text): (one, text) for text, one in written}


def _cluster_ip_rules(fronts: list[Front], verdict: Verdict, family_plan: FamilyPlan) -> Iterator[Rule]:
    for front in fronts:
        *first, last = front.branches
        if last.verdict is verdict and last.masquerade:
            clients = not_local_pods(family_plan) if first else ""
            at = port(front.key.protocol.lower(), front.key.port)
            text = comment(f"{front.port.name} cluster IP")
            yield rule(clients, destination(front.key.address), at, text, f"-j {MARK_MASQUERADE}")


def _list_rules(
    port_plan: PortPlan, endpoints: Mapping[str, tuple[ServiceEndpoint, str]], has_comments: bool
) -> Iterator[Rule]:
    """A client with affinity goes to its last endpoint, others to each with the same probability."""
    texts = {
        name: f"{comment(f'{port_plan.name} -> {written}')} " if has_comments else ""
        for name, (_, written) in endpoints.items()
    }
    if port_plan.affinity_s:
        for name, text in texts.items():
            yield f"{text}-m recent --rcheck --seconds {port_plan.affinity_s} --reap --name {name} --rsource -j {name}"
    left = len(texts)
    for name, text in texts.items():
        draw = f"-m statistic --mode random --probability {1 / left:.10f} " if left > 1 else ""
        yield f"{text}{draw}-j {name}"
        left -= 1


def _external_rules(port_plan: PortPlan, family_plan: FamilyPlan, names: PortChains) -> Iterator[Rule]:
    name = f"{port_plan.name} external destinations"
    for branch in port_plan.external:
        match branch.client:
            case Client.LOCAL_POD:
                client, marked, routed = local_pods(family_plan), "", f"pod traffic for {name}"
            case Client.NODE:
                client, marked = LOCAL_SOURCE, f"masquerade LOCAL traffic for {name}"
                routed = f"route LOCAL traffic for {name}"
            case _:
                client, marked, routed = "", f"masquerade traffic for {name}", ""
        if branch.masquerade:
            yield rule(client, comment(marked), f"-j {MARK_MASQUERADE}")
        if branch.verdict in ENDPOINT_SETS:
            yield rule(client, comment(routed), f"-j {list_chain(branch.verdict, names)}")


def _source_range_rules(port_plan: PortPlan, names: PortChains) -> Iterator[Rule]:
    for network in port_plan.source_ranges:
        yield rule(source(network), comment(f"{port_plan.name} loadbalancer IP"), f"-j {names.external}")
    yield comment(f"other traffic to {port_plan.name} will be dropped by KUBE-PROXY-FIREWALL")


def _endpoint_rules(
    port_plan: PortPlan, endpoint: ServiceEndpoint, written: str, name: str, has_comments: bool
) -> Iterator[Rule]:
    text, protocol = comment(str(port_plan.name) if has_comments else ""), port_plan.name.protocol.lower()
    if endpoint.address in port_plan.hairpins:
        yield rule(source(endpoint.address), text, f"-j {MARK_MASQUERADE}")
    recent = f"-m recent --set --name {name} --rsource" if port_plan.affinity_s else ""
    yield rule(f"-p {protocol}", text, recent, f"-m {protocol} -j DNAT --to-destination {written}")
