"""Options of the zones' content."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from kdns.corefile.address import is_reverse


class PodMode(StrEnum):
    """Whether names such as `a-b-c-d.namespace.pod` exist."""

    DISABLED = "disabled"
    """Never."""
    INSECURE = "insecure"
    """If the namespace exists."""
    VERIFIED = "verified"
    """If a running pod of the namespace has the address."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `kubernetes` about names and records.

    - `zones` are in lower case, with a trailing dot; `ttl_s` is 0 to 3600.
    - `namespaces` None: all namespaces.
    - `multicluster` are zones with ServiceImports instead of Services.
    - `zonal` adds names of a headless Service's endpoints by topology zone.
    - With `explain` negative answers say why.
    - `own_addresses` are the packed addresses of this server, for NS records.
    """

    zones: tuple[str, ...] = ("cluster.local.",)
    ttl_s: int = 5
    pods: PodMode = PodMode.DISABLED
    endpoint_pod_names: bool = False
    endpoints: bool = True
    ignore_empty_service: bool = False
    namespaces: frozenset[str] | None = None
    own_addresses: tuple[bytes, ...] = ()
    multicluster: frozenset[str] = frozenset()
    zonal: bool = False
    explain: bool = False

    @property
    def primary_zone(self) -> str:
        """The zone of PTR targets: the first forward zone, or else the first."""
        return _primary_zone(self.zones)


@lru_cache(64)
def _primary_zone(zones: tuple[str, ...]) -> str:
    return next((zone for zone in zones if not is_reverse(zone)), zones[0])
