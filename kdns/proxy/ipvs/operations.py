"""The operations that lead from the virtual servers of the kernel to the desired ones.

A TCP connection does not end with its endpoint: the destination gets weight 0, which takes no new connections, and is
deleted after its last connection has ended (draining.py). Connections of UDP and SCTP end at once, as in kube-proxy:
their clients try again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from kdns.netlink.ipvs import DestinationKey, Operation, Verb, VirtualServer, VirtualServerKey

DRAINED: Final = frozenset({"TCP"})
"""The protocols whose destinations drain."""


@dataclass(slots=True)
class Decision:
    """The operations, in order; the destinations that drain, and the servers that are deleted after theirs."""

    operations: list[Operation] = field(default_factory=list)
    draining: dict[VirtualServerKey, list[DestinationKey]] = field(default_factory=dict)
    obsolete: list[VirtualServerKey] = field(default_factory=list)


def decide(
    servers: Iterable[tuple[VirtualServerKey, VirtualServer | None, VirtualServer | None]],
) -> Decision:
    """Returns the operations for these virtual servers, each as the kernel has it and as desired.

    New servers and destinations come first, so no scheduler is without destinations in between.
    """
    decision = Decision()
    removals: list[Operation] = []
    for key, existing, desired in servers:
        if desired is not None:
            decision.operations += _additions(key, existing, desired)
        if existing is not None:
            removals += _removals(key, existing, desired, decision)
    decision.operations += removals
    return decision


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


def _removals(
    key: VirtualServerKey, existing: VirtualServer, desired: VirtualServer | None, decision: Decision
) -> Iterator[Operation]:
    """Yields what removes destinations; a server is deleted with its destinations, unless these drain."""
    is_drained = key.protocol in DRAINED
    if desired is None:
        if not is_drained or not existing.destinations:
            yield Operation(Verb.DELETE_SERVER, key)
            return
        decision.obsolete.append(key)
    old = [each for each in existing.destinations if desired is None or each not in desired.destinations]
    if not old:
        return
    if not is_drained:
        yield from (Operation(Verb.DELETE_DESTINATION, key, each) for each in old)
        return
    decision.draining[key] = old
    yield from (Operation(Verb.SET_DESTINATION, key, each, 0) for each in old if existing.destinations[each].weight)
