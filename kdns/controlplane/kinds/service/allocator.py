"""Allocators: the cluster IPs of each family, from the ranges of all ServiceCIDRs, and node ports.

A number belongs to a stored Service: `hold` and `free` follow each commit, and only the owner can free it. A write only
looks for free numbers, so a refused write has nothing to give back.

The lower part of a range (the static band) is for explicit requests; numbers chosen here come from the upper part first
(KEP-3070). Memory is proportional to the allocated numbers, not to the range.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import TypeAlias

from kdns.cluster.objects import Key
from kdns.errors import KdnsError
from kdns.net import Network, parse_address

Choose = Callable[[int], int]
"""choose(n) is a number from 0 to n - 1."""

SHORTEST_IPV6_PREFIX = 64


class AllocationError(KdnsError):
    """The requested number is taken or outside the range."""


class RangeFullError(KdnsError):
    """No number of the range is free."""


Labels: TypeAlias = tuple[str, ...]


@dataclass(slots=True)
class AllocatorMetrics:
    """Addresses are counted by (range, scope), ports by scope (static if requested, else dynamic)."""

    addresses: Counter[Labels] = field(default_factory=Counter)
    address_errors: Counter[Labels] = field(default_factory=Counter)
    ports: Counter[Labels] = field(default_factory=Counter)
    port_errors: Counter[Labels] = field(default_factory=Counter)


def band(size: int, step: int, most: int) -> int:
    """Size of the static band: size/step, from 16 to `most`; 0 for a range of up to 16 numbers."""
    return 0 if size <= 16 else max(16, min(size // step, most))


@dataclass(slots=True)
class _Band:
    low: int
    high: int
    used: int = 0


class Range:
    """The numbers low … high - 1, in two bands; the upper one is searched first."""

    def __init__(self, low: int, high: int, static: int) -> None:
        self.low, self.high = low, max(low, high)
        middle = min(low + static, self.high)
        self._bands = (_Band(middle, self.high), _Band(low, middle))
        self.ready = True

    @property
    def size(self) -> int:
        return self.high - self.low

    @property
    def used(self) -> int:
        return sum(band.used for band in self._bands)

    def count(self, number: int, change: int) -> None:
        """Counts an allocated (1) or freed (-1) number, if it is in the range."""
        for band in self._bands:
            if band.low <= number < band.high:
                band.used += change

    def pick(self, choose: Choose, taken: Collection[int], reserved: Collection[int] = ()) -> int | None:
        """Searches from a random start in the upper band, then in the lower; None if no number is free."""
        for band in self._bands:
            size = band.high - band.low
            if band.used < size:
                start = band.low + choose(size)
                for number in chain(range(start, band.high), range(band.low, start)):
                    if number not in taken and number not in reserved:
                        return number
        return None


class Pool:
    """Offsets 0 … size - 1, each free or taken."""

    def __init__(self, size: int, choose: Choose) -> None:
        self._range, self._choose = Range(0, size, 0), choose
        self._taken: set[int] = set()
        self.size = size

    def take_any(self) -> int | None:
        """A free offset, from a random start onwards; None if all are taken."""
        offset = self._range.pick(self._choose, self._taken)
        if offset is not None:
            self.take(offset)
        return offset

    def take(self, offset: int) -> None:
        if offset not in self._taken:
            self._taken.add(offset)
            self._range.count(offset, 1)

    def free(self, offset: int) -> None:
        if offset in self._taken:
            self._taken.remove(offset)
            self._range.count(offset, -1)


class Ports:
    """The node ports: one pool for all protocols, health check ports included."""

    def __init__(self, ports: range, choose: Choose, metrics: AllocatorMetrics) -> None:
        self.range, self._choose, self._metrics = ports, choose, metrics
        self.pool = Range(ports.start, ports.stop, band(len(ports), 32, 128))
        self.owners: dict[int, Key] = {}

    def find(self, port: int, taken_here: Collection[int]) -> int:
        """This port if it is free, or any free one for 0. `taken_here` are ports of the same write.

        Raises AllocationError and RangeFullError. Differs: a dry run checks the range too; kube-apiserver's would
        find ports that a write is refused.
        """
        scope = ("static" if port else "dynamic",)
        try:
            free = self._free(port, taken_here)
        except KdnsError:
            self._metrics.port_errors[scope] += 1
            raise
        self._metrics.ports[scope] += 1
        return free

    def _free(self, port: int, taken_here: Collection[int]) -> int:
        if not port:
            picked = self.pool.pick(self._choose, self.owners, taken_here)
            if picked is None:
                raise RangeFullError("range is full")
            return picked
        if port not in self.range:
            valid = f"{self.range.start}-{self.range.stop - 1}"
            raise AllocationError(f"provided port is not in the valid range. The range of valid ports is {valid}")
        if port in self.owners or port in taken_here:
            raise AllocationError("provided port is already allocated")
        return port

    def hold(self, port: int, owner: Key) -> bool:
        """Records that a stored Service has a port; False if it is outside the range or another Service owns it."""
        if port in self.range and port not in self.owners:
            self.owners[port] = owner
            self.pool.count(port, 1)
        return self.owners.get(port) == owner

    def free(self, port: int, owner: Key) -> None:
        if self.owners.get(port) == owner:
            del self.owners[port]
            self.pool.count(port, -1)


_text = lru_cache(64)(str)


def address_range(network: Network) -> Range:
    """All addresses but the network address and, in IPv4, the broadcast address."""
    first = int(network.network_address) + 1
    end = int(network.broadcast_address) + (0 if network.version == 4 else 1)
    return Range(first, end, band(network.num_addresses, 16, 256))


class Addresses:
    """The cluster IPs of one family; its ranges may overlap.

    An address is taken if a Service has it, or if an IPAddress object of its name exists.
    """

    def __init__(self, choose: Choose, metrics: AllocatorMetrics) -> None:
        self._choose, self._metrics = choose, metrics
        self.ranges: dict[Network, Range] = {}
        self.owners: dict[int, Key] = {}
        self.objects: set[int] = set()

    def set_ranges(self, is_ready: Mapping[Network, bool]) -> None:
        """Sets the ranges, and whether each is ready. An IPv6 prefix shorter than /64 is not used."""
        self.ranges = {network: numbers for network, numbers in self.ranges.items() if network in is_ready}
        for network, ready in is_ready.items():
            if network.version == 6 and network.prefixlen < SHORTEST_IPV6_PREFIX:
                continue
            if network not in self.ranges:
                added = self.ranges[network] = address_range(network)
                for number in self.owners.keys() | self.objects:
                    added.count(number, 1)
            self.ranges[network].ready = ready

    def check(self, address: str, *, dry_run: bool) -> None:
        """Raises AllocationError for an address that is not available.

        A dry run checks only the ranges, as in kube-apiserver.
        """
        parsed, ready = parse_address(address), self._ready()
        if parsed is None:
            raise AllocationError(f"{address!r} is not an IP address")
        number = int(parsed)
        network = next((network for network, numbers in ready if numbers.low <= number < numbers.high), None)
        if network is None:
            # Differs: from 1.33 on kube-apiserver says only that "the provided network does not match the current
            # range"; its older sentence names the valid addresses
            valid = ", ".join(str(network) for network, _ in ready)
            reason = f"The range of valid IPs is {valid}"
            raise AllocationError(f"the provided IP ({parsed}) is not in the valid range. {reason}")
        if dry_run:
            return
        if number in self.owners or number in self.objects:
            self._metrics.address_errors[_text(network), "static"] += 1
            raise AllocationError("provided IP is already allocated")
        self._metrics.addresses[_text(network), "static"] += 1

    def find(self, *, dry_run: bool) -> str:
        """A free address of any range. A dry run returns a network address, which no Service can have."""
        ready = self._ready()
        if dry_run and ready:
            return str(ready[0][0].network_address)
        first = self._choose(len(ready)) if len(ready) > 1 else 0
        for network, numbers in (*ready[first:], *ready[:first]):
            number = numbers.pick(self._choose, self.owners, self.objects)
            if number is not None:
                self._metrics.addresses[_text(network), "dynamic"] += 1
                return str(type(network.network_address)(number))
            self._metrics.address_errors[_text(network), "dynamic"] += 1
        raise RangeFullError("range is full")

    def hold(self, number: int, owner: Key) -> bool:
        """Records that a stored Service has an address; False if another Service owns it."""
        if number not in self.owners:
            self.owners[number] = owner
            if number not in self.objects:
                self._count(number, 1)
        return self.owners[number] == owner

    def free(self, number: int, owner: Key) -> None:
        if self.owners.get(number) == owner:
            del self.owners[number]
            if number not in self.objects:
                self._count(number, -1)

    def reserve(self, number: int) -> None:
        """Marks the address as taken, since an IPAddress object of this name exists."""
        if number not in self.owners and number not in self.objects:
            self._count(number, 1)
        self.objects.add(number)

    def unreserve(self, number: int) -> None:
        """Frees the address of a deleted IPAddress object, unless a Service has it."""
        if number in self.objects:
            self.objects.remove(number)
            if number not in self.owners:
                self._count(number, -1)

    def _ready(self) -> list[tuple[Network, Range]]:
        return [(network, numbers) for network, numbers in self.ranges.items() if numbers.ready]

    def _count(self, number: int, change: int) -> None:
        for numbers in self.ranges.values():
            numbers.count(number, change)
