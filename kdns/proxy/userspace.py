"""The plan as relays: which listeners a node needs, and how nftables brings packets to them.

A relay is the listener of one front, so that it knows by itself what its clients asked for, datagrams included. Fronts
at loopback addresses are listened on as they are. All others are captured: the table is mode nftables' with another
last step, which leads to a relay on this node in place of an endpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import count
from typing import NamedTuple

from kdns.proxy.backends import Backend
from kdns.proxy.config import FAMILIES, VERSION, Address, Family, parsed_address
from kdns.proxy.nftables import NFT_FAMILY, Content, ElementKey, Send, Side, put_front
from kdns.proxy.nfttable import Table
from kdns.proxy.plan import FamilyPlan, Front, FrontKey, FrontKind, Plan, Verdict


class RelayKey(NamedTuple):
    """A relay is named by the front that it serves."""

    family: Family
    front: FrontKey


def wants_relay(front: Front) -> bool:
    """Whether some client of this front can get an endpoint."""
    route, backends = front.route, front.port.backends
    if route.verdict in {Verdict.CLUSTER, Verdict.LOCAL}:
        return True
    return route.short_circuit and bool(backends.cluster)


def is_loopback(key: FrontKey) -> bool:
    """Whether nothing needs to be captured, since the front's address is this machine's."""
    address = parsed_address(key.address)
    return address is not None and address.is_loopback


def node_port_binds(half: FamilyPlan) -> tuple[str, ...]:
    """The addresses where node ports are listened on, where nothing is captured."""
    if any(network.prefixlen == 0 for network in half.node_port_networks):
        return ("0.0.0.0" if half.family == "IPv4" else "::",)
    loopback = parsed_address("127.0.0.1" if half.family == "IPv4" else "::1")
    own = (*half.node.addresses, *((loopback,) if loopback else ()))
    return tuple(dict.fromkeys(str(address) for address in own if half.serves_node_ports_at(address)))


def leads_back(half: FamilyPlan, backend: Backend, protocol: str) -> bool:
    """Whether an endpoint is itself a virtual IP or a node port of this node: relays would feed each other for ever."""
    if FrontKey(backend.address, protocol, backend.port) in half.fronts:
        return True
    if FrontKey("", protocol, backend.port) not in half.fronts:
        return False
    address = parsed_address(backend.address)
    return address is not None and half.serves_node_ports_at(address)


def table(half: FamilyPlan, ports: Mapping[RelayKey, int], to: Address | None) -> Table:
    """The table that captures: packets go to the relays' `ports` at the node's address `to`.

    Without one they go to the address of the interface they come in on, which must have one then.
    """
    return Table(half, partial(_captured, ports, to))


def _captured(ports: Mapping[RelayKey, int], to: Address | None, fronts: Iterable[Front], family: Family) -> Content:
    made = Content()
    for front in fronts:
        relay = RelayKey(family, front.key)
        if not is_loopback(front.key) and (relay in ports or not wants_relay(front)):
            put_front(made, front, NFT_FAMILY[family], _to_relay(ports.get(relay, 0), to))
    return made


def _to_relay(relay_port: int, to: Address | None) -> Send:
    """Leads to a front's relay, whichever of its lists is meant: the relay decides that again for itself."""
    target = f"dnat to {f'[{to}]' if to.version == VERSION['IPv6'] else to}" if to else "redirect to "

    def send(
        made: Content,
        front: Front,
        side: Side,
        where: ElementKey,
        name: str,
        backends: tuple[Backend, ...],
        ip: str,
    ) -> str:
        del front, name, backends
        protocol = where[-2]
        relays = f"relays{side.suffix}-{protocol}"
        made.put(relays, (*where[:-2], where[-1]), str(relay_port))
        made.put(f"relay-ports-{protocol}", (relay_port,))
        chain = f"relay{side.suffix}-{protocol}"
        place = side.place.format(ip=ip, protocol=protocol)
        made.chains[chain] = (f"meta l4proto {protocol} {target}:{place} map @{relays}",)
        return chain

    return send


def userspace_text(plan: Plan) -> str:
    """Every relay with what it serves, and the rules that capture for them, for a person to read.

    Relays are numbered where their ports would be, since the kernel chooses those when they start.
    """
    ports = dict(zip(_relays(plan), count(1), strict=False))
    halves = [plan.of(family) for family in FAMILIES]
    listed = [_line(half, front, ports) for half in halves for front in half.fronts.values()]
    head = "# relays, each at a port that is chosen when it starts; below, their numbers stand for their ports"
    tables = "".join(table(half, ports, own_address(half)).whole() for half in halves)
    return "\n".join((head, *listed, "", tables))


def own_address(half: FamilyPlan) -> Address | None:
    """The node's own address of the family, as far as it is known."""
    return next((each for each in half.node.primary if each.version == VERSION[half.family]), None)


def _relays(plan: Plan) -> Iterator[RelayKey]:
    for family in FAMILIES:
        for front in plan.of(family).fronts.values():
            if wants_relay(front):
                yield RelayKey(family, front.key)


def _line(half: FamilyPlan, front: Front, ports: Mapping[RelayKey, int]) -> str:
    key = front.key
    number = ports.get(RelayKey(half.family, key))
    at = "*" if front.kind is FrontKind.NODE_PORT else f"[{key.address}]" if ":" in key.address else key.address
    what = f"{key.protocol} {at}:{key.port}, {front.kind.value} of {front.port.name}"
    backends = front.port.backends.cluster or front.port.backends.local
    count_of = f"{len(backends)} endpoint{'' if len(backends) == 1 else 's'}"
    if number is None:
        return f"#   none: {what}: {front.route.verdict.value}"
    how = "listened on as it is" if is_loopback(key) else f"relay {number}"
    return f"#   {how}: {what}: {count_of}"
