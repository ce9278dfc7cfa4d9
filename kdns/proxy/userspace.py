"""The plan as relays: which listeners a node needs, and how nftables brings packets to them.

A relay is the listener of one front, so that it knows by itself what its clients asked for, datagrams included. Fronts
at loopback addresses are listened on as they are. All others are captured: the table is mode nftables' with another
last step, which leads to a relay on this node in place of an endpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from kdns.proxy.backends import Backend
from kdns.proxy.config import FAMILIES, VERSION, Address, Family, parsed_address
from kdns.proxy.nftables import NFT_FAMILY, Content, ElementKey, Send, Side, put_front
from kdns.proxy.nfttable import Table
from kdns.proxy.plan import FamilyPlan, Front, FrontKey, FrontKind, Plan, Verdict


class RelayKey(NamedTuple):
    """A relay is named by the front that it serves and the list of endpoints that it is for.

    The rules that capture know better than a relay on which interface a packet came in, so they choose the list
    ("any-endpoint" or "local-endpoint"); where nothing is captured the relay does it, and `list` is "".
    """

    family: Family
    front: FrontKey
    list: str = ""


LISTS: Final[Mapping[str, str]] = {"any-endpoint": "relays", "local-endpoint": "relays-local"}
"""List → what the maps of its relays are called."""


def relay_keys(family: Family, front: Front, *, captures: bool) -> tuple[RelayKey, ...]:
    """The relays that a front wants: those from which some client can get an endpoint."""
    route, backends = front.route, front.port.backends
    if route.short_circuit:
        lists = tuple(LISTS) if backends.local else ("any-endpoint",)
    else:
        lists = {Verdict.CLUSTER: ("any-endpoint",), Verdict.LOCAL: ("local-endpoint",)}.get(route.verdict, ())
    if captures and not is_loopback(front.key):
        return tuple(RelayKey(family, front.key, name) for name in lists)
    return (RelayKey(family, front.key),) if lists else ()


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
        relays = relay_keys(family, front, captures=True)
        if not is_loopback(front.key) and all(relay in ports for relay in relays):
            put_front(made, front, NFT_FAMILY[family], _to_relay({each.list: ports[each] for each in relays}, to))
    return made


def _to_relay(ports: Mapping[str, int], to: Address | None) -> Send:
    """Leads to the relays of one front; `ports` are by list."""
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
        del front, backends
        protocol = where[-2]
        relays = f"{LISTS[name]}{side.suffix}-{protocol}"
        made.put(relays, (*where[:-2], where[-1]), str(ports[name]))
        made.put(f"relay-ports-{protocol}", (ports[name],))
        chain = f"to-{relays}"
        place = side.place.format(ip=ip, protocol=protocol)
        made.chains[chain] = (f"meta l4proto {protocol} {target}:{place} map @{relays}",)
        return chain

    return send


def userspace_text(plan: Plan) -> str:
    """Every relay with what it serves, and the rules that capture for them, for a person to read.

    Relays are numbered where their ports would be, since the kernel chooses those when they start.
    """
    halves = [plan.of(family) for family in FAMILIES]
    fronts = [(half, front) for half in halves for front in half.fronts.values()]
    relays = [relay for half, front in fronts for relay in relay_keys(half.family, front, captures=True) if relay.list]
    ports = {relay: number for number, relay in enumerate(relays, 1)}
    listed = [line for half, front in fronts for line in _lines(half, front, ports)]
    head = "# relays, each at a port that is chosen when it starts; below, their numbers stand for their ports"
    tables = "".join(table(half, ports, own_address(half)).whole() for half in halves)
    return "\n".join((head, *listed, "", tables))


def own_address(half: FamilyPlan) -> Address | None:
    """The node's own address of the family, as far as it is known."""
    return next((each for each in half.node.primary if each.version == VERSION[half.family]), None)


def _lines(half: FamilyPlan, front: Front, ports: Mapping[RelayKey, int]) -> Iterator[str]:
    key, backends = front.key, front.port.backends
    at = "*" if front.kind is FrontKind.NODE_PORT else f"[{key.address}]" if ":" in key.address else key.address
    what = f"{key.protocol} {at}:{key.port}, {front.kind.value} of {front.port.name}"
    relays = relay_keys(half.family, front, captures=True)
    if not relays:
        yield f"#   no relay: {what}: {front.route.verdict.value}"
    for each in relays:
        if each.list == "local-endpoint":
            yield f"#   relay {ports[each]}: {what}, to {_counted(backends.local)} of this node"
        elif each.list:
            whose = ", for this node and its Pods" if front.route.short_circuit else ""
            yield f"#   relay {ports[each]}: {what}, to {_counted(backends.cluster)}{whose}"
        else:
            yield f"#   listened on as it is: {what}, to {_counted(backends.cluster or backends.local)}"


def _counted(backends: tuple[Backend, ...]) -> str:
    return f"{len(backends)} endpoint{'' if len(backends) == 1 else 's'}"
