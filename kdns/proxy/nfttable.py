"""kdns's table in the kernel as it should be, followed difference by difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from kdns.proxy.config import Family
from kdns.proxy.nftables import (
    DRAWN,
    LISTED,
    MISSING,
    NFT_FAMILY,
    NUMBERED,
    SHARED,
    SIDES,
    TABLE,
    Content,
    ElementKey,
    content,
)
from kdns.proxy.nftchange import Transaction, lines
from kdns.proxy.nftframe import frame
from kdns.proxy.plan import FamilyPlan, Front, FrontKey
from kdns.proxy.planner import Difference

_FRONTS_AT_ONCE: Final = 500
_KEPT: Final = DRAWN | LISTED | NUMBERED
"""Maps whose elements may have to stay for a moment."""


class Table:
    """One family's table, kept up with its half of the plan. One event loop owns it.

    `contents` says what fronts put into it in the table's mode.
    """

    def __init__(self, half: FamilyPlan, contents: Callable[[Iterable[Front], Family], Content] = content) -> None:
        self.half, self._contents = half, contents
        self._chains: dict[str, tuple[str, ...]] = {}
        self._maps: set[str] = set()
        self._uses: Counter[tuple[str, ElementKey | str]] = Counter()
        self._spare: dict[str, dict[ElementKey, None]] = {}
        self._led_to: set[str] = set()
        self._start: tuple[str, ...] = tuple(line for change in self._loaded() for line in lines(change))

    def whole(self, *, mark: int = 0x4000) -> str:
        """The table as it was at the start, in place of whatever was there before, as one nft transaction."""
        where = f"{NFT_FAMILY[self.half.family]} {TABLE}"
        fresh = (f"add table {where}", f"delete table {where}")
        return "\n".join((*fresh, frame(self.half, mark), *self._start, ""))

    def takeover(self, there: Mapping[str, Iterable[str]], *, mark: int = 0x4000) -> tuple[str, ...]:
        """As `whole`, command by command, in place of these chains, maps and sets.

        Maps of clients that are wanted keep them. What has a name that is wanted stays and is filled anew, so that at
        no time a packet finds it missing.
        """
        where = f"{NFT_FAMILY[self.half.family]} {TABLE}"
        framed = frame(self.half, mark)
        ours = {line.split()[1] for line in framed.splitlines() if line.startswith("\t") and line.endswith("{")}
        emptied = [f"add table {where}", f"flush table {where}"]
        for sort, names in sorted(there.items(), reverse=True):  # what leads to chains goes first
            for name in names:
                if name not in ours | self._chains.keys() | self._maps:
                    emptied.append(f"delete {sort} {where} {name}")
                elif name in ours and sort != "chain":
                    emptied.append(f"flush {sort} {where} {name}")
        return *emptied, framed, *self._start

    def started(self) -> None:
        """Forget what `whole` is made of: it is in the kernel now."""
        self._start = ()

    def follow(self, half: FamilyPlan, difference: Difference) -> Transaction:
        """What to do after the half became this one."""
        self.half = half
        return self._followed(difference.fronts)

    def sweep(self) -> Transaction:
        """Removes what nothing leads to any more: chains, maps of clients and endpoints; `swept` says that it is done.

        A packet may meet a map before a change and the next one after it: rules change at once for whoever is under
        way, elements do not. Its chain may draw a number that the change has no endpoint for, its front may have had
        external policy Local, whose maps do not know it any more, and its list may be one of affinity that nobody uses
        any more. So such elements stay until here.

        Kernels before 6.2 keep references of deleted elements for a moment: leave a second between the two. Chains to
        which elements led that go only now are left to the next sweep.
        """
        chains = tuple(name for name in self._chains if not self._uses["chain", name] and name not in self._led_to)
        maps = tuple(name for name in sorted(self._maps) if not self._uses["map", name] and name not in self._led_to)
        spare = {name: list(keys) for name, keys in self._spare.items() if keys}
        return Transaction(self.half.family, delete=spare, remove_chains=chains, remove_maps=maps)

    def swept(self, done: Transaction) -> None:
        """Forget what a sweep has removed."""
        self._spare.clear()
        self._led_to.clear()
        for name in done.remove_chains:
            del self._chains[name]
        self._maps.difference_update(done.remove_maps)

    def _loaded(self) -> Iterator[Transaction]:
        """All fronts, some at a time: as text they take a fraction of what they take as elements."""
        fronts = iter(self.half.fronts.items())
        while some := {key: (None, front) for key, front in islice(fronts, _FRONTS_AT_ONCE)}:
            yield self._followed(some)

    def _followed(self, fronts: Mapping[FrontKey, tuple[Front | None, Front | None]]) -> Transaction:
        change = Transaction(self.half.family)
        for old, new in fronts.values():
            before = self._contents((old,) if old else (), self.half.family)
            after = self._contents((new,) if new else (), self.half.family)
            self._elements(change, before, after)
            change.maps += [name for name in after.affinity_maps if name not in self._maps]
            self._maps.update(after.affinity_maps)
            self._count(before, -1)
            self._count(after, 1)
            for name, rules in after.chains.items():
                if self._chains.get(name) != rules:
                    change.chains[name] = self._chains[name] = rules
        return change

    def _count(self, part: Content, step: int) -> None:
        for name in part.chains:
            self._uses["chain", name] += step
        for name in part.affinity_maps:
            self._uses["map", name] += step

    def _elements(self, change: Transaction, before: Content, after: Content) -> None:
        for name in dict.fromkeys((*before.elements, *after.elements)):
            old, new = before.elements.get(name, {}), after.elements.get(name, {})
            is_kept = name in DRAWN or (name in LISTED and _goes_past_lists(after)) or (name in NUMBERED and not new)
            spare = self._spare.setdefault(name, {}) if name in _KEPT else {}
            if name in NUMBERED and new and spare:  # the list is in use again, so its endpoints are those of now
                (place,) = {key[:-1] for key in new}
                for key in [key for key in spare if key[:-1] == place and key not in new]:
                    del spare[key]
                    _forget(change, name, key)
            for key, data in old.items():
                if is_kept and key not in new:
                    spare[key] = None
                    self._led_to.update((*before.chains, *before.affinity_maps) if name in LISTED else ())
                elif new.get(key, MISSING) != data and self._is_gone(name, key):
                    _forget(change, name, key)
            for key, data in new.items():
                if key in spare:
                    del spare[key]
                    _forget(change, name, key)
                if old.get(key, MISSING) != data and self._is_first(name, key):
                    change.add.setdefault(name, {})[key] = data

    def _is_gone(self, name: str, key: ElementKey) -> bool:
        if name in SHARED:
            self._uses[name, key] -= 1
        return name not in SHARED or not self._uses[name, key]

    def _is_first(self, name: str, key: ElementKey) -> bool:
        if name in SHARED:
            self._uses[name, key] += 1
        return name not in SHARED or self._uses[name, key] == 1


def _goes_past_lists(part: Content) -> bool:
    """Whether fronts get an endpoint without the maps of external policy Local."""
    return any(side.services in part.elements for side in SIDES) and not LISTED & part.elements.keys()


def _forget(change: Transaction, name: str, key: ElementKey) -> None:
    """Delete an element, unless this same transaction was only going to add it."""
    added = change.add.get(name, {})
    if key in added and name in SHARED:
        del added[key]
    else:
        change.delete.setdefault(name, []).append(key)
