"""Cluster IPs and node ports: who has which number, and no number twice.

A number is taken inside a `Transaction`: taken at once, so that no other writer gets it, given back by `revert`.
What an update lets go is released only by `commit`, so that a failed write loses nothing.
The lower part of every range (the static band) is for people who ask for a number; numbers chosen here come from the
upper part first (KEP-3070). Ranges are never written out: memory is what is taken, whatever the prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import chain

from kdns.controlplane.clusterconfig import Network
from kdns.errors import KdnsError

Choose = Callable[[int], int]
"""choose(n) → a number from 0 to n - 1."""


class AllocationError(KdnsError):
    """This number cannot be had: taken, or outside the range."""


class RangeFullError(KdnsError):
    """No number is left."""


@dataclass(slots=True)
class Transaction:
    """What one write takes and lets go. Nothing happens at `commit` or `revert` the second time."""

    undo: list[Callable[[], None]] = field(default_factory=list)
    later: list[Callable[[], None]] = field(default_factory=list)

    def commit(self) -> None:
        """The write is stored: keep what was taken, release what was let go."""
        self._run(self.later)

    def revert(self) -> None:
        """The write failed: give back what was taken, keep the rest."""
        self._run(self.undo)

    def _run(self, steps: list[Callable[[], None]]) -> None:
        todo = steps[::-1]
        self.undo, self.later = [], []
        for step in todo:
            step()


def band(size: int, step: int, most: int) -> int:
    """How many numbers at the start of a range are kept for those who ask: size/step, 16 to `most`, none if tiny."""
    return 0 if size <= 16 else max(16, min(size // step, most))


class Pool:
    """The offsets 0 … size - 1, each free or taken."""

    def __init__(self, size: int, static: int, choose: Choose) -> None:
        self.size, self.static, self._choose = size, min(static, size), choose
        self.taken: set[int] = set()

    def take_any(self) -> int | None:
        """A free offset, from a random start onwards, the upper band before the lower; None when all are taken."""
        if len(self.taken) >= self.size:
            return None
        offset = next(offset for offset in self._candidates() if offset not in self.taken)
        self.taken.add(offset)
        return offset

    def _candidates(self) -> Iterator[int]:
        for low, high in ((self.static, self.size), (0, self.static)):
            if low < high:
                start = low + self._choose(high - low)
                yield from chain(range(start, high), range(low, start))


class Addresses:
    """The cluster IPs of one service range.

    The network address and, in IPv4, the broadcast address are never given.
    """

    def __init__(self, network: Network, choose: Choose) -> None:
        self.network = network
        self._first = int(network.network_address) + 1
        reserved = 2 if network.version == 4 else 1
        self.pool = Pool(max(network.num_addresses - reserved, 0), band(network.num_addresses, 16, 256), choose)

    def allocate(self, address: str, txn: Transaction, *, dry_run: bool = False) -> None:
        """Take this address. A dry run looks at the range only, as in kube-apiserver."""
        offset = self._offset(address)
        if dry_run:
            return
        if offset in self.pool.taken:
            raise AllocationError("provided IP is already allocated")
        self.pool.taken.add(offset)
        txn.undo.append(lambda: self.pool.taken.discard(offset))

    def allocate_next(self, txn: Transaction, *, dry_run: bool = False) -> str:
        """Take any free address. A dry run gets the network address: an answer that is nobody's."""
        if dry_run:
            return str(self.network.network_address)
        offset = self.pool.take_any()
        if offset is None:
            raise RangeFullError("range is full")
        txn.undo.append(lambda: self.pool.taken.discard(offset))
        return str(ip_address(self.network.network_address.packed) + 1 + offset)

    def release(self, address: str, txn: Transaction) -> None:
        """Give the address back once the transaction is committed; an address of another range is no one's loss."""
        if self.holds(address):
            offset = self._offset(address)
            txn.later.append(lambda: self.pool.taken.discard(offset))

    def remember(self, address: str) -> bool:
        """Take an address that a stored Service has; False when it is outside the range or another's already."""
        if not self.holds(address) or self._offset(address) in self.pool.taken:
            return False
        self.pool.taken.add(self._offset(address))
        return True

    def holds(self, address: str) -> bool:
        """Whether the address could come from this range."""
        parsed = ip_address(address)
        return parsed.version == self.network.version and 0 <= int(parsed) - self._first < self.pool.size

    def _offset(self, address: str) -> int:
        if not self.holds(address):
            reason = f"The range of valid IPs is {self.network}"
            raise AllocationError(f"the provided IP ({ip_address(address)}) is not in the valid range. {reason}")
        return int(ip_address(address)) - self._first


class Ports:
    """The node ports: one pool for all protocols, health check ports included."""

    def __init__(self, ports: range, choose: Choose) -> None:
        self.range = ports
        self.pool = Pool(len(ports), band(len(ports), 32, 128), choose)

    def allocate(self, port: int, txn: Transaction) -> None:
        """Take this port."""
        if port not in self.range:
            valid = f"{self.range.start}-{self.range.stop - 1}"
            raise AllocationError(f"provided port is not in the valid range. The range of valid ports is {valid}")
        offset = port - self.range.start
        if offset in self.pool.taken:
            raise AllocationError("provided port is already allocated")
        self.pool.taken.add(offset)
        txn.undo.append(lambda: self.pool.taken.discard(offset))

    def allocate_next(self, txn: Transaction) -> int:
        """Take any free port."""
        offset = self.pool.take_any()
        if offset is None:
            raise RangeFullError("range is full")
        txn.undo.append(lambda: self.pool.taken.discard(offset))
        return self.range.start + offset

    def release(self, port: int, txn: Transaction) -> None:
        """Give the port back once the transaction is committed."""
        txn.later.append(lambda: self.pool.taken.discard(port - self.range.start))

    def remember(self, port: int) -> bool:
        """Take a port that a stored Service has; False when it is outside the range or another's already."""
        if port not in self.range or port - self.range.start in self.pool.taken:
            return False
        self.pool.taken.add(port - self.range.start)
        return True
