"""The plan as nftables: a table whose number of rules does not depend on the number of Services.

A front is an element of a map that leads to a chain for *so many endpoints*; that chain's one rule draws a number and
looks the endpoint up in another map. What differs from Service to Service is elements, and elements are what a change
adds and deletes. Session affinity is the exception: each Service port that wants it has a map of its clients and chains
of its own, of six rules each.

    service-ips, service-nodeports                  front → what happens first
    any-endpoint, local-endpoint (…-nodeports)      front → the chain of one list, for external policy Local
    endpoints-tcp, endpoints-local-tcp, …           front and draw → endpoint, a map for each protocol
    numbers-tcp, numbers-local-tcp, …               with affinity: front and draw → number of an endpoint
    numbered-tcp, numbered-local-tcp, …             with affinity: front and number → endpoint
    affinity-…                                      client → number of its endpoint, for one Service port
    no-endpoint-services, no-endpoint-nodeports     front → reject or drop
    cluster-ips, hairpin-connections                addresses; endpoint to itself
    firewalled, firewall-ranges                     fronts with source ranges; front and range

Names that kube-proxy has too are kube-proxy's.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from ipaddress import collapse_addresses
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from kdns.proxy.backends import Backend
from kdns.proxy.config import Family, Network
from kdns.proxy.plan import Front, FrontKind, Masquerade, PortName, PortPlan, Verdict

Part: TypeAlias = str | int
ElementKey: TypeAlias = tuple[Part, ...]
"""The parts of an element in the order of its set's type: addresses and protocols as text, numbers as numbers."""


class Step(NamedTuple):
    """What happens first at a front: a verdict, and the Service port for people who read the table."""

    verdict: str
    comment: str


class Place(NamedTuple):
    """Where a packet is sent."""

    address: str
    port: int


Data: TypeAlias = Step | Place | str | None
"""What a map's element leads to; a string is a verdict or a number as nft writes it, None is in sets."""

TABLE: Final = "kdns"
SHARED: Final = frozenset({"cluster-ips", "hairpin-connections"})
"""Sets in which several fronts may want the same element."""
MISSING: Final = "no element"
"""What no element leads to."""
NAME_MAX: Final = 210
"""Characters of a name that belongs to one Service port; nftables allows 255, and prefixes come before."""
COMMENT_MAX: Final = 128
"""Characters of a comment that nft takes."""
REJECT, DROP = "goto reject-chain", "drop"
NFT_FAMILY: Final[Mapping[Family, str]] = {"IPv4": "ip", "IPv6": "ip6"}


@dataclass(slots=True)
class Content:
    """What fronts put into the table: elements by set, chains by name with their rules, names of maps of clients."""

    elements: dict[str, dict[ElementKey, Data]] = field(default_factory=dict)
    chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    affinity_maps: dict[str, None] = field(default_factory=dict)

    def put(self, name: str, key: ElementKey, data: Data = None) -> None:
        """Add one element."""
        self.elements.setdefault(name, {})[key] = data


@dataclass(frozen=True, slots=True)
class Side:
    """Fronts with an address and node ports are looked up by different keys, in maps of their own.

    `place` is the key within one protocol. The maps of endpoints are one for each protocol, since nft knows ports only
    as those of a protocol where it reads the types of a map back.
    """

    key: str
    place: str
    services: str
    refused: str
    suffix: str


_ADDRESSED: Final = Side(
    "{ip} daddr . meta l4proto . th dport", "{ip} daddr . {protocol} dport", "service-ips", "no-endpoint-services", ""
)
_NODE_PORT: Final = Side(
    "meta l4proto . th dport", "{protocol} dport", "service-nodeports", "no-endpoint-nodeports", "-nodeports"
)
PROTOCOLS: Final = ("tcp", "udp", "sctp")
RELAYED: Final = ("tcp", "udp")
SIDES: Final = (_ADDRESSED, _NODE_PORT)
_LISTS: Final = {"any-endpoint": "", "local-endpoint": "-local"}
_KINDS: Final = [
    f"{name}{side.suffix}-{protocol}" for name in _LISTS.values() for side in SIDES for protocol in PROTOCOLS
]
DRAWN: Final = frozenset(f"{what}{kind}" for what in ("endpoints", "numbers") for kind in _KINDS)
"""The maps in which a draw is looked up that was made from as many endpoints as there were a moment before."""
NUMBERED: Final = frozenset(f"numbered{kind}" for kind in _KINDS)
"""The maps in which a number is looked up that a client was given: endpoints that left the list must not be there."""
LISTED: Final = frozenset(f"{name}{side.suffix}" for name in _LISTS for side in SIDES)
"""The maps of external policy Local, in which a front is looked up that may have another policy by now."""

Send: TypeAlias = "Callable[[Content, Front, Side, ElementKey, str, tuple[Backend, ...], str], str]"
"""Makes the chain for one list of backends of a front, and names it: the last step, in which modes differ."""


def content(fronts: Iterable[Front], family: Family) -> Content:
    """Everything that these fronts put into the table of their family."""
    made = Content()
    for front in fronts:
        put_front(made, front, NFT_FAMILY[family], _list_chain)
        for each in (*front.port.backends.local, *front.port.backends.cluster):
            if each.is_local:
                made.put("hairpin-connections", (each.address, each.address))
    return made


def put_front(made: Content, front: Front, ip: str, send: Send) -> None:
    """All of one front but what `send` knows."""
    key = front.key
    side = _NODE_PORT if front.kind is FrontKind.NODE_PORT else _ADDRESSED
    where: ElementKey = (key.protocol.lower(), key.port)
    if side is _ADDRESSED:
        where = (key.address, *where)
    if front.kind is FrontKind.CLUSTER_IP:
        made.put("cluster-ips", (key.address,))
    if front.source_ranges:
        made.put("firewalled", where)
    for network in collapsed(front.source_ranges):
        made.put("firewall-ranges", (*where, str(network)))
    _put_route(made, front, side, where, ip, send)


def _put_route(made: Content, front: Front, side: Side, where: ElementKey, ip: str, send: Send) -> None:
    route, backends, comment = front.route, front.port.backends, str(front.port.name)[:COMMENT_MAX]
    if route.verdict in {Verdict.REJECT, Verdict.DROP}:
        made.put(side.refused, where, Step(REJECT if route.verdict is Verdict.REJECT else DROP, comment))
    if route.short_circuit:
        made.put(side.services, where, Step(f"goto external-local{side.suffix}", comment))
        lists = {"any-endpoint": backends.cluster, "local-endpoint": backends.local}
        for name in ("any-endpoint", "local-endpoint") if backends.local else ("any-endpoint",):
            made.put(f"{name}{side.suffix}", where, f"goto {send(made, front, side, where, name, lists[name], ip)}")
    elif route.verdict in {Verdict.CLUSTER, Verdict.LOCAL}:
        anywhere = route.verdict is Verdict.CLUSTER
        name, chosen = ("any-endpoint", backends.cluster) if anywhere else ("local-endpoint", backends.local)
        chain = send(made, front, side, where, name, chosen, ip)
        if route.masquerade is Masquerade.ALL and front.kind is not FrontKind.CLUSTER_IP:
            masqueraded = f"masquerade-{chain}"
            made.chains[masqueraded] = ("jump mark-for-masquerade", f"goto {chain}")
            chain = masqueraded
        made.put(side.services, where, Step(f"goto {chain}", comment))


def _list_chain(
    made: Content, front: Front, side: Side, where: ElementKey, name: str, backends: tuple[Backend, ...], ip: str
) -> str:
    """The chain that sends to one of the backends."""
    protocol, count = where[-2], len(backends)
    place, key = (*where[:-2], where[-1]), side.place.format(ip=ip, protocol=protocol)
    kind = f"{_LISTS[name]}{side.suffix}-{protocol}"
    if front.port.affinity_s:
        chain = f"{name}{side.suffix}-{_own_name(front.port.name, ip)}"
        made.chains[chain] = _affinity_rules(made, front.port, place, key, kind, backends, ip)
        return chain
    for drawn, backend in enumerate(backends):
        made.put(f"endpoints{kind}", (*place, drawn), Place(backend.address, backend.port))
    chain = f"endpoints{kind}-{count}"
    made.chains[chain] = (f"dnat {ip} addr . port to {key} . numgen random mod {count} map @endpoints{kind}",)
    return chain


def _affinity_rules(
    made: Content, port: PortPlan, place: ElementKey, key: str, kind: str, backends: tuple[Backend, ...], ip: str
) -> tuple[str, ...]:
    """Clients go where they went last, new ones anywhere, and so do those whose endpoint is gone.

    What one map says can be looked up in the next only by way of the packet. Its priority is what is missed least:
    these rules see the first packet of a connection and no other. A client whose endpoint is gone must be deleted,
    since an update leaves what it finds. An endpoint may go between draw and look-up: then the list's first is taken.
    """
    clients = f"affinity-{_own_name(port.name, ip)}"
    made.affinity_maps[clients] = None
    for drawn, (number, backend) in enumerate(numbered(backends)):
        made.put(f"numbers{kind}", (*place, drawn), str(number))
        made.put(f"numbered{kind}", (*place, number), Place(backend.address, backend.port))
    keep = f"update @{clients} {{ {ip} saddr timeout {port.affinity_s}s : meta priority }}"
    send = f"dnat {ip} addr . port to {key} . meta priority map @numbered{kind}"
    draw, first = (
        f"meta priority set {key} . numgen random mod {many} map @numbers{kind}" for many in (len(backends), 1)
    )
    known = f"meta priority set {ip} saddr map @{clients}"
    return (
        f"{known} {keep} {send}",
        f"delete @{clients} {{ {ip} saddr : meta priority }}",
        f"{draw} {keep}",
        send,
        first,
        send,
    )


def numbered(backends: Iterable[Backend]) -> Iterator[tuple[int, Backend]]:
    """Numbers by which endpoints are known, whichever others there are: of two with the same, the second gets the next.

    The last four bits are 0, as with ordinary packets: queues are chosen by them where a number is a packet's priority.
    """
    taken = set()
    for backend in backends:
        number = crc32(f"{backend.address} {backend.port}".encode()) & ~0xF
        while number in taken:
            number = (number + 0x10) & 0xFFFFFFFF
        taken.add(number)
        yield number, backend


def _own_name(name: PortName, ip: str) -> str:
    """A name for what belongs to one Service port, unique by its hash and readable by the rest."""
    text = f"{name.namespace}/{name.service}/{name.protocol.lower()}/{name.port}"
    digest = b32encode(sha256(f"{ip} {text}".encode()).digest())[:8].decode()
    return f"{digest}-{text}"[:NAME_MAX]


def collapsed(networks: Iterable[Network]) -> Iterator[Network]:
    """The same addresses in networks that do not overlap, which sets of intervals want."""
    return collapse_addresses(networks)  # type: ignore[type-var]  # they are of one family
