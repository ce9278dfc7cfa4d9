"""A mode's restores of iptables, the jumps to its chains, and what the kernel is expected to have after both."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kdns.errors import ApplyError
from kdns.net import Family
from kdns.netlink.io import xtables
from kdns.netlink.xtables import TableContent
from kdns.proxy.sync.io.kernel_mode import in_thread
from kdns.proxy.xtables.io.clean_up import IptablesPart, delete_chains
from kdns.proxy.xtables.io.programs import Programs, rule_words
from kdns.proxy.xtables.names import FIREWALL, FIXED
from kdns.proxy.xtables.rules import Jump, inserted

_COMMAND: Final = re.compile(r"^(\*|:|-[AIDX] )(\S+)", re.MULTILINE)
_TABLE_OR_DELETION: Final = re.compile(r"^(\*|-X )(\S+)\n", re.MULTILINE)


@dataclass(slots=True)
class ExpectedRules:
    """The number of rules of one family by table and chain, and by table how many the last restore wrote."""

    rules: dict[str, Counter[str]] = field(default_factory=dict)
    written: Counter[str] = field(default_factory=Counter)

    def restored(self, text: str) -> None:
        self.written = Counter()
        chains, table = Counter[str](), ""
        for match in _COMMAND.finditer(text):
            command, name = match.groups()
            if command == "*":
                table, chains = name, self.rules.setdefault(name, Counter())
            elif command == ":":
                chains[name] = 0
            elif command == "-X ":
                chains.pop(name, None)
            elif command == "-D ":
                chains[name] -= 1
            else:
                chains[name] += 1
                self.written[table] += 1

    def total(self, table: str) -> int:
        return sum(self.rules.get(table, Counter[str]()).values())

    def missing(self, table: str, content: TableContent, jumps: Iterable[Jump]) -> Iterator[str]:
        """Differences in words. KUBE-FIREWALL may have more rules: those of the kubelet."""
        for chain, count in tuple(self.rules.get(table, Counter[str]()).items()):
            existing = content.rules.get(chain)
            if existing is None:
                yield f"no {table} {chain}"
            elif existing != count and (chain != FIREWALL or existing < count):
                yield f"{table} {chain} has {existing} rules, not {count}"
        for jump in jumps:
            if jump.table == table and (jump.chain, jump.rule[-1]) not in content.jumps:
                yield f"{table} {jump.chain} does not lead to {jump.rule[-1]}"


class Restores:
    """The rules of a mode in one back end. `keeps(table, chain)`: whether a chain is the mode's."""

    def __init__(
        self,
        programs: Programs,
        families: tuple[Family, ...],
        jumps: tuple[Jump, ...],
        keeps: Callable[[str, str], bool],
    ) -> None:
        self._programs, self._jumps = programs, jumps
        self.expected: dict[Family, ExpectedRules] = {}
        self._with_own_jumps: set[Family] = set()
        own = frozenset((family, jump.table, jump.chain, jump.rule) for family in families for jump in jumps)
        self.part = IptablesPart(programs.backend, keeps, own)

    async def restore(self, family: Family, text: str, *, is_partial: bool = False) -> None:
        """Carries out a restore, a whole one even if a chain cannot be deleted, since rules of others lead to it.

        Such a chain stays, empty. Differs: kube-proxy syncs nothing as long as there is such a rule.
        """
        expected = self.expected.setdefault(family, ExpectedRules()) if is_partial else ExpectedRules()
        try:
            await self._programs.restore(family, text)
        except ApplyError as error:
            if is_partial or "(-X " not in error.stderr:
                raise
            rest, deletions = await asyncio.to_thread(_without_deletions, text)
            await self._programs.restore(family, rest)
            for table, chains in deletions.items():
                await delete_chains(self._programs, family, table, chains)
        await asyncio.to_thread(expected.restored, text)
        self.expected[family] = expected

    async def insert_missing_jumps(self, family: Family) -> None:
        existing = await self._existing_jumps(family)
        if missing := [jump for jump in self._jumps if jump not in existing]:
            await self._programs.restore(family, inserted(missing))
        self._with_own_jumps.add(family)

    async def _existing_jumps(self, family: Family) -> set[Jump]:
        """The first time, a jump with the same target may be another mode's."""
        targets = await in_thread(partial(self._targets, family))
        existing = {jump for jump in self._jumps if (jump.table, jump.chain, jump.rule[-1]) in targets}
        if family in self._with_own_jumps:
            return existing
        listed = {
            (table, chain): [sorted(rule_words(rule)) for rule in await self._programs.rules(family, table, chain)]
            for table, chain in {jump[:2] for jump in existing}
        }
        return {jump for jump in existing if sorted(jump.rule) in listed[jump[:2]]}

    def _targets(self, family: Family) -> set[tuple[str, str, str]]:
        backend, chains = self._programs.backend, {jump[:2] for jump in self._jumps}
        return {(*chain, target) for chain in chains for target in xtables.jump_targets(backend, family, *chain)}

    def difference(self) -> str:
        """The first difference of the kernel's rules from the expected ones, in words; "" for none. Blocks."""
        for family, expected in self.expected.items():
            for table in FIXED:
                content = xtables.table_content(self._programs.backend, family, table)
                for difference in expected.missing(table, content, self._jumps):
                    return f"{family} {difference}"
        return ""


def _without_deletions(text: str) -> tuple[str, dict[str, list[str]]]:
    """A restore that deletes no chain, and the chains that it would have deleted, by table."""
    deletions: dict[str, list[str]] = {}
    table = ""
    for kind, name in _TABLE_OR_DELETION.findall(text):
        if kind == "*":
            table = name
        else:
            deletions.setdefault(table, []).append(name)
    return re.sub(r"^-X .*\n", "", text, flags=re.MULTILINE), deletions
