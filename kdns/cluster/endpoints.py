"""Endpoints of an EndpointSlice, as the API has them and packed: addresses in bytes, and shared values stored once.

An Endpoint takes about 700 bytes, and a cluster may have hundreds of thousands of them; packed, one takes 20 to 60.
Iteration yields Endpoints equal to the original ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from kdns.net import packed_text

POD = "Pod"


def _api_name(field: str) -> str:
    """cluster_ips → clusterIPs, for_zones → forZones."""
    first, *others = field.split("_")
    initials = {"ip": "IP", "ips": "IPs", "cidr": "CIDR", "cidrs": "CIDRs"}
    return first + "".join(initials.get(word, word.capitalize()) for word in others)


class Slim(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename=_api_name):
    """Base of the slim objects: immutable, compared by value, encoded without default values."""


class Conditions(Slim, frozen=True):
    """endpoints[].conditions; None is unknown, which counts as ready."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class TargetRef(Slim, frozen=True):
    """endpoints[].targetRef."""

    kind: str = ""
    name: str = ""
    namespace: str = ""


class Named(Slim, frozen=True):
    """hints.forZones[] and hints.forNodes[]."""

    name: str


class Hints(Slim, frozen=True):
    """endpoints[].hints: the zones and nodes whose clients should use the endpoint."""

    for_zones: tuple[Named, ...] | None = ()
    for_nodes: tuple[Named, ...] | None = ()


class Endpoint(Slim, frozen=True):
    """endpoints[] of an EndpointSlice."""

    addresses: tuple[str, ...]
    conditions: Conditions | None = None
    hostname: str | None = None
    target_ref: TargetRef | None = None
    node_name: str | None = None
    hints: Hints | None = None
    zone: str | None = None

    @property
    def is_ready(self) -> bool:
        """Unknown counts as ready (discovery/v1 EndpointConditions)."""
        return self.conditions is None or self.conditions.ready is not False


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
            target = TargetRef(POD, pod, self.namespace) if pod else None
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


if TYPE_CHECKING:
    Endpoints: TypeAlias = tuple[Endpoint, ...] | PackedEndpoints
else:
    Endpoints = tuple[Endpoint, ...]
"""Endpoints as decoded, or packed as in State."""
