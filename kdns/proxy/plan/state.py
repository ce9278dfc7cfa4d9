"""A State that holds what the dataplane needs and no more, since every node holds all endpoints of the cluster.

It has no indexes by address and no references from endpoints to Pods.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from msgspec.structs import replace

from kdns.cluster.objects import Endpoint, EndpointSlice, Key, Object
from kdns.cluster.state import Change, State, regroup


@dataclass
class ProxyState(State):
    """Holds EndpointSlices without their Pods, and finds them by their Service only."""

    def upsert(self, obj: Object, max_bytes: float = inf) -> Change | None:
        return State.upsert(self, _without_pods(obj) if isinstance(obj, EndpointSlice) else obj, max_bytes)

    def _index(self, key: Key, old: Any, new: Any) -> None:
        if isinstance(new or old, EndpointSlice):
            regroup(self.slices_by_service, "service_key", key, old, new)


def _without_pods(each: EndpointSlice) -> EndpointSlice:
    endpoints = tuple([_endpoint(endpoint) for endpoint in each.endpoints or ()])
    return replace(each, endpoints=endpoints)


def _endpoint(each: Endpoint) -> Endpoint:
    return Endpoint(each.addresses, each.conditions, node_name=each.node_name, hints=each.hints)
