"""Which endpoints a Service port uses on this node (Kubernetes, pkg/proxy/topology.go).

A list has the ready endpoints; without any, it has those that serve while they terminate. Hints narrow the ready
ones down to a node or a zone, but only if each of them has hints and one of them names this node or its zone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdns.cluster.objects import Endpoint, EndpointSlice
from kdns.net import Family, canonical_address, family_of_text, join_host_port
from kdns.proxy.plan.config import NodeView

PORTS: Final = range(1, 65536)
"""Valid destination ports. The API does not validate the ports of a slice."""


class ServiceEndpoint(Struct, frozen=True, order=True, gc=False):
    """An address in canonical form and a port that packets may be sent to; `is_local`: it is on this node."""

    address: str
    port: int
    is_local: bool = False

    def __str__(self) -> str:
        return join_host_port(self.address, self.port)


class Candidate(Struct, frozen=True, gc=False):
    """An endpoint of a slice with its conditions and hints, and the API's defaults for what is unset."""

    endpoint: ServiceEndpoint
    is_ready: bool = True
    is_serving: bool = True
    is_terminating: bool = False
    zones: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()

    @property
    def is_fallback(self) -> bool:
        """Whether it can be used when no endpoint is ready (KEP-1669)."""
        return self.is_serving and self.is_terminating


class EndpointLists(Struct, frozen=True):
    """The lists of endpoints of one Service port, each sorted: for traffic policy Cluster and for Local.

    `has_any`: some endpoint on some node can serve.
    """

    cluster: tuple[ServiceEndpoint, ...] = ()
    local: tuple[ServiceEndpoint, ...] = ()
    has_any: bool = False

    @property
    def reachable(self) -> tuple[ServiceEndpoint, ...]:
        return tuple(sorted({*self.cluster, *self.local}))


def candidates(
    slices: Iterable[EndpointSlice], family: Family, port_name: str, protocol: str, node_name: str
) -> tuple[Candidate, ...]:
    """Returns the endpoints of one Service port, by address and port.

    The same address in several slices counts once; one that is not terminating wins.
    """
    by_address: dict[tuple[str, int], Candidate] = {}
    for each in slices:
        if each.address_type != family:
            continue
        for port in each.ports or ():
            number = port.port or 0
            if port.name != port_name or (port.protocol or "TCP") != protocol or number not in PORTS:
                continue
            for row in each.endpoints or ():
                candidate = _candidate(row, number, family, node_name)
                if candidate is None:
                    continue
                key = candidate.endpoint.address, candidate.endpoint.port
                if key not in by_address or (by_address[key].is_terminating and not candidate.is_terminating):
                    by_address[key] = candidate
    return tuple(sorted(by_address.values(), key=lambda each: each.endpoint))


def _candidate(row: Endpoint, port: int, family: Family, node_name: str) -> Candidate | None:
    address = canonical_address(row.addresses[0]) if row.addresses else ""
    if not address or family_of_text(address) != family:
        return None
    endpoint = ServiceEndpoint(address, port, bool(node_name) and row.node_name == node_name)
    conditions, hints = row.conditions, row.hints
    if conditions is None and hints is None:
        return Candidate(endpoint)
    return Candidate(
        endpoint,
        is_ready=row.is_ready,
        is_serving=conditions is None or conditions.serving is not False,
        is_terminating=conditions is not None and bool(conditions.terminating),
        zones=frozenset(zone.name for zone in hints.for_zones or ()) if hints else frozenset(),
        nodes=frozenset(node.name for node in hints.for_nodes or ()) if hints else frozenset(),
    )


def endpoint_lists(
    known: Sequence[Candidate],
    node: NodeView,
    *,
    internal_local: bool,
    external_local: bool,
    is_external: bool,
    node_hints: bool,
) -> EndpointLists:
    """Returns the endpoints of one Service port on this node.

    `internal_local` is the traffic policy of packets to the cluster IP, `external_local` that of all others.
    `is_external`: there are fronts beside the cluster IP. `node_hints`: gate PreferSameTrafficDistribution.
    """
    ready = [candidate for candidate in known if candidate.is_ready]
    cluster: tuple[ServiceEndpoint, ...] = ()
    local: tuple[ServiceEndpoint, ...] = ()
    if is_external or not internal_local:  # with external policy Local, packets from this node may go to any
        hinted = _by_topology(ready, node, node_hints=node_hints)
        cluster = _endpoints(hinted or [candidate for candidate in known if candidate.is_fallback])
    if internal_local or (is_external and external_local):
        here = [candidate for candidate in known if candidate.endpoint.is_local]
        local = _endpoints(
            [candidate for candidate in here if candidate.is_ready]
            or [candidate for candidate in here if candidate.is_fallback]
        )
    has_any = bool(ready) or any(candidate.is_fallback for candidate in known)
    return EndpointLists(cluster, local, has_any)


def with_one_port(lists: EndpointLists) -> EndpointLists:
    """Returns the lists with endpoints of one port each: that of most endpoints, of several such ports the lowest."""
    return replace(lists, cluster=_of_one_port(lists.cluster), local=_of_one_port(lists.local))


def _of_one_port(endpoints: tuple[ServiceEndpoint, ...]) -> tuple[ServiceEndpoint, ...]:
    counts = Counter(endpoint.port for endpoint in endpoints)
    port = min(counts, key=lambda each: (-counts[each], each), default=0)
    return tuple(endpoint for endpoint in endpoints if endpoint.port == port)


def _endpoints(known: Iterable[Candidate]) -> tuple[ServiceEndpoint, ...]:
    return tuple(candidate.endpoint for candidate in known)


def _by_topology(ready: list[Candidate], node: NodeView, *, node_hints: bool) -> list[Candidate]:
    """Returns those meant for this node, else those meant for its zone, else all."""
    if node_hints and node.name and all(candidate.nodes for candidate in ready):
        for_node = [candidate for candidate in ready if node.name in candidate.nodes]
        if for_node:
            return for_node
    if node.zone and all(candidate.zones for candidate in ready):
        for_zone = [candidate for candidate in ready if node.zone in candidate.zones]
        if for_zone:
            return for_zone
    return ready
