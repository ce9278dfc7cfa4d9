"""The index that the endpoint controllers share, and the cached views of each Service's Pods.

A Service is indexed by one (label, value) of its selector, a Pod by all of its labels, so a change of one never
iterates over all others. Objects are shared with the store and never changed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, Protocol, TypeAlias, TypeVar

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.annotations import ZONE
from kdns.controlplane.apimachinery.conditions import condition_of
from kdns.controlplane.apimachinery.kinds import ENDPOINT_SLICE, ENDPOINTS, NODE, POD, SERVICE, Json, Kind
from kdns.controlplane.controllers.reconciler import Change
from kdns.controlplane.endpoints.pod_endpoints import MANAGED_BY, SERVICE_NAME, has_selector
from kdns.controlplane.kinds.service.spec import spec_of
from kdns.controlplane.storage.object_meta import timestamp

K = TypeVar("K")
Pair: TypeAlias = tuple[str, str, str]
"""(namespace, label, value); ("ns", "", "") means every Pod of the namespace."""

Concern: TypeAlias = tuple[Key, Key | None]
"""A Service that a change affects, and the changed Pod, None if no Pod changed."""


@dataclass(slots=True)
class ServiceIndex:
    """Services, and the objects that belong to them. The endpoint controllers share one index, in one event loop."""

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

    def observe(self, change: Change) -> tuple[Concern, ...]:
        """The first controller that observes an event applies it, the others get its result."""
        latest = (change.kind, change.key, change.revision)
        if latest != self._latest:
            self._latest, self._concerned = latest, tuple(self.apply(change.kind, change.key, change.obj))
        return self._concerned

    def apply(self, kind: Kind, key: Key, obj: Json | None) -> set[Concern]:
        """Sets an object, None for a deleted one. Returns the affected Services."""
        if kind == SERVICE:
            old = _swap(self.services, key, obj)
            before, now = _selector_pair(old), _selector_pair(obj)
            _reindex(self._services_by_pair, key, before, now)
            has_nothing = not (before or now or key in self.endpoints or key in self._slices_of)
            return set() if obj and has_nothing else {(key, None)}
        if kind == POD:
            old = _swap(self.pods, key, obj)
            _reindex(self._pods_by_pair, key, _pairs(old), _pairs(obj))
            _reindex(self._pods_by_node, key, _nodes(old), _nodes(obj))
            return {(service, key) for pod in (old, obj) if pod for service in self._services_selecting(pod)}
        if kind == ENDPOINTS:
            _swap(self.endpoints, key, obj)
            return {(key, None)}
        if kind == ENDPOINT_SLICE:
            obj = obj if obj and MANAGED_BY in (obj["metadata"].get("labels") or {}) else None
            old = _swap(self.slices, key, obj)
            _reindex(self._slices_of, key, _service_keys(old), _service_keys(obj))
            return {(service, None) for service in (*_service_keys(old), *_service_keys(obj))}
        if kind == NODE:
            return self._node(key[1], obj)
        return set()

    def pods_of(self, service: Json) -> list[Key]:
        namespace = service["metadata"].get("namespace", "")
        selector = spec_of(service).get("selector") or {}
        pairs = [(namespace, label, value) for label, value in selector.items()] or [(namespace, "", "")]
        candidates = min((self._pods_by_pair.get(pair, {}) for pair in pairs), key=len)
        return [key for key in sorted(candidates) if _selects(selector, self.pods[key])]

    def selected(self, service: Json, key: Key) -> Json | None:
        pod = self.pods.get(key)
        return pod if pod and _selects(spec_of(service).get("selector") or {}, pod) else None

    def slices_of(self, key: Key, manager: str) -> list[Json]:
        slices = (self.slices[name] for name in self._slices_of.get(key, ()))
        return [managed for managed in slices if managed["metadata"]["labels"][MANAGED_BY] == manager]

    def _services_selecting(self, pod: Json) -> Iterator[Key]:
        for pair in _pairs(pod):
            for key in self._services_by_pair.get(pair, ()):
                if _selects(spec_of(self.services[key]).get("selector") or {}, pod):
                    yield key

    def _node(self, name: str, obj: Json | None) -> set[Concern]:
        """A Node that is added, deleted or changes its zone affects the Services of its Pods."""
        old = _swap(self.nodes, name, obj)
        if old and obj and _zone(old) == _zone(obj):
            return set()
        pods = self._pods_by_node.get(name, ())
        return {(service, key) for key in pods for service in self._services_selecting(self.pods[key])}


@dataclass(slots=True)
class TriggerTimeTracker:
    """The trigger times of one Service (k8s.io/endpointslice/util).

    The annotation endpoints.kubernetes.io/last-change-trigger-time lets clients measure the latency of a change. It is
    the earliest time since the last reconcile at which a Pod's readiness changed or the Service was created.
    """

    _is_initialized: bool = False
    _service: datetime | None = None
    _pods: dict[Key, datetime] = field(default_factory=dict)
    _earliest: datetime | None = None

    def put(self, key: Key, pod: Json | None) -> None:
        changed = _parsed_time((condition_of(pod, "Ready") or {}).get("lastTransitionTime")) if pod else None
        before = self._pods.pop(key, None)
        if changed is None:
            return
        self._pods[key] = changed
        if before is None or changed > before:
            self._earliest = min(self._earliest or changed, changed)

    def take(self, service: Json) -> str:
        """The trigger time since the last call (RFC 3339), or ""; first the creation of the Service."""
        created = _parsed_time(service["metadata"].get("creationTimestamp"))
        trigger = self._earliest
        if created and (self._service is None or created > self._service):
            trigger = min(trigger or created, created)
        if not self._is_initialized:
            trigger = created
        self._is_initialized, self._service, self._earliest = True, created, None
        return timestamp(trigger.timestamp()) if trigger else ""


def _parsed_time(text: str | None) -> datetime | None:
    try:
        time = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return time if time and time.tzinfo else None


class PodView(Protocol):
    """State that a controller derives from the Pods of one Service."""

    def put(self, key: Key, pod: Json | None) -> None:
        """None for a Pod that the Service does not select."""
        ...


V = TypeVar("V", bound=PodView)


@dataclass(slots=True)
class _CachedView(Generic[V]):
    depends_on: object
    view: V
    times: TriggerTimeTracker = field(default_factory=TriggerTimeTracker)


class PodViews(Generic[V]):
    """One view per Service, cached between reconciles: the cost is proportional to the changes, not to all Pods.

    `depends_on(service)` returns the Service fields that the view depends on; when they change, it is rebuilt.
    `empty(service)` is a view without Pods.
    """

    def __init__(self, index: ServiceIndex, depends_on: Callable[[Json], object], empty: Callable[[Json], V]) -> None:
        self._index, self._depends_on, self._empty = index, depends_on, empty
        self._views: dict[Key, _CachedView[V]] = {}
        self._changed_pods: dict[Key, dict[Key, None]] = {}

    def touch(self, concerns: Iterable[Concern]) -> set[Key]:
        """Records which Pods have changed. Returns the Services to reconcile."""
        services = set()
        for service, pod in concerns:
            services.add(service)
            if pod:
                self._changed_pods.setdefault(service, {})[pod] = None
        return services

    def view(self, key: Key, service: Json) -> tuple[V, str]:
        """The present view of a Service's Pods, and the trigger time since the last call (RFC 3339, or "")."""
        cached, depends_on = self._views.get(key), self._depends_on(service)
        changed: Iterable[Key] = self._changed_pods.pop(key, {})
        if cached is None or cached.depends_on != depends_on:
            times = cached.times if cached else TriggerTimeTracker()
            cached = self._views[key] = _CachedView(depends_on, self._empty(service), times)
            changed = (*changed, *self._index.pods_of(service))
        for pod_key in changed:
            pod = self._index.selected(service, pod_key)
            cached.view.put(pod_key, pod)
            cached.times.put(pod_key, pod)
        return cached.view, cached.times.take(service)

    def drop(self, key: Key) -> None:
        self._views.pop(key, None)
        self._changed_pods.pop(key, None)


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


def _selector_pair(service: Json | None) -> list[Pair]:
    """The pair that a Service is indexed by; empty without a selector."""
    if service is None or not has_selector(service):
        return []
    selector = spec_of(service)["selector"]
    return [(service["metadata"].get("namespace", ""), *(min(selector.items()) if selector else ("", "")))]


def _service_keys(endpoint_slice: Json | None) -> list[Key]:
    if endpoint_slice is None:
        return []
    meta = endpoint_slice["metadata"]
    name = (meta.get("labels") or {}).get(SERVICE_NAME)
    return [(meta.get("namespace", ""), name)] if name else []


def _reindex(index: dict[K, dict[Key, None]], key: Key, old: list[K], new: list[K]) -> None:
    for value in set(old).difference(new):
        index[value].pop(key, None)
        if not index[value]:
            del index[value]
    for value in new:
        index.setdefault(value, {})[key] = None
