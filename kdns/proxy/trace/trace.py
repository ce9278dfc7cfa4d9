"""The fate of the first packet of a connection, and the reasons in words: the plan interpreted, nothing touched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kdns.net import Address, family_of, is_link_local_ipv6, is_loopback
from kdns.proxy.plan.branches import Branch, Client, Verdict
from kdns.proxy.plan.endpoints import ServiceEndpoint
from kdns.proxy.plan.plan import FamilyPlan, Front, FrontKind, Plan
from kdns.spelling import listed


@dataclass(frozen=True, slots=True)
class Packet:
    """A connection's first packet; `interface` is where it arrived, "" where that is not known or it is the node's."""

    source: Address
    destination: Address
    protocol: str
    port: int
    interface: str = ""


class Fate(Enum):
    """The fate of a packet; ACCEPTED is by the firewall, UNTOUCHED is by no rule of the dataplane."""

    FORWARDED = "forwarded"
    REJECTED = "rejected"
    DROPPED = "dropped"
    ACCEPTED = "accepted"
    UNTOUCHED = "untouched"


@dataclass(frozen=True, slots=True)
class Trace:
    """The fate of a packet, and the reasons in order.

    One of `endpoints` is chosen, each with equal odds. The endpoint sees the node's address as source if `masquerade`
    is set or it is one of `hairpins` (endpoints that are the client themselves), unless it is one of `on_node`
    (endpoints in the node's own network). `verdict` is None where no Service port has the destination.
    """

    fate: Fate
    reasons: tuple[str, ...]
    front: Front | None = None
    endpoints: tuple[ServiceEndpoint, ...] = ()
    masquerade: bool = False
    hairpins: tuple[ServiceEndpoint, ...] = ()
    on_node: tuple[ServiceEndpoint, ...] = ()
    verdict: Verdict | None = None

    def sees_node(self, endpoint: ServiceEndpoint) -> bool:
        """Returns whether this one of the endpoints sees the node's address in place of the client's."""
        return (self.masquerade or endpoint in self.hairpins) and endpoint not in self.on_node


def trace(plan: Plan, packet: Packet) -> Trace:
    family_plan = plan.of(family_of(packet.destination))
    front = family_plan.front_of(packet.destination, packet.protocol, packet.port)
    return _without_front(family_plan, packet) if front is None else _at_front(family_plan, packet, front)


def _without_front(family_plan: FamilyPlan, packet: Packet) -> Trace:
    where = f"{packet.destination} port {packet.port}/{packet.protocol}"
    is_virtual = str(packet.destination) in family_plan.virtual_ips
    is_check = packet.protocol == "TCP" and packet.port in family_plan.accepted_health_check_ports
    if is_check and (family_plan.node.has(packet.destination) or (is_virtual and family_plan.mode.owns_addresses)):
        return Trace(Fate.ACCEPTED, (f"{where} is a health check node port: the firewall lets it in",))
    if is_virtual:
        if family_plan.mode.rejects_undefined_ports:
            what = "an address of Services" if family_plan.mode.owns_addresses else "a cluster IP"
            reason = f"is {what}, but not of a Service with port {packet.port}/{packet.protocol}"
            return Trace(Fate.REJECTED, (f"{packet.destination} {reason}",))
    elif ranges := [network for network in family_plan.unallocated if packet.destination in network]:
        reason = f"is in the service range {ranges[0]}, but none of the cluster IPs in use"
        return Trace(Fate.DROPPED, (f"{packet.destination} {reason}",))
    return Trace(Fate.UNTOUCHED, (f"no Service is found at {where} on this node",))


def _at_front(family_plan: FamilyPlan, packet: Packet, front: Front) -> Trace:
    branch = family_plan.branch(front, packet.source, packet.interface)
    reasons = [_found(front), *_client(family_plan, front, branch, packet), *_limits(family_plan, front)]
    if branch.client is Client.OUTSIDE_SOURCE_RANGES:
        return Trace(Fate.DROPPED, tuple(reasons), front)
    verdict, endpoints = branch.verdict, front.port.endpoints_of(branch.verdict)
    if verdict in _REFUSALS:
        fate, why = _REFUSALS[verdict]
        reasons.append(why)
        if not family_plan.mode.refuses:
            fate = Fate.UNTOUCHED
            reasons.append(f"mode {family_plan.mode.name} refuses no packets")
        return Trace(fate, tuple(reasons), front, verdict=verdict)
    lost, why = _unreachable(family_plan, packet.source, packet.destination, endpoints)
    if endpoints and lost == endpoints:
        return Trace(Fate.DROPPED, (*reasons, why), front, verdict=verdict)
    reasons += _choice(family_plan, front, endpoints)
    if lost:
        reasons.append(f"but {listed(each.address for each in lost)} will not be reached: {why}")
    source = str(packet.source)
    hairpins = tuple(endpoint for endpoint in endpoints if endpoint.address == source and source in front.port.hairpins)
    on_node = _on_node(family_plan, packet, endpoints)
    reasons += _source(front, branch, packet, hairpins)
    if on_node and branch.masquerade:
        reasons.append(f"but {listed(each.address for each in on_node)} is this node, and sees {source} as it is")
    return Trace(Fate.FORWARDED, tuple(reasons), front, endpoints, branch.masquerade, hairpins, on_node, verdict)


def _on_node(
    family_plan: FamilyPlan, packet: Packet, endpoints: tuple[ServiceEndpoint, ...]
) -> tuple[ServiceEndpoint, ...]:
    """Returns Endpoints that a packet reaches without leaving this node, where nothing masquerades it.

    That is so for packets from elsewhere, and in mode ipvs for those from loopback addresses.
    """
    is_spared = not family_plan.node.has(packet.source) or (
        family_plan.mode.owns_addresses and packet.source.is_loopback
    )
    if family_plan.mode.relays or family_plan.mode.treats_clients_alike or not is_spared:
        return ()
    own = set(map(str, family_plan.node.addresses))
    return tuple(endpoint for endpoint in endpoints if endpoint.address in own)


_REFUSALS: Final = {
    Verdict.REJECT: (Fate.REJECTED, "no endpoint is ready, on any node"),
    Verdict.DROP: (Fate.DROPPED, "there is none that can serve"),
}
"""The fate of a packet that no endpoint gets, and why."""


def _limits(family_plan: FamilyPlan, front: Front) -> Iterable[str]:
    yield from (limit.text for limit in front.port.limits if limit.kind in {None, front.kind})
    if shadowed := family_plan.shadows.get(front.key):
        yield f"it shadows {shadowed}"


def _found(front: Front) -> str:
    where = f"port {front.key.port}/{front.key.protocol}"
    at = "" if front.kind is FrontKind.NODE_PORT else f"{front.key.address} "
    article = "an" if front.kind is FrontKind.EXTERNAL_IP else "a"
    return f"{at}{where} is {article} {front.kind.value} of Service {front.port.name}"


def _client(family_plan: FamilyPlan, front: Front, branch: Branch, packet: Packet) -> Iterable[str]:
    if front.source_ranges:
        where = "none" if branch.client is Client.OUTSIDE_SOURCE_RANGES else "one"
        yield f"{packet.source} is in {where} of loadBalancerSourceRanges: {listed(front.source_ranges)}"
    if branch.client is Client.OUTSIDE_SOURCE_RANGES:
        return
    if branch.verdict is not front.branches[-1].verdict:
        whose = "of a Pod of this node" if branch.client is Client.LOCAL_POD else "of the node itself"
        yield f"externalTrafficPolicy is Local, but the packet is {whose}: any endpoint will do"
    elif branch.verdict in {Verdict.LOCAL, Verdict.DROP}:
        policy = "internalTrafficPolicy" if front.kind is FrontKind.CLUSTER_IP else "externalTrafficPolicy"
        yield f"{policy} is Local: only endpoints on node {family_plan.node.name} count"


def _choice(family_plan: FamilyPlan, front: Front, endpoints: tuple[ServiceEndpoint, ...]) -> Iterable[str]:
    names = listed(endpoints)
    if front.port.affinity_s and family_plan.mode.times_affinity:
        yield f"a client keeps its endpoint for {front.port.affinity_s} s after its last connection"
    elif front.port.affinity_s:
        yield "a client keeps its endpoint while the endpoints stay: it is chosen by a hash of the client's address"
    if len(endpoints) == 1:
        yield f"the one endpoint is {names}"
    else:
        odds = family_plan.chosen_by or f"each with a chance of 1/{len(endpoints)}"
        yield f"one of {len(endpoints)} endpoints, {odds}: {names}"
    if family_plan.mode.relays:
        yield "the connection ends at a relay on this node, and another one goes on"


def _source(front: Front, branch: Branch, packet: Packet, hairpins: tuple[ServiceEndpoint, ...]) -> Iterable[str]:
    spares_pods = any(candidate.client is Client.LOCAL_POD and not candidate.masquerade for candidate in front.branches)
    if branch.masquerade and branch.client is Client.ANY and spares_pods:
        yield f"{packet.source} is no Pod of this node: the endpoint sees the node's address, so that answers come back"
    elif branch.masquerade:
        yield "the endpoint sees the node's address, so that answers come back this way"
    else:
        what = ", a Pod of this node" if branch.client is Client.LOCAL_POD else ""
        yield f"the endpoint sees {packet.source}{what}"
    if hairpins and not branch.masquerade:
        yield f"if {packet.source} is chosen itself, it sees the node's address: its answer has to come back here"


def _unreachable(
    family_plan: FamilyPlan, source: Address, destination: Address, endpoints: tuple[ServiceEndpoint, ...]
) -> tuple[tuple[ServiceEndpoint, ...], str]:
    """Returns the endpoints that the kernel keeps a source from, whatever the rules say, and why.

    It looks at source addresses before the rules translate, or after. Mode iptables sets route_localnet as long as its
    node ports are at 127.0.0.1; other modes leave it as it is.
    """
    mode, node = family_plan.mode, family_plan.node
    routes_loopback = family_plan.node_ports.has_loopback and mode.routes_loopback
    own = set(map(str, node.addresses))
    elsewhere = () if mode.relays else tuple(endpoint for endpoint in endpoints if endpoint.address not in own)
    if mode.treats_clients_alike or (mode.relays and not source.is_loopback):
        return (), ""
    if is_link_local_ipv6(source):
        return elsewhere, f"the kernel forwards nothing from the link-local address {source}"
    if not source.is_loopback:
        # endpoints at loopback addresses, as the Services of `kdns up` itself have them: only the node reaches its own
        is_spared = routes_loopback or node.has(source)
        lost = () if is_spared else tuple(endpoint for endpoint in endpoints if is_loopback(endpoint.address))
        return lost, "the kernel takes nothing for loopback addresses from anybody else"
    why, unless = (
        f"the kernel lets nothing from {source} out of this node",
        "unless net.ipv4.conf.all.route_localnet is 1",
    )
    if family_plan.family == "IPv6" or (mode.owns_addresses and not routes_loopback):
        return elsewhere, why
    if routes_loopback:
        return (), ""
    if node.has(destination):
        return elsewhere, f"{why}, {unless}"
    return endpoints, f"the kernel sends nothing from {source} to what is not this node's own, {unless}"
