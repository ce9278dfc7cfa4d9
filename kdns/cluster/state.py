"""The state of the cluster: objects by key, and the indexes of DNS, the dataplane and service variables.

Methods return changes with the old and the new object. An object that arrives again unchanged makes no change, so that
a relist compares in place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from kdns.cluster.memory import INDEXED_BYTES, object_bytes
from kdns.cluster.objects import (
    EndpointSlice,
    Key,
    Namespace,
    Node,
    Object,
    Pod,
    Service,
    ServiceCIDR,
    ServiceImport,
)
from kdns.cluster.packed import Same, packed_slice, slice_addresses
from kdns.net import packed

MAX_DELETED: Final = 1000
"""The most deleted Services to remember."""


@dataclass(frozen=True, slots=True)
class Change:
    """One object before and after; None for a new or a deleted object."""

    key: Key
    old: Object | None
    new: Object | None


OnChange: TypeAlias = Callable[[Sequence[Change], float], None]
"""Called with changes, and their time in Unix seconds, which never goes back."""


class StateFullError(Exception):
    """The object is not stored: it would exceed the memory limit."""


class Index:
    """Packed address → keys, in order of arrival. Most addresses have one key, which needs no dict."""

    def __init__(self) -> None:
        self._keys: dict[bytes, Key | dict[Key, None]] = {}
        self._sorted: list[bytes] | None = None  # built by the first search, updated from then on

    def move(self, key: Key, old: Iterable[bytes], new: Iterable[bytes]) -> None:
        """b"" is ignored."""
        before, after = {*old} - {b""}, {*new} - {b""}
        for address in before - after:
            self._remove(address, key)
        for address in after - before:
            keys = self._keys.setdefault(address, key)
            if isinstance(keys, dict):
                keys[key] = None
            elif keys != key:
                self._keys[address] = {keys: None, key: None}
            elif self._sorted is not None:
                insort(self._sorted, address)

    def _remove(self, address: bytes, key: Key) -> None:
        keys = self._keys[address]
        if isinstance(keys, dict):
            del keys[key]
            if len(keys) == 1:
                (self._keys[address],) = keys
        else:
            del self._keys[address]
            if self._sorted is not None:
                del self._sorted[bisect_left(self._sorted, address)]

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, address: bytes) -> Collection[Key]:
        keys = self._keys.get(address, ())
        return keys.keys() if isinstance(keys, dict) else (keys,) if keys else ()

    def between(self, first: bytes, last: bytes) -> Iterator[bytes]:
        """The indexed addresses from `first` to `last`, which are of one family, in order."""
        if self._sorted is None:
            self._sorted = sorted(self._keys)
        addresses = self._sorted
        for position in range(bisect_left(addresses, first), bisect_right(addresses, last)):
            if len(addresses[position]) == len(first):
                yield addresses[position]


SHARED_FIELDS: Final = (
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
"""Fields of a Service's spec with values that many Services share."""
MAX_SHARED: Final = 20_000
_shared_fields: Final = attrgetter(*SHARED_FIELDS)


@dataclass(slots=True)
class State:
    """Objects and indexes. Not thread-safe: one event loop owns it.

    `synced` are the kinds with a complete list, `stale` those with the list of a snapshot, saved at `as_of_s`.
    `changed_s` is the Unix time of the last change, as passed to listeners. `deleted` are the last deleted Services
    with their times.
    """

    services: dict[Key, Service] = field(default_factory=dict)
    slices: dict[Key, EndpointSlice] = field(default_factory=dict)
    pods: dict[Key, Pod] = field(default_factory=dict)
    namespaces: dict[Key, Namespace] = field(default_factory=dict)
    nodes: dict[Key, Node] = field(default_factory=dict)
    service_cidrs: dict[Key, ServiceCIDR] = field(default_factory=dict)
    service_imports: dict[Key, ServiceImport] = field(default_factory=dict)
    synced: set[type[Object]] = field(default_factory=set)
    stale: set[type[Object]] = field(default_factory=set)
    as_of_s: float = 0.0
    slices_by_service: dict[Key, dict[Key, EndpointSlice]] = field(default_factory=dict)
    slices_by_import: dict[Key, dict[Key, EndpointSlice]] = field(default_factory=dict)
    services_by_ip: Index = field(default_factory=Index)
    services_by_external_ip: Index = field(default_factory=Index)
    slices_by_ip: Index = field(default_factory=Index)
    pods_by_ip: Index = field(default_factory=Index)
    changed_s: float = 0.0
    deleted: dict[Key, float] = field(default_factory=dict)
    _objects_bytes: int = 0
    _shared: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """The first of equal values, cleared beyond `MAX_SHARED`."""
    _by_kind: Mapping[type[Object], dict[Key, Any]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._by_kind = {
            Service: self.services,
            EndpointSlice: self.slices,
            Pod: self.pods,
            Namespace: self.namespaces,
            Node: self.nodes,
            ServiceCIDR: self.service_cidrs,
            ServiceImport: self.service_imports,
        }

    @property
    def memory_bytes(self) -> int:
        indexes = self.services_by_ip, self.services_by_external_ip, self.slices_by_ip, self.pods_by_ip
        return self._objects_bytes + INDEXED_BYTES * sum(map(len, indexes))

    def upsert(self, obj: Object, max_bytes: float = inf) -> Change | None:
        """None if the object equals the stored one; StateFullError if the state would grow beyond `max_bytes`."""
        match obj:
            case Service():
                return self._replace(Service, obj.key, self._with_shared_fields(obj), max_bytes)
            case EndpointSlice():
                return self._replace(EndpointSlice, obj.key, packed_slice(obj, self._same), max_bytes)
            case Pod():
                return self._replace(Pod, obj.key, obj, max_bytes)
            case Namespace():
                return self._replace(Namespace, obj.key, obj, max_bytes)
        return self._replace(type(obj), obj.key, obj, max_bytes)

    def delete(self, kind: type[Object], key: Key) -> Change | None:
        return self._replace(kind, key, None)

    def _replace(self, kind: type[Object], key: Key, new: Object | None, max_bytes: float = inf) -> Change | None:
        objects = self._by_kind[kind]
        old = objects.get(key)
        if old == new:  # keeps the old object, so that a relist frees its decoded objects
            return None
        grown_bytes = (object_bytes(new) if new else 0) - (object_bytes(old) if old else 0)
        if grown_bytes > 0 and self.memory_bytes + grown_bytes > max_bytes:
            raise StateFullError
        self._objects_bytes += grown_bytes
        if new is None:
            del objects[key]
        else:
            objects[key] = new
        self._index(key, old, new)
        return Change(key, old, new)

    def _index(self, key: Key, old: Any, new: Any) -> None:
        match new or old:
            case Service():
                self.services_by_ip.move(key, *_addresses("virtual_ips", old, new))
                self.services_by_external_ip.move(key, *_addresses("external_ips", old, new))
            case Pod():
                self.pods_by_ip.move(key, *_addresses("addresses", old, new))
            case EndpointSlice():
                regroup(self.slices_by_service, "service_key", key, old, new)
                regroup(self.slices_by_import, "import_key", key, old, new)
                self.slices_by_ip.move(key, slice_addresses(old), slice_addresses(new))

    def retain(self, kind: type[Object], keys: Collection[Key]) -> list[Change]:
        """Finishes a complete list of `kind`: deletes objects with other keys."""
        missing = [key for key in self.objects(kind) if key not in keys]
        self.synced.add(kind)
        self.stale.discard(kind)
        return [change for key in missing if (change := self.delete(kind, key))]

    def is_listed(self, kind: type[Object]) -> bool:
        return kind in self.synced and kind not in self.stale

    def objects(self, kind: type[Object]) -> Mapping[Key, Object]:
        return self._by_kind[kind]

    def note_deleted(self, key: Key, now_s: float) -> None:
        self.deleted.pop(key, None)
        self.deleted[key] = now_s
        if len(self.deleted) > MAX_DELETED:
            del self.deleted[next(iter(self.deleted))]

    def slices_of(self, key: Key) -> Collection[EndpointSlice]:
        """The EndpointSlices of a Service, which need not exist."""
        return self.slices_by_service.get(key, {}).values()

    @property
    def _same(self) -> Same:
        if len(self._shared) > MAX_SHARED:
            self._shared.clear()
        return self._shared.setdefault

    def _with_shared_fields(self, service: Service) -> Service:
        same, values = self._same, _shared_fields(service.spec)
        shared = dict(zip(SHARED_FIELDS, map(same, values, values), strict=True))
        return replace(service, spec=replace(service.spec, **shared))


def _addresses(field: str, *versions: Any) -> Iterator[Iterable[bytes]]:
    return (map(packed, getattr(version, field)) if version else () for version in versions)


def regroup(groups: dict[Key, dict[Key, EndpointSlice]], field: str, key: Key, old: Any, new: Any) -> None:
    if old and (group := getattr(old, field)):
        del groups[group][key]
        if not groups[group]:
            del groups[group]
    if new and (group := getattr(new, field)):
        groups.setdefault(group, {})[key] = new
