"""Slices with packed endpoints, and addresses of slices of both forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from kdns.cluster.endpoints import POD, Conditions, Endpoint, EndpointAddress, PackedEndpoints, TargetRef
from kdns.cluster.objects import EndpointSlice
from kdns.net import packed, packed_exactly

Same: TypeAlias = Callable[[Any, Any], Any]
"""`dict.setdefault` of a dict with the first of equal values."""


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
    if kind != POD or "" in names:
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
