"""IPVS, addresses, sets and iptables of a test: they hold what they are given, and note in which order."""

import errno
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from kdns.errors import ApplyError
from kdns.net import Family, is_ipv6
from kdns.netlink.addresses import Link
from kdns.netlink.io import xtables
from kdns.netlink.ipset import Header, SetType
from kdns.netlink.ipvs import Destination, DestinationKey, Operation, ServerOptions, Verb, VirtualServerKey
from kdns.netlink.xtables import TableContent
from kdns.proxy.ipvs.io import clean_up, kernel, link, proxier

LINK = 7


@dataclass
class KernelOfTest:
    """What there is. `done` has a word for each thing that was done, `refuses` errors by address, server, endpoint."""

    options: dict[VirtualServerKey, ServerOptions] = field(default_factory=dict)
    held: dict[VirtualServerKey, dict[DestinationKey, Destination]] = field(default_factory=dict)
    addresses: set[str] = field(default_factory=set)
    sets: dict[str, tuple[SetType, set[str]]] = field(default_factory=dict)
    has_link: bool = False
    is_up: bool = False
    is_ipv6_off: bool = False
    done: list[str] = field(default_factory=list)
    refuses: dict[str, int] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    """Sets that rules use, which cannot be destroyed."""
    odd: set[str] = field(default_factory=set)
    """Sets with options of their own."""

    # IPVS

    def servers(self) -> dict[VirtualServerKey, ServerOptions]:
        return dict(self.options)

    def server(self, key: VirtualServerKey) -> ServerOptions | None:
        return self.options.get(key)

    def destinations(self, key: VirtualServerKey) -> dict[DestinationKey, Destination]:
        return dict(self.held.get(key, {}))

    def carry_out(self, operations: Sequence[Operation]) -> list[tuple[Operation, int]]:
        failures = []
        for operation in operations:
            self.operations.append(operation)
            self.done.append(operation.verb.name.rpartition("_")[2].lower())
            names = {
                operation.server[0],
                str(operation.server),
                operation.destination[0] if operation.destination else "",
            }
            if error := next((self.refuses[name] for name in names if name in self.refuses), 0):
                failures.append((operation, error))
            elif operation.verb in {Verb.NEW_SERVER, Verb.SET_SERVER}:
                assert operation.options
                self.options[operation.server] = operation.options
                self.held.setdefault(operation.server, {})
            elif operation.verb is Verb.DELETE_SERVER:
                self.options.pop(operation.server, None)
                self.held.pop(operation.server, None)
            elif operation.server not in self.held:
                failures.append((operation, errno.ESRCH))
            elif operation.verb is Verb.DELETE_DESTINATION:
                assert operation.destination
                self.held[operation.server].pop(operation.destination, None)
            else:
                assert operation.destination
                before = self.held[operation.server].get(operation.destination, Destination(0, 0, 0, masquerades=True))
                self.held[operation.server][operation.destination] = before._replace(weight=operation.weight)
        return failures

    def connect(self, key: VirtualServerKey, destination: DestinationKey, active: int) -> None:
        self.held[key][destination] = self.held[key][destination]._replace(active=active)

    # Addresses

    def link_addresses(self, index: int) -> set[str]:
        assert index == LINK
        return set(self.addresses)

    def change_link_addresses(self, index: int, new: Iterable[str], old: Iterable[str]) -> dict[str, int]:
        assert index == LINK
        some, gone = list(new), list(old)
        self.done += ["address"] * bool(some) + ["unaddress"] * bool(gone)
        refuses = self.refuses | (dict.fromkeys(filter(is_ipv6, some), errno.EACCES) if self.is_ipv6_off else {})
        self.addresses |= {each for each in some if each not in refuses}
        self.addresses -= set(gone)
        return {each: refuses[each] for each in some if each in refuses}

    def establish(self) -> Link:
        self.has_link = True
        return Link(LINK, self.is_up)

    def bring_up(self, index: int) -> None:
        assert index == LINK
        self.is_up = True
        self.done.append("up")

    def is_link_up(self, index: int) -> bool:
        return index == LINK and self.is_up

    # Sets

    def headers(self) -> dict[str, Header]:
        return {name: Header(kind, len(entries), name not in self.odd) for name, (kind, entries) in self.sets.items()}

    def entries(self, name: str) -> set[str]:
        return set(self.sets[name][1])

    def create(self, name: str, kind: SetType) -> None:
        assert name not in self.sets
        self.sets[name] = kind, set()

    def destroy(self, name: str) -> bool:
        if name not in self.used:
            self.sets.pop(name, None)
        return name not in self.used

    def swap(self, one: str, other: str) -> None:
        self.sets[one], self.sets[other] = self.sets[other], self.sets[one]

    def add(self, name: str, entries: Collection[str]) -> None:
        self.done.append("entries")
        self.sets[name][1].update(entries)

    def delete(self, name: str, entries: Iterable[str]) -> None:
        self.done.append("unentries")
        if name not in self.sets:
            raise FileNotFoundError(errno.ENOENT, name)
        self.sets[name][1].difference_update(entries)


@dataclass
class ProgramsOfTest:
    """Programs of iptables that keep the number of rules by chain, and jumps."""

    kernel: KernelOfTest
    backend: str = "legacy"
    restores: list[tuple[Family, str]] = field(default_factory=list)
    content: dict[tuple[Family, str], TableContent] = field(default_factory=dict)
    inserted: list[tuple[Family, str, str]] = field(default_factory=list)
    is_broken: bool = False

    async def restore(self, family: Family, text: str) -> None:
        if self.is_broken:
            raise ApplyError(("iptables-restore",), "broken")
        self.kernel.done.append("restore")
        self.restores.append((family, text))
        table = ""
        for line in text.splitlines():
            content = self.content.setdefault((family, table), TableContent(Counter()))
            if line.startswith("*"):
                table = line[1:]
            elif line.startswith(":"):
                content.rules[line[1:].split()[0]] = 0
            elif line.startswith("-A"):
                content.rules[line.split()[1]] += 1
            elif line.startswith("-I"):
                words = line.split()
                content.jumps.add((words[1], words[-1]))
                self.inserted.append((family, table, f"-A{line[2:]}"))

    async def rules(self, family: Family, table: str, chain: str) -> list[str]:
        return [rule for *at, rule in self.inserted if at == [family, table] and rule.startswith(f"-A {chain} ")]

    def jump_targets(self, backend: str, family: Family, table: str, chain: str) -> set[str]:
        jumps = self.table_content(backend, family, table).jumps
        return {target for source, target in jumps if source == chain}

    def table_content(self, _backend: str, family: Family, table: str) -> TableContent:
        return self.content.get((family, table), TableContent(Counter()))


def replace_kernel(patch: pytest.MonkeyPatch, made: KernelOfTest, programs: ProgramsOfTest) -> None:
    @contextmanager
    def opened() -> Iterator[Any]:
        yield made

    for module in (kernel, proxier, clean_up):
        patch.setattr(module, "ipvs", opened)
    for module in (proxier, clean_up):
        patch.setattr(module, "ipsets", opened)
    for module in (kernel, proxier, clean_up):
        patch.setattr(module, "link_addresses", made.link_addresses)
    for module in (kernel, clean_up):
        patch.setattr(module, "change_link_addresses", made.change_link_addresses)
    patch.setattr(proxier, "is_link_up", made.is_link_up)
    patch.setattr(link, "establish", made.establish)
    patch.setattr(link, "bring_up", made.bring_up)
    patch.setattr(xtables, "table_content", programs.table_content)
    patch.setattr(xtables, "jump_targets", programs.jump_targets)
