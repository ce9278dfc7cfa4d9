"""What leads a virtual server from what there is to what is wanted. Decisions only: nothing is read or written here.

A connection of TCP that is open does not end because its endpoint does: the destination gets weight 0, which takes no
new connections, and is deleted when its last connection is gone (draining.py). Connections of UDP and SCTP end at
once, as in kube-proxy: their clients try again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kdns.netlink.io.ipvs import Destination, DestinationKey, Operation, ServerKey, ServerOptions, Verb
from kdns.proxy.ipvs.virtual_servers import VirtualServer

DRAINED: Final = frozenset({"TCP"})
"""The protocols whose destinations leave gracefully."""


class Present(NamedTuple):
    """A virtual server as the kernel has it."""

    options: ServerOptions
    destinations: Mapping[DestinationKey, Destination]


@dataclass(slots=True)
class Decision:
    """The operations, in order, and what leaves gracefully: destinations, and the servers that go with theirs."""

    operations: list[Operation] = field(default_factory=list)
    leaving: dict[ServerKey, list[DestinationKey]] = field(default_factory=dict)
    gone: list[ServerKey] = field(default_factory=list)


def options_of(server: VirtualServer) -> ServerOptions:
    """What a virtual server has beside its destinations."""
    return ServerOptions(server.scheduler, server.flags, server.persistence_s)


def present_of(server: VirtualServer | None) -> Present | None:
    """A virtual server as the kernel has it after it was wanted so."""
    if server is None:
        return None
    return Present(
        options_of(server),
        {(each.address, each.port): Destination(each.weight, 0, 0, masquerades=True) for each in server.destinations},
    )


def decide(
    servers: Iterable[tuple[ServerKey, Present | None, VirtualServer | None]],
) -> Decision:
    """What is to be done for these virtual servers, each with what there is and what is wanted.

    New servers and destinations come first, so that no scheduler is without destinations in between.
    """
    decision = Decision()
    last: list[Operation] = []
    for key, present, wanted in servers:
        if wanted is None:
            if present is not None:
                last += _removal(key, present, decision)
            continue
        decision.operations += _additions(key, present, wanted)
        if present:
            last += _removals(key, present, wanted, decision)
    decision.operations += last
    return decision


def _additions(key: ServerKey, present: Present | None, wanted: VirtualServer) -> Iterator[Operation]:
    options = options_of(wanted)
    if present is None:
        yield Operation(Verb.NEW_SERVER, key, options=options)
    elif present.options != options:
        yield Operation(Verb.SET_SERVER, key, options=options)
    for each in wanted.destinations:
        there = present.destinations.get(each[:2]) if present else None
        if there is None:
            yield Operation(Verb.NEW_DESTINATION, key, each[:2], each.weight)
        elif there.weight != each.weight or not there.masquerades:
            yield Operation(Verb.SET_DESTINATION, key, each[:2], each.weight)


def _removals(key: ServerKey, present: Present, wanted: VirtualServer, decision: Decision) -> Iterator[Operation]:
    kept = {each[:2] for each in wanted.destinations}
    old = [each for each in present.destinations if each not in kept]
    if old:
        yield from _left(key, present, old, decision)


def _removal(key: ServerKey, present: Present, decision: Decision) -> Iterator[Operation]:
    """A server goes with its destinations, unless connections may be left."""
    if key[2] in DRAINED and present.destinations:
        decision.gone.append(key)
        yield from _left(key, present, list(present.destinations), decision)
    else:
        yield Operation(Verb.DELETE_SERVER, key)


def _left(key: ServerKey, present: Present, old: list[DestinationKey], decision: Decision) -> Iterator[Operation]:
    if key[2] not in DRAINED:
        yield from (Operation(Verb.DELETE_DESTINATION, key, each) for each in old)
        return
    decision.leaving[key] = old
    for each in old:
        if present.destinations[each].weight:
            yield Operation(Verb.SET_DESTINATION, key, each, 0)
