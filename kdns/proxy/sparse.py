"""A State with what the dataplane needs and no more: a node holds all endpoints of the cluster.

Nothing is looked up by address, nobody asks which Pod an endpoint is, and what many endpoints say alike is kept once.
With 10,000 Services of five endpoints each that halves the memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar, cast

from msgspec.structs import replace

from kdns.cluster.objects import Endpoint, EndpointSlice, Key, Object, Service
from kdns.cluster.state import AnyChange, Index, State

H = TypeVar("H", bound=Hashable)

ALIKE: Final = (
    "type",
    "ports",
    "ip_families",
    "external_ips",
    "load_balancer_source_ranges",
    "session_affinity",
    "session_affinity_config",
    "external_traffic_policy",
    "internal_traffic_policy",
)
"""Fields of a Service's spec that many Services have in common."""
MOST_KNOWN: Final = 20_000


class NoIndex(Index):
    """Knows no address."""

    def move(self, key: Key, old: Iterable[str], new: Iterable[str]) -> None:
        """Nothing."""


@dataclass
class SparseState(State):
    """Holds EndpointSlices without their Pods, and without indexes by address."""

    services_by_ip: Index = field(default_factory=NoIndex)
    slices_by_ip: Index = field(default_factory=NoIndex)
    _known: dict[Hashable, Hashable] = field(default_factory=dict)

    def upsert(self, obj: Object) -> AnyChange | None:
        """Store a new or changed object; None when it equals what is stored."""
        match obj:
            case EndpointSlice():
                obj = self._slice_without_pods(obj)
            case Service():
                spec = replace(obj.spec, **{name: self._once(getattr(obj.spec, name)) for name in ALIKE})
                obj = replace(obj, spec=spec)
        return State.upsert(self, obj)

    def _slice_without_pods(self, found: EndpointSlice) -> EndpointSlice:
        endpoints = tuple(map(self._endpoint, found.endpoints or ()))
        return EndpointSlice(found.metadata, self._once(found.address_type), endpoints, self._once(found.ports))

    def _endpoint(self, found: Endpoint) -> Endpoint:
        conditions, node_name = self._once(found.conditions), self._once(found.node_name)
        return Endpoint(found.addresses, conditions, node_name=node_name, hints=self._once(found.hints))

    def _once(self, value: H) -> H:
        """The value that was seen first of all that are equal. What has become too much is forgotten."""
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
        return cast("H", self._known.setdefault(value, value))
