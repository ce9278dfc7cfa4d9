"""Which endpoints a Service port uses on this node (Kubernetes, pkg/proxy/topology.go).

Ready endpoints come first; where none is ready, those that still serve while they terminate stand in. Hints narrow
the ready ones down to a node or a zone, but only if every one of them has hints and one is meant for here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kdns.cluster.objects import Endpoint, EndpointSlice
from kdns.proxy.config import Family, NodeView, canonical, family_of_text

PORTS: Final = range(1, 65536)
"""Port numbers that packets can be sent to; a slice may hold others, since nobody checks them."""


@dataclass(frozen=True, slots=True, order=True)
class Backend:
    """Where packets may be sent: an address in canonical spelling and a port; is_local: on this node."""

    address: str
    port: int
    is_local: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A backend and what its endpoint says of itself. Whatever the API leaves open counts in its favour."""

    backend: Backend
    is_ready: bool = True
    is_serving: bool = True
    is_terminating: bool = False
    zones: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()

    @property
    def stands_in(self) -> bool:
        """Whether it can be used when no endpoint is ready."""
        return self.is_serving and self.is_terminating


@dataclass(frozen=True, slots=True)
class Backends:
    """The lists a Service port chooses from, each sorted.

    `has_any` says whether any endpoint, on whatever node, could serve.
    """

    cluster: tuple[Backend, ...] = ()
    local: tuple[Backend, ...] = ()
    has_any: bool = False

    @property
    def reachable(self) -> tuple[Backend, ...]:
        """Every backend that some packet may be sent to."""
        return tuple(sorted({*self.cluster, *self.local}))


@dataclass(frozen=True, slots=True)
class Policies:
    """The two traffic policies: `internal_local` of packets to the cluster IP, `external_local` of all others."""

    internal_local: bool = False
    external_local: bool = False
    is_external: bool = False

    @property
    def uses_cluster(self) -> bool:
        """Whether some packet can go to any node: also with external policy Local, if it comes from this node."""
        return self.is_external or not self.internal_local

    @property
    def uses_local(self) -> bool:
        """Whether some packet has to stay on this node."""
        return self.internal_local or (self.is_external and self.external_local)


def candidates(
    slices: Iterable[EndpointSlice], family: Family, port_name: str, protocol: str, node_name: str
) -> tuple[Candidate, ...]:
    """The endpoints of one Service port, by address and port.

    The same address in several slices counts once; one that is not terminating wins.
    """
    found: dict[tuple[str, int], Candidate] = {}
    for each in slices:
        if each.address_type != family:
            continue
        for port in each.ports or ():
            number = port.port or 0
            if port.name != port_name or (port.protocol or "TCP") != protocol or number not in PORTS:
                continue
            for endpoint in each.endpoints or ():
                candidate = _candidate(endpoint, number, family, node_name)
                if candidate is None:
                    continue
                key = candidate.backend.address, candidate.backend.port
                if key not in found or (found[key].is_terminating and not candidate.is_terminating):
                    found[key] = candidate
    return tuple(sorted(found.values(), key=lambda each: each.backend))


def _candidate(endpoint: Endpoint, port: int, family: Family, node_name: str) -> Candidate | None:
    address = canonical(endpoint.addresses[0]) if endpoint.addresses else ""
    if not address or family_of_text(address) != family:
        return None
    backend = Backend(address, port, bool(node_name) and endpoint.node_name == node_name)
    conditions, hints = endpoint.conditions, endpoint.hints
    if conditions is None and hints is None:
        return Candidate(backend)
    return Candidate(
        backend,
        is_ready=endpoint.is_ready,
        is_serving=conditions is None or conditions.serving is not False,
        is_terminating=conditions is not None and bool(conditions.terminating),
        zones=frozenset(zone.name for zone in hints.for_zones or ()) if hints else frozenset(),
        nodes=frozenset(node.name for node in hints.for_nodes or ()) if hints else frozenset(),
    )


def chosen(found: Sequence[Candidate], policies: Policies, node: NodeView, *, node_hints: bool = True) -> Backends:
    """The lists for one Service port on this node. `node_hints` is the feature gate PreferSameTrafficDistribution."""
    ready = [each for each in found if each.is_ready]
    cluster: tuple[Backend, ...] = ()
    local: tuple[Backend, ...] = ()
    if policies.uses_cluster:
        cluster = _backends(_hinted(ready, node, node_hints=node_hints) or [each for each in found if each.stands_in])
    if policies.uses_local:
        here = [each for each in found if each.backend.is_local]
        local = _backends([each for each in here if each.is_ready] or [each for each in here if each.stands_in])
    has_any = bool(ready) or any(each.stands_in for each in found)
    return Backends(cluster, local, has_any)


def _backends(found: Iterable[Candidate]) -> tuple[Backend, ...]:
    return tuple(each.backend for each in found)


def _hinted(ready: list[Candidate], node: NodeView, *, node_hints: bool) -> list[Candidate]:
    """Those meant for this node, else those meant for its zone, else all."""
    if node_hints and node.name and all(each.nodes for each in ready):
        for_node = [each for each in ready if node.name in each.nodes]
        if for_node:
            return for_node
    if node.zone and all(each.zones for each in ready):
        for_zone = [each for each in ready if node.zone in each.zones]
        if for_zone:
            return for_zone
    return ready
