"""Numbers out of ranges, and the node ports: who has which number, and no number twice.

A number is taken inside a `Transaction`: taken at once, so that no other writer gets it, given back by `revert`.
What an update lets go is released only by `commit`, so that a failed write loses nothing. Every number has an owner,
and only its owner can release it.
The lower part of every range (the static band) is for people who ask for a number; numbers chosen here come from the
upper part first (KEP-3070). Ranges are never written out: memory is what is taken, whatever the prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain

from kdns.cluster.objects import Key
from kdns.controlplane.tally import Tally
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


@dataclass(slots=True)
class _Band:
    low: int
    high: int
    used: int = 0


class Range:
    """The numbers low … high - 1, counted in two bands: the upper one is searched before the lower."""

    def __init__(self, low: int, high: int, static: int) -> None:
        self.low, self.high = low, max(low, high)
        middle = min(low + static, self.high)
        self._bands = (_Band(middle, self.high), _Band(low, middle))
        self.ready = True

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return self.high - self.low

    @property
    def used(self) -> int:
        """How many of them are taken."""
        return sum(each.used for each in self._bands)

    def __contains__(self, number: int) -> bool:
        return self.low <= number < self.high

    def count(self, number: int, change: int) -> None:
        """One number of this range, or none of it, was taken (1) or released (-1)."""
        for each in self._bands:
            if each.low <= number < each.high:
                each.used += change

    def pick(self, choose: Choose, is_taken: Callable[[int], bool]) -> int | None:
        """A free number, from a random start onwards in the upper band, then in the lower; None when all are taken."""
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
        """A free offset, from a random start onwards; None when all are taken."""
        offset = self._range.pick(self._choose, self._taken.__contains__)
        if offset is not None:
            self.take(offset)
        return offset

    def take(self, offset: int) -> None:
        """Mark an offset as taken."""
        if offset not in self._taken:
            self._taken.add(offset)
            self._range.count(offset, 1)

    def free(self, offset: int) -> None:
        """Mark an offset as free."""
        if offset in self._taken:
            self._taken.remove(offset)
            self._range.count(offset, -1)


class Ports:
    """The node ports: one pool for all protocols, health check ports included."""

    def __init__(self, ports: range, choose: Choose, tally: Tally | None = None) -> None:
        self.range, self._choose, self._tally = ports, choose, tally or Tally()
        self.pool = Range(ports.start, ports.stop, band(len(ports), 32, 128))
        self.owners: dict[int, Key] = {}

    @property
    def valid(self) -> str:
        """The range as it is written: first and last port."""
        return f"{self.range.start}-{self.range.stop - 1}"

    def allocate(self, port: int, owner: Key, txn: Transaction) -> None:
        """Take this port."""
        if port not in self.range:
            self._tally.port_errors[("static",)] += 1
            raise AllocationError(f"provided port is not in the valid range. The range of valid ports is {self.valid}")
        if port in self.owners:
            self._tally.port_errors[("static",)] += 1
            raise AllocationError("provided port is already allocated")
        self._take(port, owner, txn)
        self._tally.ports[("static",)] += 1

    def allocate_next(self, owner: Key, txn: Transaction) -> int:
        """Take any free port."""
        port = self.pool.pick(self._choose, self.owners.__contains__)
        if port is None:
            self._tally.port_errors[("dynamic",)] += 1
            raise RangeFullError("range is full")
        self._take(port, owner, txn)
        self._tally.ports[("dynamic",)] += 1
        return port

    def release(self, ports: Iterable[int], owner: Key, txn: Transaction) -> None:
        """Give ports back once the transaction is committed, those that are the owner's."""
        for port in ports:
            txn.later.append(lambda port=port: self.let_go(port, owner))  # type: ignore[misc]

    def remember(self, port: int, owner: Key) -> bool:
        """Take a port that a stored Service has; False when it is outside the range or another's already."""
        if port in self.range and port not in self.owners:
            self.owners[port] = owner
            self.pool.count(port, 1)
        return self.owners.get(port) == owner

    def let_go(self, port: int, owner: Key) -> None:
        """Give a port back at once, if it is the owner's."""
        if self.owners.get(port) == owner:
            del self.owners[port]
            self.pool.count(port, -1)

    def _take(self, port: int, owner: Key, txn: Transaction) -> None:
        self.owners[port] = owner
        self.pool.count(port, 1)
        txn.undo.append(lambda: self.let_go(port, owner))
