"""Packed endpoints of an EndpointSlice: addresses in bytes, and shared values stored once.

An Endpoint takes about 700 bytes, and a cluster may have hundreds of thousands of them; packed, one takes 20 to 60.
Iteration yields Endpoints equal to the original ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from kdns.cluster.objects import Conditions, Endpoint, EndpointSlice, Hints, TargetRef
from kdns.net import packed, packed_exactly, packed_text

Same: TypeAlias = Callable[[Any, Any], Any]
"""`dict.setdefault` of a dict with the first of equal values."""

_POD = "Pod"


Traits: TypeAlias = tuple[Conditions | None, str | None, str | None, Hints | None]
"""Fields that many endpoints share: conditions, node name, zone and hints."""
Row: TypeAlias = tuple[bytes, Traits, str, str]
"""Packed address, traits, hostname and Pod name of an endpoint, "" if missing."""


class EndpointAddress(NamedTuple):
    """A packed address of an endpoint, with the fields that names are made of; "" if missing."""

    address: bytes
    hostname: str
    pod: str
    zone: str


class PackedEndpoints(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Endpoints with one address each, all of one family.

    `addresses` has `width` bytes for each endpoint. `hostnames` and `pods` are separated by spaces, "" if no endpoint
    has one. `namespace` is that of the Pods.
    """

    addresses: bytes
    width: int
    traits: tuple[Traits, ...]
    hostnames: str
    pods: str
    namespace: str

    def __len__(self) -> int:
        return len(self.traits)

    def __iter__(self) -> Iterator[Endpoint]:
        for address, (conditions, node_name, zone, hints), hostname, pod in self.rows():
            target = TargetRef(_POD, pod, self.namespace) if pod else None
            yield Endpoint((packed_text(address),), conditions, hostname or None, target, node_name, hints, zone)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedEndpoints):
            return (
                self.addresses == other.addresses
                and self.traits == other.traits
                and (self.hostnames, self.pods, self.namespace) == (other.hostnames, other.pods, other.namespace)
            )
        return tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self))

    def rows(self) -> Iterator[Row]:
        missing = ("",) * len(self.traits)
        hostnames = self.hostnames.split(" ") if self.hostnames else missing
        pods = self.pods.split(" ") if self.pods else missing
        return zip(self.packed_addresses(), self.traits, hostnames, pods, strict=True)

    def packed_addresses(self) -> list[bytes]:
        addresses, width = self.addresses, self.width
        return [addresses[at : at + width] for at in range(0, len(addresses), width)]

    def ready_addresses(self) -> Iterator[EndpointAddress]:
        for address, (conditions, _, zone, _), hostname, pod in self.rows():
            if conditions is None or conditions.ready is not False:
                yield EndpointAddress(address, hostname, pod, zone or "")

    def bare_addresses(self) -> list[bytes]:
        conditions = [traits[0] for traits in self.traits]
        pairs = zip(self.packed_addresses(), conditions, strict=True)
        return [address for address, condition in pairs if condition is None or condition.ready is not False]


def packed_slice(endpoint_slice: EndpointSlice, same: Same) -> EndpointSlice:
    """An equal slice with packed endpoints, if all can be packed."""
    endpoints = endpoint_slice.endpoints
    packed = _packed_endpoints(endpoints, same) if isinstance(endpoints, tuple) and endpoints else endpoints
    ports, family = endpoint_slice.ports, endpoint_slice.address_type
    return EndpointSlice(endpoint_slice.metadata, same(family, family), packed, same(ports, ports))


def unpacked_slice(endpoint_slice: EndpointSlice) -> EndpointSlice:
    endpoints = endpoint_slice.endpoints
    return replace(endpoint_slice, endpoints=endpoints if endpoints is None else tuple(endpoints))


def _packed_endpoints(endpoints: tuple[Endpoint, ...], same: Same) -> tuple[Endpoint, ...] | PackedEndpoints:
    try:
        addresses = packed_exactly([address for (address,) in [endpoint.addresses for endpoint in endpoints]])
        hostnames = _joined([endpoint.hostname for endpoint in endpoints])
        pods, namespace = _pods([endpoint.target_ref for endpoint in endpoints])
    except ValueError:
        return endpoints
    rows = [(endpoint.conditions, endpoint.node_name, endpoint.zone, endpoint.hints) for endpoint in endpoints]
    traits = tuple([same(row, row) for row in rows])
    return PackedEndpoints(b"".join(addresses), len(addresses[0]), traits, hostnames, pods, same(namespace, namespace))


def _pods(targets: Sequence[TargetRef | None]) -> tuple[str, str]:
    """Names of Pods and their namespace; ValueError for other targets, and for several namespaces."""
    if not any(targets):
        return "", ""
    ((kind, namespace),) = {(target.kind, target.namespace) for target in targets if target}
    names = [target.name if target else None for target in targets]
    if kind != _POD or "" in names:
        raise ValueError(kind)
    return _joined(names), namespace


def _joined(texts: Sequence[str | None]) -> str:
    """Separated by spaces, "" if all are missing; ValueError if one has a space itself."""
    if not any(texts):
        return ""
    joined = " ".join([text or "" for text in texts])
    if joined.count(" ") != len(texts) - 1:
        raise ValueError(joined)
    return joined


def ready_addresses(endpoint_slice: EndpointSlice) -> Iterable[EndpointAddress]:
    """All addresses of ready endpoints; () for addressType FQDN."""
    endpoints = endpoint_slice.endpoints
    if endpoint_slice.address_type == "FQDN" or endpoints is None:
        return ()
    return endpoints.ready_addresses() if isinstance(endpoints, PackedEndpoints) else _ready_addresses(endpoints)


def bare_addresses(endpoint_slice: EndpointSlice) -> list[bytes]:
    """Faster version of `ready_addresses`, without the fields for names."""
    endpoints = endpoint_slice.endpoints
    if isinstance(endpoints, PackedEndpoints) and endpoint_slice.address_type != "FQDN":
        return endpoints.bare_addresses()
    return [endpoint.address for endpoint in ready_addresses(endpoint_slice)]


def conditions_of(endpoint_slice: EndpointSlice) -> list[Conditions | None]:
    """The conditions of all endpoints, without unpacking them."""
    endpoints = endpoint_slice.endpoints or ()
    if isinstance(endpoints, PackedEndpoints):
        return [traits[0] for traits in endpoints.traits]
    return [endpoint.conditions for endpoint in endpoints]


def _ready_addresses(endpoints: Iterable[Endpoint]) -> Iterator[EndpointAddress]:
    for endpoint in endpoints:
        if endpoint.is_ready:
            yield from addresses_of(endpoint)


def addresses_of(endpoint: Endpoint) -> Iterator[EndpointAddress]:
    pod = endpoint.target_ref.name if endpoint.target_ref else ""
    for text in endpoint.addresses:
        if address := packed(text):
            yield EndpointAddress(address, endpoint.hostname or "", pod, endpoint.zone or "")


def changed_addresses(old: EndpointSlice, new: EndpointSlice) -> list[bytes]:
    """Addresses of endpoints that differ between two versions of a slice."""
    first, second = old.endpoints, new.endpoints
    if isinstance(first, PackedEndpoints) and isinstance(second, PackedEndpoints):
        return [address for address, *_ in {*first.rows()} ^ {*second.rows()}]
    return [packed(text) for endpoint in {*(first or ())} ^ {*(second or ())} for text in endpoint.addresses]


def slice_addresses(endpoint_slice: EndpointSlice | None) -> Iterable[bytes]:
    """All packed addresses of a slice, ready or not; b"" for text that is not an address."""
    endpoints = endpoint_slice.endpoints if endpoint_slice else None
    if isinstance(endpoints, PackedEndpoints):
        return endpoints.packed_addresses()
    return [packed(text) for endpoint in endpoints or () for text in endpoint.addresses]
