"""The order of addresses in an answer: the policies of `loadbalance`, and the orders that an answer uses in turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import ip_address
from itertools import groupby
from math import lcm
from typing import Final, TypeAlias

from kdns.dns.names import folded
from kdns.dns.rrset import Rdata, RRset
from kdns.dns.types import AAAA, CNAME, MX, A
from kdns.net import Network

Weights: TypeAlias = Mapping[str, Mapping[bytes, int]]
"""Name (lower case, trailing dot) → packed address → weight, 1 to 255."""

MAX_TURNS: Final = 16
"""The most orders of one answer."""
MAX_TURNED: Final = 16_384
"""The most addresses in all orders of one answer together."""
MAX_WEIGHTED_TURNS: Final = 1024
"""The most orders by weight; weights that add up to more are scaled down."""


@dataclass(frozen=True, slots=True)
class Order:
    """The policy. CNAMEs are first, then addresses, then MX records, then all others.

    Addresses in the first network of `prefer` are before those in the second, and so on. With `rotate` each address,
    and each MX record, is first in its group in turn; for names in `weights` an address is first in proportion to its
    weight.
    """

    rotate: bool = False
    prefer: tuple[Network, ...] = ()
    weights: Weights = field(default_factory=dict)

    @property
    def looks_at_addresses(self) -> bool:
        return bool(self.prefer or self.weights)

    def arranged(self, rrsets: tuple[RRset, ...]) -> tuple[RRset, ...]:
        """Sorts RRsets by kind, preferred addresses first; stable."""
        if not self.rotate and not self.prefer:
            return rrsets
        if len(rrsets) > 1 and (not self.weights or any(rrset.rtype in ADDRESSES for rrset in rrsets)):
            rrsets = tuple(sorted(rrsets, key=_kind_of))
        if not self.prefer:
            return rrsets
        addresses = [single for single in _singles(rrsets) if single.rtype in ADDRESSES]
        addresses.sort(key=lambda single: self._rank(single.rdata[0]))
        first = sum(_kind_of(rrset) < ADDRESS_KIND for rrset in rrsets)
        others = (rrset for rrset in rrsets if _kind_of(rrset) > ADDRESS_KIND)
        return (*rrsets[:first], *_joined(addresses), *others)

    def mixes(self, rrsets: tuple[RRset, ...]) -> bool:
        """Whether anything rotates besides the addresses of one RRset that is the last; `rrsets` are arranged."""
        if not self.rotate or not rrsets:
            return False
        moving = [rrset for rrset in rrsets if rrset.rtype in MOVING]
        if len(moving) == 1:
            return len(moving[0].rdata) > 1 and (moving[0] is not rrsets[-1] or moving[0].rtype == MX)
        return bool(moving)

    def arrangements(self, rrsets: tuple[RRset, ...], start: int, *, once: bool) -> list[tuple[RRset, ...]]:
        """The RRsets in each of their orders, at most MAX_TURNS; `once`: only in the first one."""
        rrsets = self.arranged(rrsets)
        singles: dict[int, list[RRset]] = {kind: [] for kind in range(OTHER_KIND + 1)}
        for single in _singles(rrsets):
            singles[_kind_of(single)].append(single)
        addresses, exchanges = singles[ADDRESS_KIND], singles[MX_KIND]
        owners, rdata = [single.owner for single in addresses], [single.rdata[0] for single in addresses]
        address_turns = self.turns(owners, rdata, start) if addresses else [()]
        exchange_turns = rotated_turns([len(exchanges)], start) if exchanges else [()]
        period = lcm(len(address_turns), len(exchange_turns))
        turns = 1 if once else min(period, MAX_TURNS)
        return [
            (
                *_joined(singles[CNAME_KIND]),
                *_joined(addresses[index] for index in address_turns[turn * period // turns % len(address_turns)]),
                *_joined(exchanges[index] for index in exchange_turns[turn * period // turns % len(exchange_turns)]),
                *_joined(singles[OTHER_KIND]),
            )
            for turn in range(turns)
        ]

    def ranked(self, rdata: Sequence[Rdata]) -> list[int]:
        indexes = range(len(rdata))
        return sorted(indexes, key=lambda index: self._rank(rdata[index])) if self.prefer else list(indexes)

    def turns(self, owners: Sequence[str], rdata: Sequence[Rdata], start: int) -> list[tuple[int, ...]]:
        """Orders of arranged addresses, as indexes, one for each use of the answer.

        `owners` has an owner for each address, or one for all. `start` picks the first order, so that successive
        answers begin with different addresses.
        """
        count = len(rdata)
        if self.weights and any(folded(owner) in self.weights for owner in set(owners)):
            owners = owners if len(owners) == count else [*owners] * count
            return weighted_turns(list(map(self._weight, owners, rdata)), start)
        if not self.rotate:
            return [tuple(range(count))]
        sizes: tuple[int, ...] = (count,)
        if self.prefer:
            sizes = tuple(len(list(group)) for _, group in groupby(map(self._rank, rdata)))
        return _few_turns(sizes, start % lcm(*sizes)) if count <= MAX_TURNS else rotated_turns(list(sizes), start)

    def _weight(self, owner: str, rdata: Rdata) -> int:
        return self.weights.get(folded(owner), {}).get(rdata, 1) if isinstance(rdata, bytes) else 1

    def _rank(self, rdata: Rdata) -> int:
        if not isinstance(rdata, bytes):
            return len(self.prefer)
        address = ip_address(rdata)
        return next((rank for rank, network in enumerate(self.prefer) if address in network), len(self.prefer))


CNAME_KIND, ADDRESS_KIND, MX_KIND, OTHER_KIND = range(4)
ADDRESSES: Final = frozenset((A, AAAA))
MOVING: Final = frozenset((A, AAAA, MX))
_KINDS: Final = {CNAME: CNAME_KIND, A: ADDRESS_KIND, AAAA: ADDRESS_KIND, MX: MX_KIND}


def _kind_of(rrset: RRset) -> int:
    return _KINDS.get(rrset.rtype, OTHER_KIND)


def _singles(rrsets: Iterable[RRset]) -> list[RRset]:
    return [replace(rrset, rdata=(rdata,)) for rrset in rrsets for rdata in rrset.rdata]


def _joined(singles: Iterable[RRset]) -> tuple[RRset, ...]:
    """Joins adjacent records of one owner, type, class and TTL into one RRset."""
    runs = groupby(singles, lambda single: (single.owner, single.rtype, single.ttl, single.rclass))
    return tuple(
        RRset(owner, rtype, ttl, tuple(single.rdata[0] for single in run), rclass)
        for (owner, rtype, ttl, rclass), run in runs
    )


AS_IS: Final = Order()


def rotated_turns(sizes: list[int], start: int) -> list[tuple[int, ...]]:
    """Orders in which each of these consecutive groups is rotated.

    Every address of the first group is first equally often, if there are at most MAX_TURNS.
    """
    lead = sizes[0]
    most = min(MAX_TURNS, max(1, MAX_TURNED // sum(sizes)))
    turns = min(lead, most)
    turns = lcm(*sizes) if lcm(*sizes) <= most else turns * (most // turns)
    return [tuple(_rotated(sizes, turn, turns, start)) for turn in range(turns)]


@lru_cache(256)
def _few_turns(sizes: tuple[int, ...], start: int) -> list[tuple[int, ...]]:
    """Cached `rotated_turns`: most Services have the same few small groups."""
    return rotated_turns(list(sizes), start)


def weighted_turns(weights: list[int], start: int) -> list[tuple[int, ...]]:
    """Each address is first as often as its weight says, evenly spread."""
    total = sum(weights)
    if total > MAX_WEIGHTED_TURNS:
        weights = [max(1, weight * MAX_WEIGHTED_TURNS // total) for weight in weights]
    spread = sorted(((use + 0.5) / weight, index) for index, weight in enumerate(weights) for use in range(weight))
    indexes = range(len(weights))
    orders = [(first, *indexes[:first], *indexes[first + 1 :]) for first in indexes]
    turns = [orders[index] for _, index in spread]
    cut = start % len(turns)
    return turns[cut:] + turns[:cut]


def _rotated(sizes: list[int], turn: int, turns: int, start: int) -> Iterable[int]:
    begin = 0
    for size in sizes:
        shift = start + (turn if size <= turns else turn * size // turns)
        yield from (begin + (shift + index) % size for index in range(size))
        begin += size
