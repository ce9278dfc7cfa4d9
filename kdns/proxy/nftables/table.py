"""The desired content of kdns's table, and the transactions that lead the kernel's table from one plan to the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from kdns.net import FAMILIES
from kdns.proxy.nftables.base_chains import base_chains
from kdns.proxy.nftables.fronts import Content, content_of
from kdns.proxy.nftables.numbers import TableNumbers
from kdns.proxy.nftables.objects import (
    NFT_FAMILY,
    TABLE,
    Chain,
    Data,
    ElementKey,
    Set,
    Transaction,
    commands,
    table_text,
)
from kdns.proxy.nftables.sets import BY_ID, DRAWN, LISTED, NUMBERED, SERVICES, SHARED
from kdns.proxy.plan.counted import Counted
from kdns.proxy.plan.plan import FamilyPlan, Front, FrontKey, Plan
from kdns.proxy.plan.planner import Difference
from kdns.proxy.settings.section import DEFAULT_MARK

_FRONTS_AT_ONCE: Final = 500
_LINGERING: Final = DRAWN | LISTED | BY_ID
"""Maps whose elements may be deleted by the sweep only."""
_SERVICES: Final = frozenset(services.name for services in SERVICES)
_ABSENT: Final = "no element"
UNUSED_CHAINS_MAX: Final = 1000
"""Beyond so many chains that no front uses, a full sync is to remove them."""


def ruleset(plan: Plan, masquerade_mark: int = DEFAULT_MARK) -> str:
    """Both tables, as one transaction for `nft -f`."""
    return "".join(Table(plan.of(family), masquerade_mark).whole() for family in FAMILIES)


class Table:
    """One family's table, which follows the family's plan. One event loop owns it.

    Chains that no front uses any more stay until the next full sync, and so do their numbers: a packet may be between
    the look-ups of a number and of its chain, and to add a chain again costs a hundred times what an element does.
    """

    def __init__(self, family_plan: FamilyPlan, masquerade_mark: int = DEFAULT_MARK) -> None:
        self.family_plan = family_plan
        self._base = base_chains(family_plan, masquerade_mark)
        self.sets: Mapping[str, Set] = {base.name: base for base in self._base if isinstance(base, Set)}
        """The sets and maps, by name."""
        self._chains: dict[str, Chain] = {}
        self._chain_numbers: dict[str, dict[ElementKey, Data]] = {name: {} for name in NUMBERED}
        self._numbers = TableNumbers()
        self._chain_uses = Counted[str]()
        self._shared = Counted[tuple[str, ElementKey]]()
        """The elements of the sets SHARED, with their sets."""
        self._stale: dict[str, dict[ElementKey, None]] = {}

    def loaded(self) -> Iterator[Transaction]:
        """Chains and elements of the first plan, some fronts at a time. Call it once, before `follow`.

        A transaction takes many times the memory of what is sent for it.
        """
        fronts = iter(self.family_plan.fronts.items())
        while some := {key: (None, front) for key, front in islice(fronts, _FRONTS_AT_ONCE)}:
            yield self._followed(some)

    def whole(self) -> str:
        """The first plan's table as one nft transaction that replaces an existing one. Consumes `loaded`."""
        table = f"{NFT_FAMILY[self.family_plan.family]} {TABLE}"
        objects = table_text(self.family_plan.family, self._base)
        lines = (line for change in self.loaded() for line in commands(change))
        return "\n".join((f"add table {table}", f"delete table {table}", objects, *lines, ""))

    @property
    def has_many_unused(self) -> bool:
        """Whether a full sync is due to remove unused chains."""
        if len(self._chains) <= UNUSED_CHAINS_MAX:
            return False
        unused = len(self._chains) - len(self._chain_uses.counts)
        return unused > UNUSED_CHAINS_MAX

    def before_elements(self, existing: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
        """Everything but elements, in commands, where the kernel has these objects: names by "chain", "map" and "set".

        What the elements that are there lead to stays, and the kernel enters the table only where it did before: it
        enters a new one when `after_elements` has been carried out.
        """
        table, chains = f"{NFT_FAMILY[self.family_plan.family]} {TABLE}", existing.get("chain", ())
        objects = [base for base in self._base if not _is_new_hook(base, chains)]
        refilled = {base.name for base in objects}
        return (
            f"add table {table}",
            *(f"flush chain {table} {name}" for name in chains if name in refilled),
            table_text(self.family_plan.family, objects),
            *commands(Transaction(self.family_plan.family, chains=self._chains)),
        )

    def chain_numbers(self) -> Transaction:
        return Transaction(self.family_plan.family, add=self._chain_numbers)

    def after_elements(self, existing: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
        """Base chains that were missing, and the removal of unused objects."""
        table, chains = f"{NFT_FAMILY[self.family_plan.family]} {TABLE}", existing.get("chain", ())
        hooks = [base for base in self._base if _is_new_hook(base, chains)]
        used = {base.name for base in self._base} | self._chains.keys()
        unused = {sort: [name for name in names if name not in used] for sort, names in existing.items()}
        return (
            *((table_text(self.family_plan.family, hooks),) if hooks else ()),
            *(f"flush chain {table} {name}" for name in unused.get("chain", ())),
            *(
                f"delete {sort} {table} {name}"
                for sort, names in sorted(unused.items(), reverse=True)
                for name in names
            ),
        )

    def difference(self, existing: Mapping[str, Iterable[str]], rules: Mapping[str, int]) -> str:
        """The first object that differs in the kernel, in words, or "". Elements are not compared.

        `existing` has names by "chain", "map" and "set"; `rules` has the number of rules by chain.
        """
        objects = [*self._base, *self._chains.values()]
        names = {sort: {item.name for item in objects if item.sort == sort} for sort in ("chain", "map", "set")}
        for sort, wanted in names.items():
            if differing := wanted ^ set(existing.get(sort, ())):
                return f"{sort} {min(differing)}"
        chains = (chain for chain in objects if isinstance(chain, Chain))
        return next((f"chain {chain.name}" for chain in chains if len(chain.rules) != rules.get(chain.name, 0)), "")

    def follow(self, family_plan: FamilyPlan, difference: Difference) -> Transaction:
        self.family_plan = family_plan
        change = self._followed(difference.fronts)
        for name, (_, port) in difference.ports.items():
            self._numbers.endpoints.release(name, port)
        return change

    def sweep(self) -> Transaction:
        """The deletion of stale elements. Call `swept` when it is done.

        A packet keeps its first rules while the elements change: it may look up one map before a change and the next
        map after it. It may have drawn a number that has no endpoint now, its front may have had external policy Local,
        and its list may be one with affinity that no front uses now. So elements that only such packets look up are
        stale until the sweep, which runs at least a second later.
        """
        stale = {name: list(keys) for name, keys in self._stale.items() if keys}
        return Transaction(self.family_plan.family, delete=stale)

    def swept(self) -> None:
        self._stale.clear()

    def _followed(self, fronts: Mapping[FrontKey, tuple[Front | None, Front | None]]) -> Transaction:
        change = Transaction(self.family_plan.family)
        for old, new in fronts.values():
            before = content_of((old,) if old else (), self.family_plan, self._numbers)
            after = content_of((new,) if new else (), self.family_plan, self._numbers)
            self._elements(change, before, after)
            for name in before.chains:
                self._chain_uses.remove(name)
            for name in after.chains:
                self._chain_uses.add(name)
            for name, chain in after.chains.items():
                present = self._chains.get(name)
                if chain is not present and chain != present:
                    change.chains[name] = self._chains[name] = chain
            for name, gotos in after.chain_numbers.items():
                known = self._chain_numbers[name]
                if new_gotos := {number: goto for number, goto in gotos.items() if number not in known}:
                    known |= new_gotos
                    change.add.setdefault(name, {}).update(new_gotos)
        return change

    def _elements(self, change: Transaction, before: Content, after: Content) -> None:
        for name in dict.fromkeys((*before.elements, *after.elements)):
            old, new = before.elements.get(name, {}), after.elements.get(name, {})
            is_deferred = name in DRAWN or (name in LISTED and _bypasses_lists(after)) or (name in BY_ID and not new)
            stale = self._stale.setdefault(name, {}) if name in _LINGERING else {}
            # Where the list is in use again, IDs of endpoints that left it must have no element.
            if name in BY_ID and new and stale:
                (place,) = {key[:-1] for key in new}
                for key in [key for key in stale if key[:-1] == place and key not in new]:
                    del stale[key]
                    _delete(change, name, key)
            for key, data in old.items():
                if is_deferred and key not in new:
                    stale[key] = None
                elif new.get(key, _ABSENT) != data and (name not in SHARED or self._shared.remove((name, key))):
                    _delete(change, name, key)
            for key, data in new.items():
                if key in stale:
                    del stale[key]
                    _delete(change, name, key)
                if old.get(key, _ABSENT) != data and (name not in SHARED or self._shared.add((name, key))):
                    change.add.setdefault(name, {})[key] = data


def _is_new_hook(base: Set | Chain, chains: Iterable[str]) -> bool:
    return isinstance(base, Chain) and base.hook is not None and base.name not in chains


def _bypasses_lists(part: Content) -> bool:
    """Whether the front has endpoints and does not use the maps of external policy Local."""
    return bool(_SERVICES & part.elements.keys()) and not LISTED & part.elements.keys()


def _delete(change: Transaction, name: str, key: ElementKey) -> None:
    """Deletes an element, or does not add it if it is a shared one that this transaction was to add."""
    added = change.add.get(name, {})
    if key in added and name in SHARED:
        del added[key]
    else:
        change.delete.setdefault(name, []).append(key)
