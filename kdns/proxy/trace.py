"""What happens to the first packet of a connection, and why, in words: the plan walked through, nothing touched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from kdns.proxy.backends import Backend
from kdns.proxy.config import Address, family_of
from kdns.proxy.decision import Because, decision, is_guarded
from kdns.proxy.plan import FamilyPlan, Front, FrontKey, FrontKind, Masquerade, Plan, Verdict
from kdns.proxy.stranded import stranded


@dataclass(frozen=True, slots=True)
class Packet:
    """A connection's first packet; `interface` is where it arrived, "" where that is not known or it is the node's."""

    source: Address
    destination: Address
    protocol: str
    port: int
    interface: str = ""


class Fate(Enum):
    """How it ends: sent to a backend, refused, dropped, let in by the firewall, or none of the dataplane's business."""

    FORWARDED = "forwarded"
    REJECTED = "rejected"
    DROPPED = "dropped"
    ACCEPTED = "accepted"
    UNTOUCHED = "untouched"


@dataclass(frozen=True, slots=True)
class Trace:
    """What happens, and each reason in order.

    The backend is chosen among `backends` with equal odds. It sees the node's address as source if `masquerade`, and
    also if it is one of `hairpins`, backends that would talk to themselves, but not if it is one of `on_node`, backends
    in the node's own network that packets need not leave for. `verdict` is the Service port's, None where no Service
    was asked.
    """

    fate: Fate
    reasons: tuple[str, ...]
    front: Front | None = None
    backends: tuple[Backend, ...] = ()
    masquerade: bool = False
    hairpins: tuple[Backend, ...] = ()
    on_node: tuple[Backend, ...] = ()
    verdict: Verdict | None = None

    def sees_node(self, backend: Backend) -> bool:
        """Whether this one of the backends sees the node's address in place of the client's."""
        return (self.masquerade or backend in self.hairpins) and backend not in self.on_node


def trace(plan: Plan, packet: Packet) -> Trace:
    """The fate of a packet on the plan's node."""
    half = plan.of(family_of(packet.destination))
    front = half.fronts.get(FrontKey(str(packet.destination), packet.protocol, packet.port))
    if front is None and half.serves_node_ports_at(packet.destination):
        front = half.fronts.get(FrontKey("", packet.protocol, packet.port))
    return _no_service(half, packet) if front is None else _for_service(half, packet, front)


def _no_service(half: FamilyPlan, packet: Packet) -> Trace:
    what = f"{packet.destination} port {packet.port}/{packet.protocol}"
    is_check = packet.protocol == "TCP" and packet.port in half.health_check_ports and half.node.has(packet.destination)
    if half.mode.accepts_health_checks and is_check:
        return Trace(Fate.ACCEPTED, (f"{what} is a health check node port: the firewall lets it in",))
    if str(packet.destination) in half.cluster_ips and half.mode.rejects_undefined_ports:
        return Trace(
            Fate.REJECTED,
            (f"{packet.destination} is a cluster IP, but not of a Service with port {packet.port}/{packet.protocol}",),
        )
    allocatable = [network for network in half.service_cidrs if packet.destination in network]
    if allocatable and str(packet.destination) not in half.cluster_ips and half.mode.drops_unallocated:
        return Trace(
            Fate.DROPPED,
            (f"{packet.destination} is in the service range {allocatable[0]}, but none of the cluster IPs in use",),
        )
    return Trace(Fate.UNTOUCHED, (f"no Service is found at {what} on this node",))


def _for_service(half: FamilyPlan, packet: Packet, front: Front) -> Trace:
    reasons = [_found(front)]
    decided = decision(half, front, packet.source, packet.interface)
    verdict, backends, masquerade = decided.verdict, decided.backends, decided.masquerade
    if is_guarded(half, front):
        where = "none" if decided.because is Because.GUARDED else "one"
        reasons.append(f"{packet.source} is in {where} of loadBalancerSourceRanges: {_listed(front.source_ranges)}")
    match decided.because:
        case Because.GUARDED:
            return Trace(Fate.DROPPED, tuple(reasons), front)
        case Because.POD:
            reasons.append(
                "externalTrafficPolicy is Local, but the packet is of a Pod of this node: any endpoint will do"
            )
        case Because.NODE:
            reasons.append("externalTrafficPolicy is Local, but the packet is of the node itself: any endpoint will do")
        case Because.POLICY if verdict in {Verdict.LOCAL, Verdict.DROP}:
            policy = "internalTrafficPolicy" if front.kind is FrontKind.CLUSTER_IP else "externalTrafficPolicy"
            reasons.append(f"{policy} is Local: only endpoints on node {half.node.name} count")
    if verdict is Verdict.REJECT:
        return Trace(Fate.REJECTED, (*reasons, "no endpoint is ready, on any node"), front, verdict=verdict)
    if verdict is Verdict.DROP:
        return Trace(Fate.DROPPED, (*reasons, "there is none that can serve"), front, verdict=verdict)
    out_of_reach = stranded(half, packet.source, packet.destination, backends)
    if backends and out_of_reach.backends == backends:
        return Trace(Fate.DROPPED, (*reasons, out_of_reach.why), front, verdict=verdict)
    reasons += _choice(half, front, backends)
    if out_of_reach.backends:
        lost = _listed(each.address for each in out_of_reach.backends)
        reasons.append(f"but {lost} will not be reached: {out_of_reach.why}")
    hairpins = tuple(each for each in backends if each.address == str(packet.source) and _counts(half, each))
    on_node = _on_node(half, packet, backends)
    reasons += _source(front, packet, hairpins, is_pod=decided.is_pod, masquerade=masquerade)
    if on_node and masquerade:
        reasons.append(
            f"but {_listed(each.address for each in on_node)} is this node, and sees {packet.source} as it is"
        )
    return Trace(Fate.FORWARDED, tuple(reasons), front, backends, masquerade, hairpins, on_node, verdict)


def _counts(half: FamilyPlan, backend: Backend) -> bool:
    return backend.is_local or half.mode.hairpin_everywhere


def _on_node(half: FamilyPlan, packet: Packet, backends: tuple[Backend, ...]) -> tuple[Backend, ...]:
    """Backends that a packet from elsewhere reaches without leaving this node."""
    if half.mode.relays or half.node.has(packet.source):
        return ()
    own = set(map(str, half.node.addresses))
    return tuple(each for each in backends if each.address in own)


def _found(front: Front) -> str:
    where = f"port {front.key.port}/{front.key.protocol}"
    at = "" if front.kind is FrontKind.NODE_PORT else f"{front.key.address} "
    return f"{at}{where} is {_a(front.kind)} of Service {front.port.name}"


def _a(kind: FrontKind) -> str:
    return f"an {kind.value}" if kind is FrontKind.EXTERNAL_IP else f"a {kind.value}"


def _choice(half: FamilyPlan, front: Front, backends: tuple[Backend, ...]) -> Iterable[str]:
    names = _listed(
        f"{each.address}:{each.port}" if ":" not in each.address else f"[{each.address}]:{each.port}"
        for each in backends
    )
    if front.port.affinity_s:
        yield f"a client keeps its endpoint for {front.port.affinity_s} s after its last connection"
    if len(backends) == 1:
        yield f"the one endpoint is {names}"
    else:
        odds = "each in turn" if half.mode.relays else f"each with a chance of 1/{len(backends)}"
        yield f"one of {len(backends)} endpoints, {odds}: {names}"
    if half.mode.relays:
        yield "the connection ends at a relay on this node, and another one goes on"


def _source(
    front: Front, packet: Packet, hairpins: tuple[Backend, ...], *, is_pod: bool, masquerade: bool
) -> Iterable[str]:
    if masquerade and front.kind is FrontKind.CLUSTER_IP and front.route.masquerade is Masquerade.NOT_LOCAL_PODS:
        yield f"{packet.source} is no Pod of this node: the endpoint sees the node's address, so that answers come back"
    elif masquerade:
        yield "the endpoint sees the node's address, so that answers come back this way"
    else:
        yield f"the endpoint sees {packet.source}" + (", a Pod of this node" if is_pod else "")
    if hairpins and not masquerade:
        yield f"if {packet.source} is chosen itself, it sees the node's address: its answer has to come back here"


def _listed(items: Iterable[object], most: int = 10) -> str:
    texts = [str(item) for item in items]
    rest = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {rest} more" if rest > 0 else "")
