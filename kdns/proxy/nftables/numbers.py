"""Numbers that stand for chains and endpoints in a table: rules have one field of the packet to hand one on.

The field is the packet's priority, which is free to use: these rules see only the first packet of a connection.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar
from zlib import crc32

from kdns.proxy.plan.endpoints import ServiceEndpoint
from kdns.proxy.plan.plan import PortName, PortPlan

MAX_NUMBER: Final = 0xFFFF
"""So many Service ports of a family, and endpoints of a Service port, have numbers of their own."""
_ORDINARY: Final = 0xFFF
"""Endpoint numbers up to here make IDs whose last four bits are 0."""
_PROBES: Final = 64
"""More in a row would take time with the square of the values where there are more of them than hashes."""
_MAX_PRIORITY: Final = 0xFFFFFFFF

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
        """The value has its number until it is released."""
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
        for value in self._numbers.keys() - set(values):
            self.release(value)

    def release(self, value: Numbered) -> None:
        self._taken.discard(self._numbers.pop(value, 0))


class EndpointIds:
    """The IDs of the endpoints of Service ports with affinity, until they are released."""

    def __init__(self) -> None:
        self._ports = Numbers[PortName](MAX_NUMBER)
        self._endpoints: dict[PortName, Numbers[tuple[str, int]]] = {}

    def of(self, port: PortName, endpoint: ServiceEndpoint) -> int:
        """No two endpoints have the same ID.

        The last four bits are 0 unless there are thousands of endpoints, as in the priority of ordinary packets, since
        they select the device's queue.
        """
        endpoints = self._endpoints.get(port)
        if endpoints is None:
            endpoints = self._endpoints[port] = Numbers(_ORDINARY)
        number = endpoints.of((endpoint.address, endpoint.port))
        return self._ports.of(port) << 16 | (number & _ORDINARY) << 4 | number >> 12

    def release(self, name: PortName, port: PortPlan | None) -> None:
        if port and port.affinity_s and name in self._endpoints:
            lists = port.endpoints
            self._endpoints[name].release_all_but(
                (endpoint.address, endpoint.port) for endpoint in (*lists.cluster, *lists.local)
            )
        elif self._endpoints.pop(name, None):
            self._ports.release(name)


class ChainNumbers:
    """Numbers from 1 to 2**32 - 1: a chain's is that of its name's hash, or the next one that is free.

    So tables with the same chains have the same numbers. A chain keeps its number.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def of(self, name: str) -> int:
        number = crc32(name.encode()) or 1
        while self._names.setdefault(number, name) != name:
            number = number % _MAX_PRIORITY + 1
        return number


@dataclass(frozen=True, slots=True)
class TableNumbers:
    """The numbers of one table."""

    chains: ChainNumbers = field(default_factory=ChainNumbers)
    endpoints: EndpointIds = field(default_factory=EndpointIds)
