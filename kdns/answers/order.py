"""The order of addresses in an answer: the `loadbalance` directive, as orders that an answer uses in turn."""

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
"""Different orders of one answer that are kept ready."""
MAX_TURNED: Final = 16_384
"""Places of addresses in all of these orders together."""
MAX_WEIGHTED_TURNS: Final = 1024
"""The length of a weighted turn; weights that add up to more are scaled down."""


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
        """Returns the sets by kind, with preferred addresses first, otherwise in the order they had."""
        if not self.rotate and not self.prefer:
            return rrsets
        if len(rrsets) > 1 and (not self.weights or any(rrset.rtype in ADDRESSES for rrset in rrsets)):
            rrsets = tuple(sorted(rrsets, key=_kind_of))
        if not self.prefer:
            return rrsets
        addresses = [one for one in _singles(rrsets) if one.rtype in ADDRESSES]
        addresses.sort(key=lambda one: self._rank(one.rdata[0]))
        first = sum(_kind_of(rrset) < ADDRESS_KIND for rrset in rrsets)
        rest = (rrset for rrset in rrsets if _kind_of(rrset) > ADDRESS_KIND)
        return (*rrsets[:first], *_joined(addresses), *rest)

    def mixes(self, rrsets: tuple[RRset, ...]) -> bool:
        """Returns whether more rotates than the addresses of one set after all others, arranged as they are."""
        if not self.rotate or not rrsets:
            return False
        moving = [rrset for rrset in rrsets if rrset.rtype in MOVING]
        if len(moving) == 1:
            return len(moving[0].rdata) > 1 and (moving[0] is not rrsets[-1] or moving[0].rtype == MX)
        return bool(moving)

    def arrangements(self, rrsets: tuple[RRset, ...], start: int, *, once: bool) -> list[tuple[RRset, ...]]:
        """Returns the sets in each of their orders, at most MAX_TURNS; only the first of them for `once`."""
        rrsets = self.arranged(rrsets)
        singles = {kind: [one for one in _singles(rrsets) if _kind_of(one) == kind] for kind in range(OTHER_KIND + 1)}
        addresses, exchanges = singles[ADDRESS_KIND], singles[MX_KIND]
        owners, rdata = [one.owner for one in addresses], [one.rdata[0] for one in addresses]
        address_turns = self.turns(owners, rdata, start) if addresses else [()]
        exchange_turns = rotated_turns([len(exchanges)], start) if exchanges else [()]
        every = lcm(len(address_turns), len(exchange_turns))
        turns = 1 if once else min(every, MAX_TURNS)
        return [
            (
                *_joined(singles[CNAME_KIND]),
                *_joined(addresses[index] for index in address_turns[turn * every // turns % len(address_turns)]),
                *_joined(exchanges[index] for index in exchange_turns[turn * every // turns % len(exchange_turns)]),
                *_joined(singles[OTHER_KIND]),
            )
            for turn in range(turns)
        ]

    def ranked(self, rdata: Sequence[Rdata]) -> list[int]:
        places = range(len(rdata))
        return sorted(places, key=lambda place: self._rank(rdata[place])) if self.prefer else list(places)

    def turns(self, owners: Sequence[str], rdata: Sequence[Rdata], start: int) -> list[tuple[int, ...]]:
        """Returns the orders that arranged addresses take, one for each use of the answer.

        `owners` are those of each address, or the one of all. `start` says which order is the first, so that answers
        made one after another do not begin alike.
        """
        count = len(rdata)
        if self.weights and any(folded(owner) in self.weights for owner in set(owners)):
            every = owners if len(owners) == count else [*owners] * count
            return weighted_turns(list(map(self._weight, every, rdata)), start)
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
    """Joins adjacent records of one owner, type, class and TTL into one set."""
    runs = groupby(singles, lambda one: (one.owner, one.rtype, one.ttl, one.rclass))
    return tuple(
        RRset(owner, rtype, ttl, tuple(one.rdata[0] for one in run), rclass)
        for (owner, rtype, ttl, rclass), run in runs
    )


AS_IS: Final = Order()


def rotated_turns(sizes: list[int], start: int) -> list[tuple[int, ...]]:
    """Returns the orders in which each of these groups, one behind the other, is rotated in itself.

    Every address of the first group comes first equally often, if there are at most MAX_TURNS.
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
    """Returns the orders with each address first as often as its weight says, evenly spread."""
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
