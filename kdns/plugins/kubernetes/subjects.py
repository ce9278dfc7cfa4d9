"""What an answer is about, and what a change touches: the two sides of forgetting answers that became wrong.

Every name has its subject whether it exists or not, so an NXDOMAIN is forgotten when the name appears.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kdns.cluster.objects import EndpointSlice, Key, Namespace, Node, Pod, Service, ServiceCIDR, ServiceImport
from kdns.cluster.state import AnyChange, State, slice_addresses
from kdns.dnsserver.answers.response import EVERYTHING, Subject
from kdns.net import packed

APEX: Final[Subject] = ("apex",)
"""SOA, NS and ns.dns: touched by every change."""
REVERSE: Final[Subject] = ("reverse",)
"""Reverse names shorter than an address: touched when any address comes or goes."""
NAMESPACES: Final[Subject] = EVERYTHING
"""Which namespaces there are: every answer depends on it."""


def of_service(key: Key) -> Subject:
    """All names at and below one Service, or the ServiceImport of that name."""
    return ("service", *key)


def of_address(address: bytes) -> Subject:
    """The reverse name of one address."""
    return ("address", address)


def of_pod(address: bytes) -> Subject:
    """The pod names made of one address, in any namespace."""
    return ("pod", address)


def touched(change: AnyChange, state: State) -> Iterator[Subject]:
    """The subjects whose answers may differ after the change."""
    yield APEX
    for obj in (change.old, change.new):
        match obj:
            case Service():
                yield of_service(obj.key)
                yield from (of_address(packed(ip)) for ip in obj.virtual_ips)
                yield from (of_address(packed(ip)) for ip in obj.external_ips)
                yield REVERSE
                if obj is change.new or change.new is None:
                    for endpoint_slice in state.slices_by_service.get(obj.key, {}).values():
                        yield from (of_address(packed(ip)) for ip in slice_addresses(endpoint_slice))
            case EndpointSlice():
                if obj.service_key:
                    yield of_service(obj.service_key)
                if obj.import_key:
                    yield of_service(obj.import_key)
                yield from (of_address(packed(ip)) for ip in slice_addresses(obj))
                yield REVERSE
            case Pod():
                yield from (of_pod(packed(ip)) for ip in obj.addresses)
            case Namespace():
                yield NAMESPACES
            case ServiceImport():
                yield of_service(obj.key)
            case Node() | ServiceCIDR() | None:
                pass
