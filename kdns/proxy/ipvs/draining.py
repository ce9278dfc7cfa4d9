"""The operations that lead from the kernel's virtual servers to the desired ones, and what drains meanwhile.

A TCP connection outlives its endpoint: the destination gets weight 0, which takes no new connections, and is deleted
after its last connection has ended. Connections of UDP and SCTP end at once, as in kube-proxy: their clients retry.

Differs: kube-proxy checks once a minute, and deletes a virtual server with its connections. Here the connections of a
deleted Service continue as in the modes that translate addresses, at most for DRAIN_S: until then this node keeps the
Service's addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from kdns.netlink.ipvs import Destination, DestinationKey, Operation, Verb, VirtualServer, VirtualServerKey

DRAIN_S: Final = 900.0
"""How long an obsolete virtual server serves its last connections: the kernel's timeout of an idle TCP connection."""
CHECK_S: Final = 5.0
DRAINED: Final = frozenset({"TCP"})
"""The protocols whose destinations drain."""

Destinations: TypeAlias = Mapping[DestinationKey, Destination]
ServerChange: TypeAlias = tuple[VirtualServerKey, VirtualServer | None, VirtualServer | None]
"""A virtual server in the kernel and as desired; None: absent."""


class Draining:
    """Destinations of weight 0 with connections, and obsolete virtual servers with their deadlines."""

    def __init__(self, protocols: frozenset[str] = DRAINED) -> None:
        self._protocols = protocols
        self._draining: dict[VirtualServerKey, set[DestinationKey]] = {}
        self._until_s: dict[VirtualServerKey, float] = {}

    def __len__(self) -> int:
        return sum(map(len, self._draining.values()))

    @property
    def servers(self) -> list[VirtualServerKey]:
        return list(self._draining)

    @property
    def addresses(self) -> frozenset[str]:
        """Of obsolete virtual servers."""
        return frozenset(key.address for key in self._until_s)

    def restart(self, servers: Iterable[ServerChange], now_s: float) -> list[Operation]:
        """`change` for all virtual servers of the kernel. Obsolete ones keep their deadlines."""
        until_s, self._until_s, self._draining = self._until_s, {}, {}
        operations = self.change(servers, now_s)
        self._until_s |= {key: until_s[key] for key in self._until_s.keys() & until_s.keys()}
        return operations

    def change(self, servers: Iterable[ServerChange], now_s: float) -> list[Operation]:
        """New servers and destinations come first, so no scheduler is without destinations in between."""
        additions: list[Operation] = []
        removals: list[Operation] = []
        for key, existing, desired in servers:
            if desired is not None:
                additions += _additions(key, existing, desired)
                self._keep(key, desired.destinations)
            if existing is not None:
                removals += self._removals(key, existing, desired, now_s)
        return additions + removals

    def _keep(self, key: VirtualServerKey, destinations: Iterable[DestinationKey]) -> None:
        self._until_s.pop(key, None)
        draining = self._draining.get(key)
        if draining is not None:
            draining.difference_update(destinations)
            if not draining:
                del self._draining[key]

    def _removals(
        self, key: VirtualServerKey, existing: VirtualServer, desired: VirtualServer | None, now_s: float
    ) -> Iterator[Operation]:
        """A server is deleted with its destinations, unless these drain."""
        is_drained = key.protocol in self._protocols
        if desired is None:
            if not is_drained or not existing.destinations:
                yield Operation(Verb.DELETE_SERVER, key)
                return
            self._until_s.setdefault(key, now_s + DRAIN_S)
        old = [name for name in existing.destinations if desired is None or name not in desired.destinations]
        if not is_drained:
            yield from (Operation(Verb.DELETE_DESTINATION, key, name) for name in old)
        elif old:
            self._draining.setdefault(key, set()).update(old)
            yield from (
                Operation(Verb.SET_DESTINATION, key, name, 0) for name in old if existing.destinations[name].weight
            )

    def due(self, existing: Mapping[VirtualServerKey, Destinations], now_s: float) -> Iterator[Operation]:
        """The deletions that are due, for servers whose destinations were read from the kernel."""
        for key, destinations in existing.items():
            draining = self._draining.get(key)
            if draining is None:
                continue
            until_s = self._until_s.get(key)
            if until_s is not None and (
                now_s >= until_s or not any(destination.is_used for destination in destinations.values())
            ):
                self._draining.pop(key)
                self._until_s.pop(key)
                yield Operation(Verb.DELETE_SERVER, key)
                continue
            for name in sorted(draining):
                destination = destinations.get(name)
                if destination is None or not destination.is_used:
                    draining.discard(name)
                    if destination is not None:
                        yield Operation(Verb.DELETE_DESTINATION, key, name)
            if not draining and until_s is None:
                del self._draining[key]


def _additions(key: VirtualServerKey, existing: VirtualServer | None, desired: VirtualServer) -> Iterator[Operation]:
    if existing is None:
        yield Operation(Verb.NEW_SERVER, key, options=desired.options)
    elif existing.options != desired.options:
        yield Operation(Verb.SET_SERVER, key, options=desired.options)
    for name, destination in desired.destinations.items():
        present = existing.destinations.get(name) if existing else None
        if present is None:
            yield Operation(Verb.NEW_DESTINATION, key, name, destination.weight)
        elif present.weight != destination.weight or not present.masquerades:
            yield Operation(Verb.SET_DESTINATION, key, name, destination.weight)
