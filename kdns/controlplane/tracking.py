"""The objects that the Services' controllers look at, indexed so that one event concerns few Services.

A Service is filed under one pair of its selector, a Pod under all its labels: neither a Pod's change nor a Service's
looks at the other Services or Pods of the cluster. Objects are shared with the store and never changed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from kdns.cluster.objects import Key
from kdns.controlplane.endpointpods import SERVICE_NAME
from kdns.controlplane.endpoints import follows_selector
from kdns.controlplane.kinds import ENDPOINT_SLICE, ENDPOINTS, NODE, POD, SERVICE, Json, Kind
from kdns.controlplane.services import spec_of
from kdns.controlplane.topology import ZONE

K = TypeVar("K")
Pair: TypeAlias = tuple[str, str, str]
"""(namespace, label, value); ("ns", "", "") stands for every Pod of the namespace."""

Concern: TypeAlias = tuple[Key, Key | None]
"""A Service that a change concerns, and the Pod through which it does."""


@dataclass(slots=True)
class Tracked:
    """Everything the controllers of Services' endpoints know; they share one. One event loop owns it."""

    services: dict[Key, Json] = field(default_factory=dict)
    pods: dict[Key, Json] = field(default_factory=dict)
    nodes: dict[str, Json] = field(default_factory=dict)
    endpoints: dict[Key, Json] = field(default_factory=dict)
    slices: dict[Key, Json] = field(default_factory=dict)
    _slices_of: dict[Key, dict[Key, None]] = field(default_factory=dict)
    _services_by_pair: dict[Pair, dict[Key, None]] = field(default_factory=dict)
    _pods_by_pair: dict[Pair, dict[Key, None]] = field(default_factory=dict)
    _pods_by_node: dict[str, dict[Key, None]] = field(default_factory=dict)
    _latest: tuple[Kind, Key, int] | None = None
    _concerned: tuple[Concern, ...] = ()

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> tuple[Concern, ...]:
        """`apply`, once however many controllers pass on the same event."""
        latest = (kind, key, revision)
        if latest != self._latest:
            self._latest, self._concerned = latest, tuple(self.apply(kind, key, obj))
        return self._concerned

    def apply(self, kind: Kind, key: Key, obj: Json | None) -> set[Concern]:
        """Learn one object's new state (None: deleted); the Services that it concerns."""
        if kind == SERVICE:
            _refile(self._services_by_pair, key, _filed(self.services.get(key)), _filed(obj))
            _swap(self.services, key, obj)
            return {(key, None)}
        if kind == POD:
            old = _swap(self.pods, key, obj)
            _refile(self._pods_by_pair, key, _pairs(old), _pairs(obj))
            _refile(self._pods_by_node, key, _nodes(old), _nodes(obj))
            return {(service, key) for pod in (old, obj) if pod for service in self._services_selecting(pod)}
        if kind == ENDPOINTS:
            _swap(self.endpoints, key, obj)
            return {(key, None)}
        if kind == ENDPOINT_SLICE:
            old = _swap(self.slices, key, obj)
            _refile(self._slices_of, key, _service_keys(old), _service_keys(obj))
            return {(service, None) for service in (*_service_keys(old), *_service_keys(obj))}
        if kind == NODE:
            return self._node(key[1], obj)
        return set()

    def pods_of(self, service: Json) -> list[Key]:
        """The Pods that the Service's selector selects, in order."""
        namespace = service["metadata"].get("namespace", "")
        selector = spec_of(service).get("selector") or {}
        pairs = [(namespace, label, value) for label, value in selector.items()] or [(namespace, "", "")]
        candidates = min((self._pods_by_pair.get(pair, {}) for pair in pairs), key=len)
        return [key for key in sorted(candidates) if _selects(selector, self.pods[key])]

    def selected(self, service: Json, key: Key) -> Json | None:
        """The Pod, if it is there and the Service's selector selects it."""
        pod = self.pods.get(key)
        return pod if pod and _selects(spec_of(service).get("selector") or {}, pod) else None

    def slices_of(self, key: Key) -> list[Json]:
        """All slices that name this Service, whoever made them."""
        return [self.slices[found] for found in self._slices_of.get(key, ())]

    def _services_selecting(self, pod: Json) -> Iterator[Key]:
        for pair in _pairs(pod):
            for key in self._services_by_pair.get(pair, ()):
                if _selects(spec_of(self.services[key]).get("selector") or {}, pod):
                    yield key

    def _node(self, name: str, obj: Json | None) -> set[Concern]:
        """A node's coming, going or moving to another zone concerns the Services of its Pods."""
        old = _swap(self.nodes, name, obj)
        if old and obj and _zone(old) == _zone(obj):
            return set()
        here = self._pods_by_node.get(name, ())
        return {(service, key) for key in here for service in self._services_selecting(self.pods[key])}


def _swap(objects: dict[K, Json], key: K, obj: Json | None) -> Json | None:
    old = objects.pop(key, None)
    if obj is not None:
        objects[key] = obj
    return old


def _zone(node: Json) -> str | None:
    zone: str | None = (node["metadata"].get("labels") or {}).get(ZONE)
    return zone


def _selects(selector: dict[str, str], pod: Json) -> bool:
    return selector.items() <= (pod["metadata"].get("labels") or {}).items()


def _pairs(pod: Json | None) -> list[Pair]:
    if pod is None:
        return []
    namespace, labels = pod["metadata"].get("namespace", ""), pod["metadata"].get("labels") or {}
    return [(namespace, "", ""), *((namespace, label, value) for label, value in labels.items())]


def _nodes(pod: Json | None) -> list[str]:
    name = (pod.get("spec") or {}).get("nodeName") if pod else None
    return [name] if name else []


def _filed(service: Json | None) -> list[Pair]:
    """The one pair a Service is filed under; none when no Pod concerns it."""
    if service is None or not follows_selector(service):
        return []
    selector = spec_of(service)["selector"]
    return [(service["metadata"].get("namespace", ""), *(min(selector.items()) if selector else ("", "")))]


def _service_keys(endpoint_slice: Json | None) -> list[Key]:
    if endpoint_slice is None:
        return []
    meta = endpoint_slice["metadata"]
    name = (meta.get("labels") or {}).get(SERVICE_NAME)
    return [(meta.get("namespace", ""), name)] if name else []


def _refile(index: dict[K, dict[Key, None]], key: Key, old: list[K], new: list[K]) -> None:
    for heading in old:
        if heading not in new:
            index[heading].pop(key, None)
            if not index[heading]:
                del index[heading]
    for heading in new:
        index.setdefault(heading, {})[key] = None
