"""Destinations with weight 0 that still have connections, and obsolete virtual servers that wait for theirs to drain.

Differs: kube-proxy checks once a minute, and deletes a virtual server with its connections. Here the connections of a
deleted Service continue as in the modes that translate addresses, at most for DRAIN_S: until then this node keeps the
Service's addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kdns.netlink.ipvs import Destination, DestinationKey, Operation, Verb, VirtualServerKey

DRAIN_S: Final = 900.0
"""How long an obsolete virtual server serves its last connections: the kernel's timeout of an idle TCP connection."""
CHECK_S: Final = 5.0
BACKOFF_FACTOR: Final = 100.0
"""A slow check runs less often: checks use at most a hundredth of the time."""

Destinations = Mapping[DestinationKey, Destination]


class Draining:
    """The draining destinations and their deadlines. It decides; others read the kernel and carry out."""

    def __init__(self) -> None:
        self._draining: dict[VirtualServerKey, set[DestinationKey]] = {}
        self._until_s: dict[VirtualServerKey, float] = {}

    def __len__(self) -> int:
        return sum(map(len, self._draining.values()))

    @property
    def servers(self) -> list[VirtualServerKey]:
        return list(self._draining)

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset(key.address for key in self._until_s)

    def add(
        self,
        draining: Mapping[VirtualServerKey, Iterable[DestinationKey]],
        obsolete: Iterable[VirtualServerKey],
        now_s: float,
    ) -> None:
        """Adds destinations that got weight 0, and virtual servers to delete after their destinations drained."""
        for key, destinations in draining.items():
            self._draining.setdefault(key, set()).update(destinations)
        for key in obsolete:
            self._until_s.setdefault(key, now_s + DRAIN_S)

    def keep(self, key: VirtualServerKey, destinations: Iterable[DestinationKey]) -> None:
        """Keeps a virtual server that is desired, again or still, with these destinations."""
        self._until_s.pop(key, None)
        draining = self._draining.get(key)
        if draining is not None:
            draining.difference_update(destinations)
            if not draining:
                del self._draining[key]

    def restart(
        self,
        draining: Mapping[VirtualServerKey, Iterable[DestinationKey]],
        obsolete: Iterable[VirtualServerKey],
        now_s: float,
    ) -> None:
        """Replaces everything by what drains in the kernel. Obsolete virtual servers keep their deadlines."""
        until_s = self._until_s
        self._draining = {key: set(destinations) for key, destinations in draining.items()}
        self._until_s = {key: until_s.get(key, now_s + DRAIN_S) for key in obsolete}

    def due(self, existing: Mapping[VirtualServerKey, Destinations], now_s: float) -> Iterator[Operation]:
        """Yields the deletions that are due, given the kernel's destinations of the servers that were checked."""
        for key, destinations in existing.items():
            draining = self._draining.get(key)
            if draining is None:
                continue
            until_s = self._until_s.get(key)
            if until_s is not None and (now_s >= until_s or not any(each.is_used for each in destinations.values())):
                self._draining.pop(key)
                self._until_s.pop(key)
                yield Operation(Verb.DELETE_SERVER, key)
                continue
            for each in sorted(draining):
                destination = destinations.get(each)
                if destination is None or not destination.is_used:
                    draining.discard(each)
                    if destination is not None:
                        yield Operation(Verb.DELETE_DESTINATION, key, each)
            if not draining and until_s is None:
                del self._draining[key]
