"""Which UDP flows the kernel still translates to where they must not go any more.

TCP notices by itself that its other end is gone. A UDP client goes on sending, and each packet renews the flow.

Differs: kube-proxy (pkg/proxy/conntrack, 1.36) looks at the flows of all Services and not at those of Services without
endpoints, whose clients then talk to nobody for ever. Here it is the fronts that changed, with and without endpoints,
and node ports are those at the node's own addresses, not everybody's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from kdns.proxy.config import parsed_address
from kdns.proxy.plan import FamilyPlan, Front, FrontKey
from kdns.proxy.planner import Difference

UDP: Final = "UDP"

Place: TypeAlias = tuple[str, int]
"""Address, in canonical spelling, and port."""


class Flow(NamedTuple):
    """A UDP flow: where the client sent its packets, and where answers come from. `handle` tells it from others."""

    destination: Place
    answers_from: Place
    handle: bytes


Fronts: TypeAlias = Mapping[FrontKey, frozenset[Place] | None]
"""UDP fronts and the endpoints that serve them; None: there is no such front any more."""


def udp_fronts(half: FamilyPlan, difference: Difference | None) -> Fronts:
    """The fronts whose flows are to be looked at; without a difference all that there are.

    None in mode userspace, where flows end at relays that know what to do.
    """
    if half.mode.relays:
        return {}
    if difference is None:
        return {key: _serving(front) for key, front in half.fronts.items() if key.protocol == UDP}
    keys = {key for key in difference.fronts if key.protocol == UDP}
    for name, pair in difference.ports.items():
        if name.protocol == UDP:
            keys.update(key for port in pair if port for key, _ in port.fronts)
    return {key: _serving(half.fronts.get(key)) for key in sorted(keys)}


def merged(earlier: Fronts, later: Fronts) -> Fronts:
    """Both, where the later ones count."""
    return {**earlier, **later}


def stale(flows: Iterable[Flow], fronts: Fronts, half: FamilyPlan) -> list[Flow]:
    """The flows to these fronts that do not lead to an endpoint which serves them.

    At a front that is gone, a flow that is not translated belongs to somebody else.
    """
    found = []
    for flow in flows:
        key = _front_of(flow, fronts, half)
        if key is None:
            continue
        serving = fronts[key]
        wrong = flow.answers_from != flow.destination if serving is None else flow.answers_from not in serving
        if wrong:
            found.append(flow)
    return found


def _front_of(flow: Flow, fronts: Fronts, half: FamilyPlan) -> FrontKey | None:
    address, port = flow.destination
    key = FrontKey(address, UDP, port)
    if key in fronts:
        return key
    key = FrontKey("", UDP, port)
    if key not in fronts or FrontKey(address, UDP, port) in half.fronts:
        return None
    own = parsed_address(address)
    return key if own and half.serves_node_ports_at(own) else None


def _serving(front: Front | None) -> frozenset[Place] | None:
    return frozenset((each.address, each.port) for each in front.port.serving) if front else None
