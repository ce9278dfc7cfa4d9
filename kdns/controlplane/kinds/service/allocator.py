"""Allocation of numbers from ranges, each to one owner; the node ports.

A number is allocated in a `Transaction`: at once, so that no other writer gets it; `revert` frees it. What an update no
longer uses is freed by `commit`, so that a failed write loses nothing. Only its owner can free a number.
The lower part of a range (the static band) is for explicit requests; numbers chosen here come from the upper part first
(KEP-3070). Memory is proportional to the allocated numbers, not to the range.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

from kdns.cluster.objects import Key
from kdns.errors import KdnsError

Choose = Callable[[int], int]
"""choose(n) → a number from 0 to n - 1."""


class AllocationError(KdnsError):
    """The requested number is taken or outside the range."""


class RangeFullError(KdnsError):
    """No number is free."""


Labels: TypeAlias = tuple[str, ...]


def _no_clock() -> float:
    return 0.0


def _not_observed(_cidr: str, _took_s: float) -> None:
    pass


@dataclass(slots=True)
class AllocatorMetrics:
    """Addresses are counted by (range, scope), ports by scope (static if requested, else dynamic).

    `took` gets the duration of each allocation from a range, in seconds of `clock`.
    """

    clock: Callable[[], float] = _no_clock
    took: Callable[[str, float], None] = _not_observed
    addresses: Counter[Labels] = field(default_factory=Counter)
    address_errors: Counter[Labels] = field(default_factory=Counter)
    ports: Counter[Labels] = field(default_factory=Counter)
    port_errors: Counter[Labels] = field(default_factory=Counter)


@dataclass(slots=True)
class Transaction:
    """The allocations and releases of one write. A second `commit` or `revert` has no effect."""

    undo: list[Callable[[], None]] = field(default_factory=list)
    later: list[Callable[[], None]] = field(default_factory=list)

    def commit(self) -> None:
        """Keeps the allocations and frees the releases: the write is stored."""
        self._run(self.later)

    def revert(self) -> None:
        """Frees the allocations and drops the releases: the write failed."""
        self._run(self.undo)

    def _run(self, steps: list[Callable[[], None]]) -> None:
        todo = steps[::-1]
        self.undo, self.later = [], []
        for step in todo:
            step()


def band(size: int, step: int, most: int) -> int:
    """Returns the size of the static band: size/step, from 16 to `most`; 0 for a range of up to 16 numbers."""
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
        return sum(each.used for each in self._bands)

    def __contains__(self, number: int) -> bool:
        return self.low <= number < self.high

    def count(self, number: int, change: int) -> None:
        """Counts an allocated (1) or freed (-1) number, if it is in the range."""
        for each in self._bands:
            if each.low <= number < each.high:
                each.used += change

    def pick(self, choose: Choose, is_taken: Callable[[int], bool]) -> int | None:
        """Returns a free number, searching from a random start in the upper band, then in the lower; None if all are
        taken.
        """
        for each in self._bands:
            size = each.high - each.low
            if each.used < size:
                start = each.low + choose(size)
                return next(n for n in chain(range(start, each.high), range(each.low, start)) if not is_taken(n))
        return None


class Pool:
    """The offsets 0 … size - 1, each free or taken."""

    def __init__(self, size: int, choose: Choose) -> None:
        self._range, self._choose = Range(0, size, 0), choose
        self._taken: set[int] = set()
        self.size = size

    def take_any(self) -> int | None:
        """Returns a free offset, from a random start onwards; None if all are taken."""
        offset = self._range.pick(self._choose, self._taken.__contains__)
        if offset is not None:
            self.take(offset)
        return offset

    def take(self, offset: int) -> None:
        """Marks an offset as taken."""
        if offset not in self._taken:
            self._taken.add(offset)
            self._range.count(offset, 1)

    def free(self, offset: int) -> None:
        if offset in self._taken:
            self._taken.remove(offset)
            self._range.count(offset, -1)


class Ports:
    """The node ports: one pool for all protocols, health check ports included."""

    def __init__(self, ports: range, choose: Choose, metrics: AllocatorMetrics | None = None) -> None:
        self.range, self._choose, self._metrics = ports, choose, metrics or AllocatorMetrics()
        self.pool = Range(ports.start, ports.stop, band(len(ports), 32, 128))
        self.owners: dict[int, Key] = {}

    def allocate(self, port: int, owner: Key, txn: Transaction) -> None:
        """Allocates this port.

        Differs: a dry run too looks at the range; kube-apiserver would find ports that it then refuses.
        """
        if port not in self.range:
            self._metrics.port_errors[("static",)] += 1
            valid = f"{self.range.start}-{self.range.stop - 1}"
            raise AllocationError(f"provided port is not in the valid range. The range of valid ports is {valid}")
        if port in self.owners:
            self._metrics.port_errors[("static",)] += 1
            raise AllocationError("provided port is already allocated")
        self._take(port, owner, txn)
        self._metrics.ports[("static",)] += 1

    def allocate_next(self, owner: Key, txn: Transaction) -> int:
        port = self.pool.pick(self._choose, self.owners.__contains__)
        if port is None:
            self._metrics.port_errors[("dynamic",)] += 1
            raise RangeFullError("range is full")
        self._take(port, owner, txn)
        self._metrics.ports[("dynamic",)] += 1
        return port

    def release(self, ports: Iterable[int], owner: Key, txn: Transaction) -> None:
        """Frees the owner's ports once the transaction is committed."""
        for port in ports:
            txn.later.append(lambda port=port: self._let_go(port, owner))  # type: ignore[misc]

    def remember(self, port: int, owner: Key) -> bool:
        """Allocates a port that a stored Service has; False if it is outside the range or another's."""
        if port in self.range and port not in self.owners:
            self.owners[port] = owner
            self.pool.count(port, 1)
        return self.owners.get(port) == owner

    def _let_go(self, port: int, owner: Key) -> None:
        """Frees a port at once, if it is the owner's."""
        if self.owners.get(port) == owner:
            del self.owners[port]
            self.pool.count(port, -1)

    def _take(self, port: int, owner: Key, txn: Transaction) -> None:
        self.owners[port] = owner
        self.pool.count(port, 1)
        txn.undo.append(lambda: self._let_go(port, owner))
