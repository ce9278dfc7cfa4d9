"""The expected number of rules by chain in one family's tables, after the restores of this process."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from kdns.netlink.xtables import TableContent
from kdns.proxy.xtables.names import FIREWALL
from kdns.proxy.xtables.rules import Jump

_COMMAND: Final = re.compile(r"^(\*|:|-[AIDX] )(\S+)", re.MULTILINE)


@dataclass(slots=True)
class ExpectedRules:
    """The rules of one family by table and chain, and by table how many the last restore wrote."""

    rules: dict[str, Counter[str]] = field(default_factory=dict)
    written: Counter[str] = field(default_factory=Counter)

    def restored(self, text: str) -> None:
        self.written = Counter()
        chains, table = Counter[str](), ""
        for found in _COMMAND.finditer(text):
            command, name = found.groups()
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
        """Yields differences, in words. KUBE-FIREWALL may have more rules: those of the kubelet."""
        for chain, count in tuple(self.rules.get(table, Counter[str]()).items()):
            existing = content.rules.get(chain)
            if existing != count and (chain != FIREWALL or existing is None or existing < count):
                yield (
                    f"{table} {chain} has {existing} rules, not {count}"
                    if existing is not None
                    else f"no {table} {chain}"
                )
        for jump in jumps:
            if jump.table == table and (jump.chain, jump.rule[-1]) not in content.jumps:
                yield f"{table} {jump.chain} does not lead to {jump.rule[-1]}"
