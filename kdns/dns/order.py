"""Which address of an answer comes first: the `loadbalance` directive, as the orders that an answer takes in turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import ip_address
from math import lcm
from typing import Final, TypeAlias

from kdns.dns.names import folded
from kdns.dns.rrset import RRset
from kdns.dns.types import AAAA, A
from kdns.net import Network

Weights: TypeAlias = Mapping[str, Mapping[bytes, int]]
"""Name (lower case, trailing dot) → packed address → weight, 1 to 255."""

MAX_TURNS: Final = 16
"""Different orders of one answer that are kept ready."""
MAX_TURNED: Final = 16_384
"""Places of addresses in all of these orders together."""
MAX_WEIGHTED_TURNS: Final = 1024
"""The length of a weighted turn; weights that add up to more are scaled down."""


@dataclass(frozen=True, slots=True)
class Order:
    """The policy.

    Addresses in `prefer` stand before the others. With `rotate` each takes its turn at the front of its group; for
    a name in `weights` the turns at the front are as many as its weight says, 1 for an address not named there.
    """

    rotate: bool = False
    prefer: tuple[Network, ...] = ()
    weights: Weights = field(default_factory=dict)

    def arranged(self, rrsets: tuple[RRset, ...]) -> tuple[RRset, ...]:
        """The sets with preferred addresses first, otherwise in the order they had."""
        if not self.prefer:
            return rrsets
        return tuple(
            replace(one, rdata=tuple(sorted(one.rdata, key=lambda rdata: not self._prefers(rdata))))
            if one.rtype in {A, AAAA}
            else one
            for one in rrsets
        )

    def turns(self, rrset: RRset, count: int, start: int) -> list[tuple[int, ...]]:
        """The orders that the first `count` addresses of an arranged set take, one for each use of the answer.

        `start` says which of them is the first, so that answers made one after another do not begin alike.
        """
        rdata = rrset.rdata[:count]
        if weights := self.weights and self.weights.get(folded(rrset.owner)):
            return weighted_turns([weights.get(one, 1) if isinstance(one, bytes) else 1 for one in rdata], start)
        if not self.rotate:
            return [tuple(range(count))]
        first = sum(self._prefers(one) for one in rdata) if self.prefer else 0
        sizes = tuple(size for size in (first, count - first) if size)
        return _few_turns(sizes, start % lcm(*sizes)) if count <= MAX_TURNS else rotated_turns(list(sizes), start)

    def _prefers(self, rdata: object) -> bool:
        return isinstance(rdata, bytes) and any(ip_address(rdata) in network for network in self.prefer)


AS_IS: Final = Order()


def rotated_turns(sizes: list[int], start: int) -> list[tuple[int, ...]]:
    """The orders in which each of these groups, one behind the other, is rotated in itself.

    Every address of the first group comes first equally often, if there are at most MAX_TURNS.
    """
    lead = sizes[0]
    most = min(MAX_TURNS, max(1, MAX_TURNED // sum(sizes)))
    turns = min(lead, most)
    turns = lcm(*sizes) if lcm(*sizes) <= most else turns * (most // turns)
    return [tuple(_rotated(sizes, turn, turns, start)) for turn in range(turns)]


@lru_cache(256)
def _few_turns(sizes: tuple[int, ...], start: int) -> list[tuple[int, ...]]:
    """`rotated_turns` of small groups, which are the same for most Services."""
    return rotated_turns(list(sizes), start)


def weighted_turns(weights: list[int], start: int) -> list[tuple[int, ...]]:
    """The orders in which one address after another is put first, each as often as it weighs and evenly spread."""
    total = sum(weights)
    if total > MAX_WEIGHTED_TURNS:
        weights = [max(1, weight * MAX_WEIGHTED_TURNS // total) for weight in weights]
    spread = sorted(((use + 0.5) / weight, index) for index, weight in enumerate(weights) for use in range(weight))
    everyone = range(len(weights))
    orders = [(first, *everyone[:first], *everyone[first + 1 :]) for first in everyone]
    turns = [orders[index] for _, index in spread]
    cut = start % len(turns)
    return turns[cut:] + turns[:cut]


def _rotated(sizes: list[int], turn: int, turns: int, start: int) -> Iterable[int]:
    begin = 0
    for size in sizes:
        shift = start + (turn if size <= turns else turn * size // turns)
        yield from (begin + (shift + place) % size for place in range(size))
        begin += size
