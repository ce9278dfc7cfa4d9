"""Destinations with weight 0 that still have connections, and virtual servers that go when theirs are gone.

Differs: kube-proxy looks once a minute, and deletes a virtual server with its connections. Here the connections of a
Service that is deleted go on as in the modes that translate addresses, but for DRAIN_S at most: its addresses are this
node's as long as they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kdns.netlink.io.ipvs import Destination, DestinationKey, Operation, ServerKey, Verb

DRAIN_S: Final = 900.0
"""How long a virtual server that is not wanted any more serves its last connections: as long as the kernel keeps one of
TCP without a packet."""
CHECK_S: Final = 5.0
REST: Final = 100.0
"""A check that takes long comes less often: it takes a hundredth of the time."""

Destinations = Mapping[DestinationKey, Destination]


class Draining:
    """What leaves, and until when. It decides; others read the kernel and carry out."""

    def __init__(self) -> None:
        self._leaving: dict[ServerKey, set[DestinationKey]] = {}
        self._until_s: dict[ServerKey, float] = {}

    def __len__(self) -> int:
        return sum(map(len, self._leaving.values()))

    @property
    def servers(self) -> list[ServerKey]:
        """The virtual servers to look at."""
        return list(self._leaving)

    @property
    def addresses(self) -> frozenset[str]:
        """The addresses that virtual servers need which are not wanted any more."""
        return frozenset(address for address, _, _ in self._until_s)

    def add(
        self, leaving: Mapping[ServerKey, Iterable[DestinationKey]], gone: Iterable[ServerKey], now_s: float
    ) -> None:
        """Destinations have got weight 0; `gone` are the virtual servers that go with theirs."""
        for key, destinations in leaving.items():
            self._leaving.setdefault(key, set()).update(destinations)
        for key in gone:
            self._until_s.setdefault(key, now_s + DRAIN_S)

    def wanted(self, key: ServerKey, destinations: Iterable[DestinationKey]) -> None:
        """A virtual server is wanted, again or still, with these destinations."""
        self._until_s.pop(key, None)
        left = self._leaving.get(key)
        if left is not None:
            left.difference_update(destinations)
            if not left:
                del self._leaving[key]

    def restart(
        self, leaving: Mapping[ServerKey, Iterable[DestinationKey]], gone: Iterable[ServerKey], now_s: float
    ) -> None:
        """All that leaves has been found in the kernel. What was leaving before has no more time than it had."""
        until_s = self._until_s
        self._leaving = {key: set(destinations) for key, destinations in leaving.items()}
        self._until_s = {key: until_s.get(key, now_s + DRAIN_S) for key in gone}

    def checked(self, there: Mapping[ServerKey, Destinations], now_s: float) -> Iterator[Operation]:
        """The deletions that are due, where the kernel has these destinations of the servers that were looked at."""
        for key, destinations in there.items():
            left = self._leaving.get(key)
            if left is None:
                continue
            until_s = self._until_s.get(key)
            if until_s is not None and (now_s >= until_s or not any(map(is_used, destinations.values()))):
                self._leaving.pop(key)
                self._until_s.pop(key)
                yield Operation(Verb.DELETE_SERVER, key)
                continue
            for each in sorted(left):
                found = destinations.get(each)
                if found is None or not is_used(found):
                    left.discard(each)
                    if found is not None:
                        yield Operation(Verb.DELETE_DESTINATION, key, each)
            if not left and until_s is None:
                del self._leaving[key]


def is_used(destination: Destination) -> bool:
    """Whether it has connections, open ones or such that end."""
    return bool(destination.active or destination.inactive)
