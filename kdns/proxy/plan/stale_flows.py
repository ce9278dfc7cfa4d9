"""The UDP flows of connection tracking that lead to an endpoint which does not serve their front any more.

A TCP client notices that its peer is gone. A UDP client may go on sending, and each packet keeps the flow alive.

Differs: kube-proxy (pkg/proxy/conntrack, 1.36) examines the flows of all Services that have endpoints; flows of a
Service that lost all of them stay. Here the fronts that changed are examined, with endpoints or without, and a node
port counts at the node's own addresses only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from kdns.net import parse_unmapped_address
from kdns.proxy.plan.plan import FamilyPlan, Front, FrontKey
from kdns.proxy.plan.planner import Difference

UDP: Final = "UDP"

SocketAddress: TypeAlias = tuple[str, int]
"""An address in canonical form, and a port."""


class Flow(NamedTuple):
    """A UDP flow: the destination of the client's packets, and the source of the answers. `handle` identifies it."""

    destination: SocketAddress
    answers_from: SocketAddress
    handle: bytes


Fronts: TypeAlias = Mapping[FrontKey, frozenset[SocketAddress] | None]
"""UDP fronts and the endpoints that serve them; None: the front is gone."""


def udp_fronts(half: FamilyPlan, difference: Difference | None) -> Fronts:
    """The fronts whose flows are to be examined: those of the difference, or all of the plan.

    There are none in a mode with relays, which end their flows themselves.
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
    """Both; a later front replaces an earlier one."""
    return {**earlier, **later}


def stale(flows: Iterable[Flow], fronts: Fronts, half: FamilyPlan) -> list[Flow]:
    """The flows to these fronts that do not lead to an endpoint which serves them.

    A flow to a front that is gone is none of the dataplane's if its destination is not translated.
    """
    stale_ones = []
    for flow in flows:
        key = _front_of(flow, fronts, half)
        if key is None:
            continue
        serving = fronts[key]
        wrong = flow.answers_from != flow.destination if serving is None else flow.answers_from not in serving
        if wrong:
            stale_ones.append(flow)
    return stale_ones


def _front_of(flow: Flow, fronts: Fronts, half: FamilyPlan) -> FrontKey | None:
    address, port = flow.destination
    key = FrontKey(address, UDP, port)
    if key in fronts:
        return key
    key = FrontKey("", UDP, port)
    if key not in fronts or FrontKey(address, UDP, port) in half.fronts:
        return None
    own = parse_unmapped_address(address)
    return key if own and own in half.node_ports else None


def _serving(front: Front | None) -> frozenset[SocketAddress] | None:
    return frozenset((each.address, each.port) for each in front.port.serving) if front else None
