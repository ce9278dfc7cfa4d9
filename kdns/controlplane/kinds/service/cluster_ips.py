"""Allocation of the cluster IPs of one family from the ranges of all ServiceCIDRs."""

from __future__ import annotations

from collections.abc import Mapping

from kdns.cluster.objects import Key
from kdns.controlplane.kinds.service.allocator import (
    AllocationError,
    AllocatorMetrics,
    Choose,
    Range,
    RangeFullError,
    Transaction,
    band,
)
from kdns.net import Network, parse_address

SHORTEST_IPV6_PREFIX = 64


def address_range(network: Network) -> Range:
    """Returns the usable addresses of a network: all but the network address and, in IPv4, the broadcast address."""
    first = int(network.network_address) + 1
    end = int(network.broadcast_address) + (0 if network.version == 4 else 1)
    return Range(first, end, band(network.num_addresses, 16, 256))


def number_of(address: str) -> int:
    """Returns the address as a number; old objects may contain leading zeros."""
    parsed = parse_address(address)
    if parsed is None:
        raise AllocationError(f"{address!r} is not an IP address")
    return int(parsed)


class Addresses:
    """The cluster IPs of one family; its ranges may overlap.

    An address is taken if a Service has it, or if an IPAddress object of its name exists.
    """

    def __init__(self, choose: Choose, metrics: AllocatorMetrics) -> None:
        self._choose, self._metrics = choose, metrics
        self.ranges: dict[Network, Range] = {}
        self.owners: dict[int, Key] = {}
        self.objects: set[int] = set()

    def set_ranges(self, wanted: Mapping[Network, bool]) -> None:
        """Sets the ranges, and whether each is ready. An IPv6 prefix shorter than /64 is not used."""
        self.ranges = {network: found for network, found in self.ranges.items() if network in wanted}
        for network, ready in wanted.items():
            if network.version == 6 and network.prefixlen < SHORTEST_IPV6_PREFIX:
                continue
            if network not in self.ranges:
                added = self.ranges[network] = address_range(network)
                for number in self.owners.keys() | self.objects:
                    added.count(number, 1)
            self.ranges[network].ready = ready

    def allocate(self, address: str, owner: Key, txn: Transaction, *, dry_run: bool = False) -> None:
        """Allocates this address. A dry run checks the ranges alone, as in kube-apiserver."""
        number = number_of(address)
        network = next((network for network, each in self._ready() if number in each), None)
        if network is None:
            # Differs: from 1.33 on kube-apiserver says only that "the provided network does not match the current
            # range"; its older sentence names the valid addresses
            valid = ", ".join(str(network) for network, _ in self._ready())
            reason = f"The range of valid IPs is {valid}"
            raise AllocationError(f"the provided IP ({parse_address(address)}) is not in the valid range. {reason}")
        if dry_run:
            return
        if self._is_taken(number):
            self._metrics.address_errors[str(network), "static"] += 1
            raise AllocationError("provided IP is already allocated")
        started_s = self._metrics.clock()
        self._take(number, owner, txn)
        self._metrics.addresses[str(network), "static"] += 1
        self._metrics.took(str(network), self._metrics.clock() - started_s)

    def allocate_next(self, owner: Key, txn: Transaction, *, dry_run: bool = False) -> str:
        """Allocates a free address of any range. A dry run returns a network address, which no Service can have."""
        ready = self._ready()
        if dry_run and ready:
            return str(ready[0][0].network_address)
        first = self._choose(len(ready)) if len(ready) > 1 else 0
        for network, found in (*ready[first:], *ready[:first]):
            started_s = self._metrics.clock()
            number = found.pick(self._choose, self._is_taken)
            if number is None:
                self._metrics.address_errors[str(network), "dynamic"] += 1
                continue
            self._take(number, owner, txn)
            self._metrics.addresses[str(network), "dynamic"] += 1
            self._metrics.took(str(network), self._metrics.clock() - started_s)
            return str(network[number - int(network.network_address)])
        raise RangeFullError("range is full")

    def release(self, address: str, owner: Key, txn: Transaction) -> None:
        """Frees the owner's address once the transaction is committed."""
        number = number_of(address)
        txn.later.append(lambda: self._let_go(number, owner))

    def remember(self, address: str, owner: Key) -> bool:
        """Allocates an address that a stored Service has; False if it is another's."""
        number = number_of(address)
        if number not in self.owners:
            self.owners[number] = owner
            if number not in self.objects:
                self._count(number, 1)
        return self.owners[number] == owner

    def reserve(self, address: str) -> None:
        """Marks the address as taken: an IPAddress object of this name exists."""
        number = number_of(address)
        if not self._is_taken(number):
            self._count(number, 1)
        self.objects.add(number)

    def unreserve(self, address: str) -> None:
        """Frees the address of a deleted IPAddress object, unless a Service has it."""
        number = number_of(address)
        if number in self.objects:
            self.objects.remove(number)
            if number not in self.owners:
                self._count(number, -1)

    def _ready(self) -> list[tuple[Network, Range]]:
        return [(network, each) for network, each in self.ranges.items() if each.ready]

    def _is_taken(self, number: int) -> bool:
        return number in self.owners or number in self.objects

    def _take(self, number: int, owner: Key, txn: Transaction) -> None:
        self.owners[number] = owner
        self._count(number, 1)
        txn.undo.append(lambda: self._let_go(number, owner))

    def _let_go(self, number: int, owner: Key) -> None:
        if self.owners.get(number) == owner:
            del self.owners[number]
            if number not in self.objects:
                self._count(number, -1)

    def _count(self, number: int, change: int) -> None:
        for each in self.ranges.values():
            each.count(number, change)
