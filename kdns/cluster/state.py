"""The cluster as kdns knows it: objects by key, and the indexes that DNS, the dataplane and variables need.

Every method returns the changes it made, old and new value together, so that followers need not look twice.
An object that arrives again unchanged makes no change: a relist compares in place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Generic, TypeAlias, TypeVar

from kdns.cluster.objects import EndpointSlice, Key, Namespace, Node, Object, Pod, Service, ServiceCIDR

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One object before and after; old is None for a new object, new is None for a deleted one."""

    key: Key
    old: T | None
    new: T | None


AnyChange: TypeAlias = (
    Change[Service] | Change[EndpointSlice] | Change[Pod] | Change[Namespace] | Change[Node] | Change[ServiceCIDR]
)


def packed(address: str) -> bytes:
    """The address as 4 or 16 bytes, or b"" for text that is no IP address."""
    try:
        return ip_address(address).packed
    except ValueError:
        return b""


class Index:
    """Keys by IP address (packed), in order of arrival."""

    def __init__(self) -> None:
        self._keys: dict[bytes, dict[Key, None]] = {}
        self._sorted: list[bytes] | None = None  # built by the first search, kept in step from then on

    def move(self, key: Key, old: Iterable[str], new: Iterable[str]) -> None:
        """Take `key` from its old addresses to its new ones."""
        before, after = {packed(a) for a in old}, {packed(a) for a in new}
        for address in before - after:
            keys = self._keys.get(address, {})
            keys.pop(key, None)
            if not keys and self._keys.pop(address, None) is not None and self._sorted is not None:
                del self._sorted[bisect_left(self._sorted, address)]
        for address in after - before - {b""}:
            if address not in self._keys and self._sorted is not None:
                insort(self._sorted, address)
            self._keys.setdefault(address, {})[key] = None

    def __getitem__(self, address: bytes) -> Collection[Key]:
        return self._keys.get(address, {}).keys()

    def between(self, first: bytes, last: bytes) -> Iterator[bytes]:
        """The known addresses from `first` to `last`, both of one family, in order."""
        if self._sorted is None:
            self._sorted = sorted(self._keys)
        known = self._sorted
        for position in range(bisect_left(known, first), bisect_right(known, last)):
            if len(known[position]) == len(first):
                yield known[position]


def slice_addresses(endpoint_slice: EndpointSlice | None) -> Iterator[str]:
    """Every address of the slice, ready or not."""
    if endpoint_slice:
        for endpoint in endpoint_slice.endpoints or ():
            yield from endpoint.addresses


@dataclass(slots=True)
class State:
    """Objects and indexes. Not thread-safe: one event loop owns it.

    `synced` holds the kinds that have been listed in full at least once.
    """

    services: dict[Key, Service] = field(default_factory=dict)
    slices: dict[Key, EndpointSlice] = field(default_factory=dict)
    pods: dict[Key, Pod] = field(default_factory=dict)
    namespaces: dict[Key, Namespace] = field(default_factory=dict)
    nodes: dict[Key, Node] = field(default_factory=dict)
    service_cidrs: dict[Key, ServiceCIDR] = field(default_factory=dict)
    synced: set[type[Object]] = field(default_factory=set)
    slices_by_service: dict[Key, dict[Key, EndpointSlice]] = field(default_factory=dict)
    services_by_ip: Index = field(default_factory=Index)
    slices_by_ip: Index = field(default_factory=Index)
    pods_by_ip: Index = field(default_factory=Index)

    def upsert(self, obj: Object) -> AnyChange | None:
        """Store a new or changed object; None when it equals what is stored."""
        match obj:
            case Service():
                return self._service(obj.key, obj)
            case EndpointSlice():
                return self._slice(obj.key, obj)
            case Pod():
                return self._pod(obj.key, obj)
            case Namespace():
                return self._namespace(obj.key, obj)
            case Node():
                return self._node(obj.key, obj)
            case ServiceCIDR():
                return self._service_cidr(obj.key, obj)

    def delete(self, kind: type[Object], key: Key) -> AnyChange | None:
        """Forget an object; None when it is not stored."""
        if kind is Service:
            return self._service(key, None)
        if kind is EndpointSlice:
            return self._slice(key, None)
        if kind is Pod:
            return self._pod(key, None)
        if kind is ServiceCIDR:
            return self._service_cidr(key, None)
        return self._namespace(key, None) if kind is Namespace else self._node(key, None)

    def retain(self, kind: type[Object], keys: Collection[Key]) -> list[AnyChange]:
        """Finish a full list of `kind`: forget every object whose key the list did not hold."""
        gone = [key for key in self.objects(kind) if key not in keys]
        self.synced.add(kind)
        return [change for key in gone if (change := self.delete(kind, key))]

    def objects(self, kind: type[Object]) -> Collection[Key]:
        """The keys of all stored objects of `kind`."""
        by_kind: dict[type[Object], Collection[Key]] = {
            Service: self.services.keys(),
            EndpointSlice: self.slices.keys(),
            Pod: self.pods.keys(),
            Namespace: self.namespaces.keys(),
            Node: self.nodes.keys(),
            ServiceCIDR: self.service_cidrs.keys(),
        }
        return by_kind[kind]

    def _service(self, key: Key, new: Service | None) -> Change[Service] | None:
        old = _swap(self.services, key, new)
        if old == new:
            return None
        self.services_by_ip.move(key, old.virtual_ips if old else (), new.virtual_ips if new else ())
        return Change(key, old, new)

    def _slice(self, key: Key, new: EndpointSlice | None) -> Change[EndpointSlice] | None:
        old = _swap(self.slices, key, new)
        if old == new:
            return None
        if old and old.service_key:
            siblings = self.slices_by_service[old.service_key]
            del siblings[key]
            if not siblings:
                del self.slices_by_service[old.service_key]
        if new and new.service_key:
            self.slices_by_service.setdefault(new.service_key, {})[key] = new
        self.slices_by_ip.move(key, slice_addresses(old), slice_addresses(new))
        return Change(key, old, new)

    def _pod(self, key: Key, new: Pod | None) -> Change[Pod] | None:
        old = _swap(self.pods, key, new)
        if old == new:
            return None
        self.pods_by_ip.move(key, old.addresses if old else (), new.addresses if new else ())
        return Change(key, old, new)

    def _namespace(self, key: Key, new: Namespace | None) -> Change[Namespace] | None:
        old = _swap(self.namespaces, key, new)
        return None if old == new else Change(key, old, new)

    def _node(self, key: Key, new: Node | None) -> Change[Node] | None:
        old = _swap(self.nodes, key, new)
        return None if old == new else Change(key, old, new)

    def _service_cidr(self, key: Key, new: ServiceCIDR | None) -> Change[ServiceCIDR] | None:
        old = _swap(self.service_cidrs, key, new)
        return None if old == new else Change(key, old, new)


def _swap(objects: dict[Key, T], key: Key, new: T | None) -> T | None:
    old = objects.get(key)
    if new is None:
        objects.pop(key, None)
    elif new != old:  # an equal one stays: a relist does not hold everything twice
        objects[key] = new
    return old
