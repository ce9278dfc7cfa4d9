"""The relays that a node needs, where they listen, and how a listing names them.

A relay serves one front, so that it knows the destination of its clients, of datagrams too. At a loopback address it
listens itself. Packets to any other front are captured: rules of the kernel lead them to a relay on this node in place
of an endpoint (capture.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Final, NamedTuple

from kdns.net import FAMILIES, VERSION, Address, Family, bracketed, is_loopback, parse_unmapped_address
from kdns.proxy.plan.branches import Verdict
from kdns.proxy.plan.endpoints import ServiceEndpoint
from kdns.proxy.plan.plan import FamilyPlan, Front, FrontKey, FrontKind, Plan, printable


class RelayKey(NamedTuple):
    """A relay is named by the front that it serves and the list of endpoints that it is for.

    The rules that capture choose the list, since they match the interface of arrival, which a relay does not know.
    `endpoint_set` is None if nothing is captured: then the relay chooses.
    """

    family: Family
    front: FrontKey
    endpoint_set: Verdict | None = None


_LOOPBACK: Final[Mapping[Family, Address]] = {"IPv4": ip_address("127.0.0.1"), "IPv6": ip_address("::1")}


def relay_keys(family: Family, front: Front, *, captures: bool) -> tuple[RelayKey, ...]:
    """Returns the relays of a front: one for each list of endpoints that some client gets one of."""
    if captures and not is_loopback(front.key.address):
        return tuple(RelayKey(family, front.key, verdict) for verdict in front.lists)
    return (RelayKey(family, front.key),) if front.lists else ()


def relay_addresses(family_plan: FamilyPlan) -> Iterator[Address]:
    """Yields the addresses at which relays may listen for captured packets, the best one first.

    A node without an address of the family has clients of its own only, which reach a loopback address.
    """
    own = dict.fromkeys((*family_plan.node.primary, *family_plan.node.addresses))
    yield from (address for address in own if address.version == VERSION[family_plan.family])
    yield _LOOPBACK[family_plan.family]


def leads_back(family_plan: FamilyPlan, endpoint: ServiceEndpoint, protocol: str) -> bool:
    """Returns whether an endpoint is itself a front of this node: relays would connect to each other without end."""
    if FrontKey(endpoint.address, protocol, endpoint.port) in family_plan.fronts:
        return True
    if FrontKey("", protocol, endpoint.port) not in family_plan.fronts:
        return False
    address = parse_unmapped_address(endpoint.address)
    return address is not None and address in family_plan.node_ports


def listing(plan: Plan) -> tuple[list[str], dict[RelayKey, int]]:
    """Returns comment lines that describe every relay, and the number by which a line names each relay.

    Rules have these numbers in place of ports, which the kernel chooses when a relay starts.
    """
    family_plans = [plan.of(family) for family in FAMILIES]
    fronts = [(family_plan, front) for family_plan in family_plans for front in family_plan.fronts.values()]
    keys = [
        key
        for family_plan, front in fronts
        for key in relay_keys(family_plan.family, front, captures=True)
        if key.endpoint_set
    ]
    numbers = {key: number for number, key in enumerate(keys, 1)}
    head = "# relays, each at a port that is chosen when it starts; below, their numbers stand for their ports"
    return [head, *(line for family_plan, front in fronts for line in _lines(family_plan, front, numbers))], numbers


def _lines(family_plan: FamilyPlan, front: Front, numbers: Mapping[RelayKey, int]) -> Iterator[str]:
    key, branches = front.key, front.branches
    at = "*" if front.kind is FrontKind.NODE_PORT else bracketed(key.address)
    what = f"{key.protocol} {at}:{key.port}, {front.kind.value} of {printable(str(front.port.name))}"
    keys = relay_keys(family_plan.family, front, captures=True)
    if not keys:
        yield f"#   no relay: {what}: {branches[-1].verdict.value}"
    for relay_key in keys:
        verdict = relay_key.endpoint_set or branches[-1].verdict
        count = len(front.port.endpoints_of(verdict))
        endpoints = f"{count} endpoint{'' if count == 1 else 's'}"
        if relay_key.endpoint_set is None:
            yield f"#   listened on as it is: {what}, to {endpoints}"
        elif verdict is Verdict.LOCAL:
            yield f"#   relay {numbers[relay_key]}: {what}, to {endpoints} of this node"
        else:
            whose = "" if branches[-1].verdict is verdict else ", for this node and its Pods"
            yield f"#   relay {numbers[relay_key]}: {what}, to {endpoints}{whose}"
