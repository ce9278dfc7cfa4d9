"""The options that select which parts of the cluster a zone shows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from kdns.corefile.address import is_reverse


class PodMode(StrEnum):
    """The answers to `a-b-c-d.namespace.pod`."""

    DISABLED = "disabled"
    """The names do not exist."""
    INSECURE = "insecure"
    """The address in the name, if the namespace exists."""
    VERIFIED = "verified"
    """The address in the name, if a running pod of that namespace has it."""


@dataclass(frozen=True, slots=True)
class Options:
    """The answers' shape, as the Corefile's `kubernetes` directive sets it.

    `zones` are names with a trailing dot, lower case; `primary_zone` holds the targets of PTR records.
    `ttl_s` is 0 to 3600 seconds. `namespaces` None shows every namespace that exists.
    `multicluster` are the zones whose names are those of ServiceImports in place of Services. `zonal` adds the names
    of a headless Service's endpoints by their topology zone.
    With `explain` negative answers say why.
    `own_addresses` are the packed addresses this server answers on, for NS records.
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
        """The zone of PTR targets: the first forward zone, or else the first zone."""
        return _primary_zone(self.zones)


@lru_cache(64)
def _primary_zone(zones: tuple[str, ...]) -> str:
    return next((zone for zone in zones if not is_reverse(zone)), zones[0])
