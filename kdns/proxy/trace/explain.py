"""A trace with what the state adds: why endpoints are not used, and what a destination without a Service is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kdns.cluster.objects import EndpointSlice, Pod, Service
from kdns.cluster.readiness import nothing_ready
from kdns.cluster.state import State
from kdns.net import Family, canonical_address, family_of, packed, parse_unmapped_address
from kdns.proxy.plan.branches import ENDPOINT_SETS, Verdict
from kdns.proxy.plan.config import NodeView
from kdns.proxy.plan.endpoints import PORTS, Candidate, ServiceEndpoint, candidates
from kdns.proxy.plan.plan import FamilyPlan, FrontKey, Plan, PortName
from kdns.proxy.trace.trace import Packet, Trace, trace

_SHOWN: Final = 10
_NO_ENDPOINTS: Final = "the Service has no endpoints"


class UnusedEndpoint(NamedTuple):
    """An endpoint that gets no packets of the client, and why."""

    endpoint: ServiceEndpoint
    reason: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The fate of a packet, the reasons, and the endpoints that it cannot reach.

    `command` mends or shows more, "" for none. `unknown_pods` is the namespace whose Pods would say more, "" for none.
    """

    packet: Packet
    trace: Trace
    reasons: tuple[str, ...]
    unused: tuple[UnusedEndpoint, ...] = ()
    command: str = ""
    unknown_pods: str = ""


def explained(state: State, plan: Plan, packet: Packet) -> Explanation:
    """Returns the trace of a packet; `plan` is of this state."""
    result = trace(plan, packet)
    family_plan = plan.of(family_of(packet.destination))
    refusals = tuple(_refusals(family_plan, packet))
    if result.front is None:
        return Explanation(packet, result, (*result.reasons, *refusals, *_hints(state, family_plan, packet)))
    if result.verdict is None or (result.verdict in ENDPOINT_SETS and not result.endpoints):
        return Explanation(packet, result, (*result.reasons, *refusals))  # it is the client that cannot reach them
    name = result.front.port.name
    key = name.namespace, name.service
    service = state.services.get(key)
    if service is not None and not any(endpoint_slice.endpoints for endpoint_slice in state.slices_of(key)):
        if Pod not in state.synced:
            reason = f"{_NO_ENDPOINTS}: no Pod matches its selector, or nobody wrote endpoints for it"
            return Explanation(packet, result, (*result.reasons, reason, *refusals), unknown_pods=name.namespace)
        cause = nothing_ready(state, service)
        reasons = (*result.reasons, f"{_NO_ENDPOINTS}: {cause.text}", *refusals)
        return Explanation(packet, result, reasons, command=cause.command)
    remarks, unused = _selection(state, family_plan, name, result.verdict, result.endpoints)
    return Explanation(packet, result, (*result.reasons, *remarks, *refusals), unused)


def _refusals(family_plan: FamilyPlan, packet: Packet) -> Iterator[str]:
    """Yields which Services name the destination and do not get it; of many the first."""
    refusals = family_plan.refusals(packet.destination, packet.protocol, packet.port)
    for refusal in refusals[:_SHOWN]:
        yield f"Service {refusal.name} names it as {refusal.kind.value} and does not get it: {refusal.reason}"
    if len(refusals) > _SHOWN:
        yield f"and {len(refusals) - _SHOWN} more Services name it"


def _selection(
    state: State, family_plan: FamilyPlan, name: PortName, verdict: Verdict, used: Sequence[ServiceEndpoint]
) -> tuple[tuple[str, ...], tuple[UnusedEndpoint, ...]]:
    """Returns how a Service port's set was selected: remarks on all of it, and the endpoints outside of it."""
    node, is_local = family_plan.node, verdict in {Verdict.LOCAL, Verdict.DROP}
    slices = state.slices_of((name.namespace, name.service))
    known = candidates(slices, family_plan.family, name.port, name.protocol, node.name)
    if not known:
        return (_no_candidate(slices, family_plan.family, name),), ()
    in_use = set(used)
    remarks: tuple[str, ...] = ()
    if used and not any(candidate.is_ready for candidate in known if candidate.endpoint in in_use):
        where = f" on node {node.name}" if is_local else ""
        remarks = (f"no endpoint{where} is ready, so those stand in that still serve while they terminate",)
    node_names = _node_names(slices)
    unused = (candidate for candidate in known if candidate.endpoint not in in_use)
    port = used[0].port if used and family_plan.mode.has_one_target_port else 0
    of_another_port = f"has another port than {port}: mode {family_plan.mode.name} uses endpoints of one port only"
    return remarks, tuple(
        UnusedEndpoint(
            candidate.endpoint,
            of_another_port
            if port not in {0, candidate.endpoint.port}
            else _reason(candidate, node, node_names.get(candidate.endpoint.address, ""), is_local=is_local),
        )
        for candidate in unused
    )


def _reason(candidate: Candidate, node: NodeView, node_name: str, *, is_local: bool) -> str:
    if is_local and not candidate.endpoint.is_local:
        return f"is on node {node_name}" if node_name else "is on no node that the API knows of"
    if candidate.is_terminating:
        return "is terminating" + ("" if candidate.is_serving else " and serves no more")
    if not candidate.is_ready:
        return "is not ready"
    if candidate.nodes and node.name not in candidate.nodes:
        return f"is meant for node {_alternatives(candidate.nodes)}, as its hints say"
    where = f"zone {node.zone}" if node.zone else "no zone"
    return f"is meant for zone {_alternatives(candidate.zones)}, as its hints say; this node is in {where}"


def _no_candidate(slices: Collection[EndpointSlice], family: Family, port: PortName) -> str:
    of_family = [endpoint_slice for endpoint_slice in slices if endpoint_slice.address_type == family]
    if not any(each.endpoints for each in of_family):
        types = " and ".join(sorted({endpoint_slice.address_type for endpoint_slice in slices}))
        return f"the Service has no {family} endpoints, only {types}"
    ports = [p for each in of_family for p in each.ports or () if p.port in PORTS]
    offered = {f"{p.name or 'without a name'}/{p.protocol or 'TCP'}" for p in ports}
    wanted = f"{port.port or 'without a name'}/{port.protocol}"
    return f"no endpoint has a port {wanted}; they have {' and '.join(sorted(offered)) or 'none'}"


def _node_names(slices: Iterable[EndpointSlice]) -> dict[str, str]:
    endpoints = (
        endpoint for endpoint_slice in slices for endpoint in endpoint_slice.endpoints or () if endpoint.addresses
    )
    return {canonical_address(endpoint.addresses[0]): endpoint.node_name or "" for endpoint in endpoints}


def _alternatives(names: Iterable[str]) -> str:
    return " or ".join(sorted(names))


def _hints(state: State, family_plan: FamilyPlan, packet: Packet) -> Iterator[str]:
    """Yields other facts of the cluster about a destination without a Service."""
    address = str(packet.destination)
    for front in (front for key, front in family_plan.fronts.items() if key.address == address):
        yield f"{address} has {front.key.port}/{front.key.protocol}, of Service {front.port.name}"
    for namespace, name in state.services_by_ip[packed(address)]:
        labels = state.services[namespace, name].metadata.labels
        if labels and (proxy := labels.proxy_name) is not None:
            label = f"service.kubernetes.io/service-proxy-name: {proxy}".removesuffix(" ")
            yield f"it is a cluster IP of Service {namespace}/{name}, whose label {label} leaves it to another proxy"
    for service in state.services.values():
        yield from _left_to_balancer(service, packet)
    for key in state.slices_by_ip[packed(address)]:
        if owner := state.slices[key].service_key:
            yield f"{address} is an endpoint of Service {'/'.join(owner)}: packets go there directly"
    yield from _node_port(state, family_plan, packet)


def _left_to_balancer(service: Service, packet: Packet) -> Iterator[str]:
    for ingress in service.ingress:
        if parse_unmapped_address(ingress.ip) != packet.destination:
            continue
        what = f"it is a load balancer IP of Service {'/'.join(service.key)}"
        if ingress.ip_mode not in {None, "VIP"}:
            yield f"{what} with ipMode {ingress.ip_mode}: left to the load balancer"
        elif packet.destination.is_loopback:
            yield f"{what}, but a loopback address is this machine's: what programs say to themselves is left alone"


def _node_port(state: State, family_plan: FamilyPlan, packet: Packet) -> Iterator[str]:
    front = family_plan.fronts.get(FrontKey("", packet.protocol, packet.port))
    if front is None:
        return
    what = f"port {packet.port}/{packet.protocol} is a node port of Service {front.port.name}"
    if not family_plan.node.has(packet.destination):
        owners = [node for _, node in state.nodes if node != family_plan.node.name and _has(state, node, packet)]
        rest = f"an address of node {owners[0]}: ask with --node {owners[0]}" if owners else "no address of a node"
        yield f"{what}, but {packet.destination} is {rest}"
    elif packet.destination.is_loopback:
        yield f"{what}, but mode {family_plan.mode.name} has no node ports at loopback addresses here"
    else:
        networks = ", ".join(map(str, family_plan.node_ports.networks)) or "none"
        yield f"{what}, but nodePortAddresses leaves {packet.destination} out: it means {networks}"


def _has(state: State, node: str, packet: Packet) -> bool:
    addresses = state.nodes["", node].status.addresses or ()
    return any(parse_unmapped_address(address.address) == packet.destination for address in addresses)
