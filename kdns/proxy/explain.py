"""A trace with everything that helps to understand it: the plan says what happens, the state says why not otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kdns.cluster.objects import Service
from kdns.cluster.state import State, packed
from kdns.proxy.config import family_of, parsed_address
from kdns.proxy.leftout import Choosing, LeftOut, choosing
from kdns.proxy.plan import FamilyPlan, FrontKey, Plan, Verdict
from kdns.proxy.trace import Packet, Trace, trace


@dataclass(frozen=True, slots=True)
class Explanation:
    """What happens to a packet, why, and which endpoints it cannot reach."""

    packet: Packet
    trace: Trace
    reasons: tuple[str, ...]
    left_out: tuple[LeftOut, ...] = ()


def explained(state: State, plan: Plan, packet: Packet) -> Explanation:
    """The trace of a packet; `plan` is of this state."""
    found = trace(plan, packet)
    half = plan.of(family_of(packet.destination))
    if found.front is None:
        return Explanation(packet, found, (*found.reasons, *_hints(state, half, packet)))
    how = _choosing(state, half, found)
    return Explanation(packet, found, (*found.reasons, *how.remarks), how.left_out)


def _choosing(state: State, half: FamilyPlan, found: Trace) -> Choosing:
    if found.front is None or found.verdict is None:
        return Choosing()
    if not found.backends and found.verdict in {Verdict.CLUSTER, Verdict.LOCAL}:
        return Choosing()  # there are endpoints, and no way for this client to any of them
    name = found.front.port.name
    slices = state.slices_by_service.get((name.namespace, name.service), {}).values()
    is_local = found.verdict in {Verdict.LOCAL, Verdict.DROP}
    return choosing(slices, half.family, name, found.backends, half.node, is_local=is_local)


def _hints(state: State, half: FamilyPlan, packet: Packet) -> Iterator[str]:
    """What somebody may have meant who sends to no Service."""
    address = str(packet.destination)
    others = [front for key, front in half.fronts.items() if key.address == address]
    for front in others:
        yield f"{address} has {front.key.port}/{front.key.protocol}, of Service {front.port.name}"
    for namespace, name in state.services_by_ip[packed(address)]:
        proxy = _other_proxy(state.services[namespace, name])
        if proxy is not None:
            label = f"service.kubernetes.io/service-proxy-name: {proxy}".removesuffix(" ")
            yield f"it is a cluster IP of Service {namespace}/{name}, whose label {label} leaves it to another proxy"
    for service in state.services.values():
        yield from _left_to_balancer(service, packet)
    for key in state.slices_by_ip[packed(address)]:
        if owner := state.slices[key].service_key:
            yield f"{address} is an endpoint of Service {'/'.join(owner)}: packets go there directly"
    yield from _node_port(state, half, packet)


def _other_proxy(service: Service) -> str | None:
    return service.metadata.labels.proxy_name if service.metadata.labels else None


def _left_to_balancer(service: Service, packet: Packet) -> Iterator[str]:
    ingress = (service.status.load_balancer.ingress or ()) if service.status else ()
    for each in ingress:
        if parsed_address(each.ip) != packet.destination:
            continue
        what = f"it is a load balancer IP of Service {'/'.join(service.key)}"
        if each.ip_mode not in {None, "VIP"}:
            yield f"{what} with ipMode {each.ip_mode}: left to the load balancer"
        elif packet.destination.is_loopback:
            yield f"{what}, but a loopback address is this machine's: what programs say to themselves is left alone"


def _node_port(state: State, half: FamilyPlan, packet: Packet) -> Iterator[str]:
    front = half.fronts.get(FrontKey("", packet.protocol, packet.port))
    if front is None:
        return
    what = f"port {packet.port}/{packet.protocol} is a node port of Service {front.port.name}"
    if not half.node.has(packet.destination):
        owners = [node for _, node in state.nodes if node != half.node.name and _has(state, node, packet)]
        rest = f"an address of node {owners[0]}: ask with --node {owners[0]}" if owners else "no address of a node"
        yield f"{what}, but {packet.destination} is {rest}"
    elif packet.destination.is_loopback:
        yield f"{what}, but mode {half.mode.name} has no node ports at loopback addresses here"
    else:
        networks = ", ".join(map(str, half.node_port_networks)) or "none"
        yield f"{what}, but nodePortAddresses leaves {packet.destination} out: it means {networks}"


def _has(state: State, node: str, packet: Packet) -> bool:
    addresses = state.nodes["", node].status.addresses or ()
    return any(parsed_address(each.address) == packet.destination for each in addresses)
