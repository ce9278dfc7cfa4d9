"""A State that holds what the dataplane needs and no more, since every node holds all endpoints of the cluster.

It has no indexes by address and no references from endpoints to Pods.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from msgspec.structs import replace

from kdns.cluster.objects import Endpoint, EndpointSlice, Key, Object
from kdns.cluster.state import Change, Index, State


class NoIndex(Index):
    """An index without entries."""

    def move(self, key: Key, old: Iterable[bytes], new: Iterable[bytes]) -> None: ...


@dataclass
class ProxyState(State):
    """Holds EndpointSlices without their Pods, and has no indexes by address."""

    services_by_ip: Index = field(default_factory=NoIndex)
    slices_by_ip: Index = field(default_factory=NoIndex)

    def upsert(self, obj: Object, max_bytes: float = inf) -> Change | None:
        return State.upsert(self, _without_pods(obj) if isinstance(obj, EndpointSlice) else obj, max_bytes)


def _without_pods(each: EndpointSlice) -> EndpointSlice:
    endpoints = tuple([_endpoint(endpoint) for endpoint in each.endpoints or ()])
    return replace(each, endpoints=endpoints)


def _endpoint(each: Endpoint) -> Endpoint:
    return Endpoint(each.addresses, each.conditions, node_name=each.node_name, hints=each.hints)
