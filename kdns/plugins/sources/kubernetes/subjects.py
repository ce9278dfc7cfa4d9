"""Subjects: the invalidation keys of answers about the cluster, and those that a change touches.

Missing names have subjects too, so an NXDOMAIN is dropped when the name appears.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kdns.answers.response import EVERYTHING, Subject
from kdns.cluster.objects import (
    EndpointSlice,
    Key,
    Namespace,
    Node,
    Pod,
    Service,
    ServiceCIDR,
    ServiceImport,
)
from kdns.cluster.packed import changed_addresses, slice_addresses
from kdns.cluster.state import Change, State
from kdns.net import packed

APEX: Final[Subject] = ("apex",)
"""SOA, NS and ns.dns: touched by every change."""
REVERSE: Final[Subject] = ("reverse",)
"""Reverse names shorter than an address: touched when an address is added or removed."""
STALE: Final[Subject] = ("stale",)
"""Answers that are marked because they are from a snapshot."""
NAMESPACES: Final[Subject] = EVERYTHING
"""The set of namespaces, which all answers depend on."""


def of_service(key: Key) -> Subject:
    """All names at and below one Service or ServiceImport."""
    return ("service", *key)


def of_address(address: bytes) -> Subject:
    return ("address", address)


def of_pod(address: bytes) -> Subject:
    """The pod names of one address, in any namespace."""
    return ("pod", address)


def touched(change: Change, state: State) -> Iterator[Subject]:
    """Subjects with answers that may differ after the change."""
    yield APEX
    old, new = change.old, change.new
    for obj, other in ((old, new), (new, old)):
        match obj:
            case Service():
                yield of_service(obj.key)
                yield from (of_address(packed(ip)) for ip in obj.virtual_ips)
                yield from (of_address(packed(ip)) for ip in obj.external_ips)
                yield REVERSE
                if obj is new or new is None:
                    for endpoint_slice in state.slices_of(obj.key):
                        yield from map(of_address, slice_addresses(endpoint_slice))
            case EndpointSlice():
                key = obj.service_key
                yield from map(of_service, filter(None, (key, obj.import_key)))
                if not isinstance(other, EndpointSlice) or key != other.service_key:
                    yield from map(of_address, slice_addresses(obj))
                elif obj is new:  # names of unchanged endpoints stay
                    yield from map(of_address, changed_addresses(obj, other))
                yield REVERSE
            case Pod():
                yield from (of_pod(packed(ip)) for ip in obj.addresses)
            case Namespace():
                yield NAMESPACES
            case ServiceImport():
                yield of_service(obj.key)
            case Node() | ServiceCIDR() | None:
                pass
