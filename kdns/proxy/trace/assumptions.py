"""What a trace assumes where no configuration says it: each default with another result where it is otherwise.

Every alternative is traced, and only those with another result are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from kdns.cluster.objects import Service
from kdns.cluster.state import State
from kdns.net import parse_unmapped_address
from kdns.proxy.modes import MODES
from kdns.proxy.plan.claims import API_SERVICE
from kdns.proxy.plan.plan import Plan
from kdns.proxy.settings.settings import LOCAL_MODES, Settings
from kdns.proxy.trace.trace import Packet, Trace, trace

PlanOf: TypeAlias = Callable[[State, Settings], Plan]
"""Makes the plan of the node at hand."""


class Assumption(NamedTuple):
    """A setting with its default, the alternative in words, and the result there."""

    setting: str
    otherwise: str
    result: Trace


def assumptions(
    state: State, plan_of: PlanOf, settings: Settings, packet: Packet, *, is_mode_given: bool
) -> tuple[Assumption, ...]:
    """Returns the defaults in `settings` that the fate, the endpoints or the source that they see depend on."""
    concerned = _concerned(state, packet)
    plan = plan_of(concerned, settings)
    assumed, is_of_node = trace(plan, packet), plan.ipv4.node.has(packet.source)
    found = []
    for setting, otherwise, other in _alternatives(settings, packet, is_mode_given=is_mode_given):
        result = trace(plan_of(concerned, other), packet)
        is_source_same = is_of_node or other.mode != settings.mode or _seen(result) == _seen(assumed)
        if (result.fate, {*result.endpoints}) != (assumed.fate, {*assumed.endpoints}) or not is_source_same:
            found.append(Assumption(setting, otherwise, result))
    return tuple(found)


def _seen(result: Trace) -> set[bool]:
    """Returns whether endpoints see the node's address, their own client's, or some this and some that."""
    return {*map(result.sees_node, result.endpoints)}


def _alternatives(settings: Settings, packet: Packet, *, is_mode_given: bool) -> Iterator[tuple[str, str, Settings]]:
    source = packet.source
    if settings.detect_local_mode == LOCAL_MODES[0] and not settings.cluster_cidr:
        neighbour = source + (-1 if int(source) % 2 else 1)
        for otherwise, cidr in (f"with one that has {source}", source), (f"with one without {source}", neighbour):
            yield "clusterCIDR is unset", otherwise, replace(settings, cluster_cidr=str(cidr))
    for word in ("primary", "all") if not settings.node_port_addresses else ():
        yield "nodePortAddresses is unset", f"with {word}", replace(settings, node_port_addresses=(word,))
    if packet.destination.is_loopback and (switch := MODES[settings.mode].loopback_switch) and switch.is_on(settings):
        yield f"{switch.path} is true", "if it is false", switch.turned_off(settings)
    for mode in MODES.values() if not is_mode_given else ():
        if mode.is_common:
            yield f"the mode is {settings.mode}", f"in {mode.name}", replace(settings, mode=mode.name)


def _concerned(state: State, packet: Packet) -> State:
    """Returns the Services that may have the packet's destination, with their endpoints, and all nodes."""
    concerned = State()
    for node in state.nodes.values():
        concerned.upsert(node)
    for key, service in state.services.items():
        if key == API_SERVICE or _may_have(service, packet):
            concerned.upsert(service)
            for endpoint_slice in state.slices_of(key):
                concerned.upsert(endpoint_slice)
    return concerned


def _may_have(service: Service, packet: Packet) -> bool:
    spec = service.spec
    texts = (spec.cluster_ip, *spec.cluster_ips, *service.external_ips)
    ports = (spec.health_check_node_port, *(port.node_port for port in spec.ports or ()))
    return packet.port in ports or any(parse_unmapped_address(text) == packet.destination for text in texts if text)
