"""Session affinity: one map of clients for all Service ports, and rules that any number of Service ports share.

The map's key is a client with the number of a Service port, its data an endpoint ID. Rules have one field of the
packet for what they look up, so an ID has both numbers: the Service port's in the upper 16 bits, the endpoint's in the
lower ones.
Clients whose endpoint is gone are not searched for: the next packet of such a client deletes its element.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import lru_cache
from typing import Final, Generic, TypeVar
from zlib import crc32

from kdns.net import Family
from kdns.proxy.nftables.objects import NFT_FAMILY, Chain, expression
from kdns.proxy.nftables.sets import CLIENT_OF_PORT, CLIENTS, EndpointMaps
from kdns.proxy.plan.endpoints import ServiceEndpoint
from kdns.proxy.plan.plan import PortName, PortPlan

MAX_NUMBER: Final = 0xFFFF
"""So many Service ports of a family, and endpoints of a Service port, have numbers of their own."""
_ORDINARY: Final = 0xFFF
"""Endpoint numbers up to here make IDs whose last four bits are 0."""
_PROBES: Final = 64
"""More in a row would take time with the square of the values where there are more of them than hashes."""

Numbered = TypeVar("Numbered", bound=Hashable)


class Numbers(Generic[Numbered]):
    """Numbers from 1 to MAX_NUMBER: a value's is that of its hash, or the next one that is free.

    So a value mostly has the same number after a restart. Where all numbers are taken, values share 0.
    """

    def __init__(self, hashes: int) -> None:
        self._hashes = hashes
        self._numbers: dict[Numbered, int] = {}
        self._taken: set[int] = set()
        self._cursor = hashes
        """Where a free number is searched for, beyond hashes first, when those after the hash are taken."""

    def of(self, value: Numbered) -> int:
        """Returns the value's number, which it has until it is released."""
        number = self._numbers.get(value)
        if number is not None:
            return number
        if len(self._taken) == MAX_NUMBER:
            return 0
        number = crc32(repr(value).encode()) % self._hashes + 1
        for _ in range(_PROBES):
            if number not in self._taken:
                break
            number = number % MAX_NUMBER + 1
        while number in self._taken:
            number = self._cursor = self._cursor % MAX_NUMBER + 1
        self._taken.add(number)
        self._numbers[value] = number
        return number

    def release_all_but(self, values: Iterable[Numbered]) -> None:
        """Releases the numbers of all other values."""
        for value in self._numbers.keys() - set(values):
            self.release(value)

    def release(self, value: Numbered) -> None:
        """Releases the value's number, if it has one."""
        self._taken.discard(self._numbers.pop(value, 0))


class EndpointIds:
    """The IDs of the endpoints of Service ports with affinity, until they are released."""

    def __init__(self) -> None:
        self._ports = Numbers[PortName](MAX_NUMBER)
        self._endpoints: dict[PortName, Numbers[tuple[str, int]]] = {}

    def of(self, port: PortName, endpoint: ServiceEndpoint) -> int:
        """Returns the ID; it is not that of another endpoint.

        The last four bits are 0 unless there are thousands of endpoints, as in the priority of ordinary packets, since
        they select the device's queue.
        """
        endpoints = self._endpoints.get(port)
        if endpoints is None:
            endpoints = self._endpoints[port] = Numbers(_ORDINARY)
        number = endpoints.of((endpoint.address, endpoint.port))
        return self._ports.of(port) << 16 | (number & _ORDINARY) << 4 | number >> 12

    def release(self, name: PortName, port: PortPlan | None) -> None:
        """Releases what this Service port, as it is now, does not have any more."""
        if port and port.affinity_s and name in self._endpoints:
            lists = port.endpoints
            self._endpoints[name].release_all_but((each.address, each.port) for each in (*lists.cluster, *lists.local))
        elif self._endpoints.pop(name, None):
            self._ports.release(name)


@lru_cache(maxsize=4096)
def affinity_chain(maps: EndpointMaps, count: int, affinity_s: int, family: Family) -> Chain:
    """Returns the chain for fronts with so many endpoints and this affinity.

    A client goes to its last endpoint; one that is new, or whose endpoint is gone, goes to any.
    The result of one look-up reaches the next as a field of the packet. Its priority is free to use, since these rules
    see only the first packet of a connection. The first endpoint's ID tells the number of the Service port.
    A client whose endpoint is gone has to be deleted before it gets another, since an update does not overwrite.
    An endpoint may go between draw and look-up: then the list's first is taken.
    Where the map of clients is full, the update ends its rule, and the next one sends the client to what was drawn.
    """
    key, client, ip = expression(maps.key, family), expression(CLIENT_OF_PORT, family), NFT_FAMILY[family]
    remember = f"update @{CLIENTS.name} {{ {client} timeout {affinity_s}s : meta priority }}"
    send = f"dnat {ip} addr . port to {key} . meta priority map @{maps.by_id.name}"
    draw_any, draw_first = (
        f"meta priority set {key} . numgen random mod {number} map @{maps.ids.name}" for number in (count, 1)
    )
    rules = (
        draw_first,
        f"meta priority set {client} map @{CLIENTS.name} {remember} {send}",
        f"delete @{CLIENTS.name} {{ {client} : meta priority }}",
        f"{draw_any} {remember}",
        send,
        draw_first,
        send,
    )
    return Chain(f"{maps.ids.name}-{count}-{affinity_s}s", rules)
