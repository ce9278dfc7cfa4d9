"""What a Service port does with one client's connection: asked by the trace, and by relays for each connection."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from kdns.proxy.backends import Backend
from kdns.proxy.config import Address
from kdns.proxy.plan import FamilyPlan, Front, Masquerade, Verdict


class Because(Enum):
    """What decided, beside the policy for everybody: not in the source ranges, a Pod of this node, the node itself."""

    POLICY = auto()
    GUARDED = auto()
    POD = auto()
    NODE = auto()


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict, the backends that are chosen among with equal odds, and whether they see the node's address.

    `is_pod` says that the client is a Pod of this node.
    """

    verdict: Verdict
    because: Because
    backends: tuple[Backend, ...] = ()
    masquerade: bool = False
    is_pod: bool = False


def decision(half: FamilyPlan, front: Front, source: Address, interface: str = "") -> Decision:
    """The decision for a client; `interface` is where its packets arrive, "" where that is not known."""
    if is_guarded(half, front) and not any(source in each for each in front.source_ranges):
        return Decision(Verdict.DROP, Because.GUARDED)
    is_pod = half.local_pods is not None and half.local_pods.matches(source, interface)
    route, because = front.route, Because.POLICY
    verdict = route.verdict
    masquerade = route.masquerade is Masquerade.ALL or (route.masquerade is Masquerade.NOT_LOCAL_PODS and not is_pod)
    if route.short_circuit and is_pod:
        verdict, masquerade, because = Verdict.CLUSTER, False, Because.POD
    elif route.short_circuit and half.node.has(source):
        verdict, masquerade, because = Verdict.CLUSTER, True, Because.NODE
    lists = {Verdict.CLUSTER: front.port.backends.cluster, Verdict.LOCAL: front.port.backends.local}
    return Decision(verdict, because, lists.get(verdict, ()), masquerade or half.mode.relays, is_pod)


def is_guarded(half: FamilyPlan, front: Front) -> bool:
    """Whether source ranges count at this front."""
    if not front.source_ranges:
        return False
    return half.mode.guards_without_endpoints or front.port.backends.has_any
