"""The UDP flows of connection tracking that lead to an endpoint or relay which does not serve their front any more.

A TCP client notices that its peer is gone. A UDP client may go on sending, and each packet keeps the flow alive.

Differs: kube-proxy (pkg/proxy/conntrack, 1.36) examines the flows of all Services that have endpoints; flows of a
Service that lost all of them stay. Here the fronts that changed are examined, with endpoints or without, and a node
port counts at the node's own addresses only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from kdns.net import parse_unmapped_address
from kdns.netlink.conntrack import Flow, SocketAddress
from kdns.proxy.plan.plan import FamilyPlan, Front, FrontKey
from kdns.proxy.plan.planner import Difference

UDP: Final = "UDP"

Fronts: TypeAlias = dict[FrontKey, frozenset[SocketAddress] | None]
"""UDP fronts and the destinations of their packets; None: the front was deleted. The address "" means any."""

Targets: TypeAlias = Callable[[Front], frozenset[SocketAddress]]


def serving(front: Front) -> frozenset[SocketAddress]:
    """Returns the endpoints that serve a UDP front, which get its packets where the kernel alone forwards them."""
    return frozenset((endpoint.address, endpoint.port) for endpoint in front.port.serving)


def udp_fronts(family_plan: FamilyPlan, difference: Difference | None, targets: Targets = serving) -> Fronts:
    if difference is None:
        return {key: targets(front) for key, front in family_plan.fronts.items() if key.protocol == UDP}
    keys = {key for key in difference.fronts if key.protocol == UDP}
    for name, pair in difference.ports.items():
        if name.protocol == UDP:
            keys.update(key for port in pair if port for key, _ in port.fronts)
    fronts = ((key, family_plan.fronts.get(key)) for key in sorted(keys))
    return {key: targets(front) if front else None for key, front in fronts}


def is_stale(flow: Flow, fronts: Fronts, family_plan: FamilyPlan) -> bool:
    """Returns whether a flow to one of these fronts does not lead where its packets may go.

    A flow to a front that is gone is none of the dataplane's if its destination is not translated.
    """
    key = _front_of(flow, fronts, family_plan)
    if key is None:
        return False
    targets = fronts[key]
    if targets is None:
        return flow.answers_from != flow.destination
    return targets.isdisjoint((flow.answers_from, ("", flow.answers_from[1])))


def _front_of(flow: Flow, fronts: Fronts, family_plan: FamilyPlan) -> FrontKey | None:
    address, port = flow.destination
    key = FrontKey(address, UDP, port)
    if key in fronts:
        return key
    key = FrontKey("", UDP, port)
    if key not in fronts or FrontKey(address, UDP, port) in family_plan.fronts:
        return None
    own = parse_unmapped_address(address)
    return key if own and own in family_plan.node_ports else None
