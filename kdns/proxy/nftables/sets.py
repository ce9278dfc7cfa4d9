"""The sets and maps of kdns's table: their names, what their keys and data are, and what they are for.

Fronts with an address and node ports have different keys, so each side has maps of its own. There is a map of endpoints
for each protocol, since nft, when it lists a map, has no type for a port without its protocol. Names that kube-proxy
uses too mean the same there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kdns.proxy.nftables.objects import (
    CLIENT,
    DESTINATION,
    DRAW,
    PORT,
    PRIORITY,
    PROTOCOL,
    SOURCE,
    VERDICT,
    Part,
    Parts,
    Set,
    port_of,
)
from kdns.proxy.plan.branches import ENDPOINT_SETS, Verdict
from kdns.proxy.plan.plan import FrontKind

PROTOCOLS: Final = ("tcp", "udp", "sctp")

_FRONT: Final = (DESTINATION, PROTOCOL, PORT)
CHAINS: Final = Set("service-chains", (PRIORITY,), (VERDICT,), "number of a chain to the chain")
LOCAL_CHAINS: Final = Set("external-local-chains", (PRIORITY,), (VERDICT,), "external policy Local: number to chain")
"""These two alone have verdicts: to replace one, the kernel validates the whole table.

Fronts have numbers, which are data. So a change of endpoints costs the same however many fronts there are. They are
two since the chains for external policy Local lead from the first to the second: the kernel allows no circle.
"""
NUMBERED: Final = frozenset({CHAINS.name, LOCAL_CHAINS.name})
CLUSTER_IPS: Final = Set("cluster-ips", (DESTINATION,), comment="cluster IPs in use")
MAX_CLIENTS: Final = 1 << 18
"""A client of two Service ports counts twice. The kernel takes about 100 bytes for each."""
CLIENT_OF_PORT: Final = (CLIENT, Part("(meta priority and 0xffff0000)", "classid"))
"""A client with the Service port's number, which is the upper half of every endpoint ID of that Service port."""
CLIENTS: Final = Set(
    "affinity-clients",
    (CLIENT, PRIORITY),
    (PRIORITY,),
    "client and Service port to endpoint ID",
    dynamic_size=MAX_CLIENTS,
)
HAIRPINS: Final = Set("hairpin-connections", (SOURCE, DESTINATION), comment="endpoint to itself: masqueraded")
FIREWALLED: Final = Set("firewalled", _FRONT, comment="fronts with loadBalancerSourceRanges")
FIREWALL_RANGES: Final = Set(
    "firewall-ranges", (*_FRONT, SOURCE), comment="front and a network of loadBalancerSourceRanges", has_intervals=True
)
RELAYS: Final = Set("relays", _FRONT, comment="addresses and ports of relays, for translated packets only")
SHARED: Final = frozenset({CLUSTER_IPS.name, HAIRPINS.name})
"""Sets in which fronts share elements, which are deleted with the last front."""


class EndpointMaps(NamedTuple):
    """The maps for one list of endpoints, on one side, in one protocol.

    `key` is the front within the protocol. `endpoints` are for fronts without affinity; `ids` and `by_id` for those
    with it.
    """

    key: Parts
    endpoints: Set
    ids: Set
    by_id: Set


@dataclass(frozen=True, slots=True)
class Side:
    """The fronts of one sort. `lists` and `endpoint_maps` are by list of endpoints."""

    suffix: str
    key: Parts
    services: Set
    no_endpoints: Set
    lists: Mapping[Verdict, Set]
    endpoint_maps: Mapping[tuple[Verdict, str], EndpointMaps]


_LIST_NAMES: Final = {Verdict.CLUSTER: "any-endpoint", Verdict.LOCAL: "local-endpoint"}
_LIST_SUFFIXES: Final = {Verdict.CLUSTER: "", Verdict.LOCAL: "-local"}
_LIST_WORDS: Final = {Verdict.CLUSTER: "any endpoint", Verdict.LOCAL: "endpoints of this node"}


def _endpoint_maps(verdict: Verdict, suffix: str, front: Parts, protocol: str) -> EndpointMaps:
    key, kind = (*front[:-2], port_of(protocol)), f"{_LIST_SUFFIXES[verdict]}{suffix}-{protocol}"
    draw, data, words = (*key, DRAW), (DESTINATION, port_of(protocol)), _LIST_WORDS[verdict]
    return EndpointMaps(
        key,
        Set(f"endpoints{kind}", draw, data, f"front and random draw to endpoint; {words}"),
        Set(f"endpoint-ids{kind}", draw, (PRIORITY,), f"affinity: front and random draw to endpoint ID; {words}"),
        Set(f"endpoints-by-id{kind}", (*key, PRIORITY), data, f"affinity: front and endpoint ID to endpoint; {words}"),
    )


def _side(suffix: str, key: Parts, services: str, no_endpoints: str) -> Side:
    number = (PRIORITY,)
    return Side(
        suffix,
        key,
        Set(services, key, number, "front to the number of the chain that sends to its endpoints", has_counters=True),
        Set(no_endpoints, key, number, "front without usable endpoints to 1 (reject) or 2 (drop)", has_counters=True),
        {
            verdict: Set(f"{name}{suffix}", key, number, f"external policy Local: front to {_LIST_WORDS[verdict]}")
            for verdict, name in _LIST_NAMES.items()
        },
        {
            (verdict, protocol): _endpoint_maps(verdict, suffix, key, protocol)
            for protocol in PROTOCOLS
            for verdict in ENDPOINT_SETS
        },
    )


ADDRESSES: Final = _side("", _FRONT, "service-ips", "no-endpoint-services")
NODE_PORTS: Final = _side("-nodeports", (PROTOCOL, PORT), "service-nodeports", "no-endpoint-nodeports")
SIDES: Final = (ADDRESSES, NODE_PORTS)
SERVICES: Final = tuple(side.services for side in SIDES)
"""Their elements count packets to fronts with endpoints."""
NO_ENDPOINTS: Final = tuple(side.no_endpoints for side in SIDES)
"""Their elements count packets to fronts without usable endpoints."""

_MAPS: Final = [maps for side in SIDES for maps in side.endpoint_maps.values()]
DRAWN: Final = frozenset(drawn.name for maps in _MAPS for drawn in (maps.endpoints, maps.ids))
"""The maps that are looked up by a draw. A packet may have drawn among the endpoints before a change."""
BY_ID: Final = frozenset(maps.by_id.name for maps in _MAPS)
"""The maps that are looked up by a client's endpoint ID. They must not have endpoints that left a list in use."""
LISTED: Final = frozenset(listed.name for side in SIDES for listed in side.lists.values())
"""The maps of external policy Local. A packet may be on its way to them from before a change of policy."""


def side_of(kind: FrontKind) -> Side:
    return NODE_PORTS if kind is FrontKind.NODE_PORT else ADDRESSES
