"""iptables as it is written: chains that restores change, and a packet's way through them, walked by the text.

It knows nothing of Services. A rule that draws a number or looks for a client that was there before is followed both
ways, so the result is a set of outcomes.
"""

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from ipaddress import ip_address, ip_network
from typing import TypeAlias

Arguments: TypeAlias = tuple[str, ...]

BUILT_IN = {
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
}
TARGETS = frozenset({"ACCEPT", "DROP", "REJECT", "RETURN", "MARK", "MASQUERADE", "DNAT", "REDIRECT"})


@dataclass(slots=True)
class Kernel:
    """The chains of one family, by table, each with the texts of its rules."""

    tables: dict[str, dict[str, list[str]]] = field(
        default_factory=lambda: {table: {chain: [] for chain in chains} for table, chains in BUILT_IN.items()}
    )

    @property
    def names(self) -> dict[str, list[str]]:
        """The chains of each table that are not built in."""
        return {
            table: [chain for chain in chains if chain not in BUILT_IN[table]] for table, chains in self.tables.items()
        }

    def restore(self, text: str) -> None:
        """iptables-restore --noflush: one transaction for each table; ValueError where the program would refuse."""
        table, chains = "", dict[str, list[str]]()
        for line in text.splitlines():
            if line.startswith("*"):
                table = line[1:]
                chains = {name: list(rules) for name, rules in self.tables[table].items()}
            elif line == "COMMIT":
                self.tables[table] = chains
            elif line.startswith(":"):
                name, policy, counters = line[1:].split(" ")
                if policy != "-" or counters != "[0:0]" or len(name) > 28 or name in BUILT_IN[table]:
                    raise ValueError(line)
                chains[name] = []
            elif line and not line.startswith("#"):
                _command(chains, line)

    def flush(self, table: str) -> None:
        """What iptables -F and -X do to a table."""
        self.tables[table] = {chain: [] for chain in BUILT_IN[table]}


def _command(chains: dict[str, list[str]], line: str) -> None:
    command, name, *rest = line.split(" ", maxsplit=2)
    rule = rest[0] if rest else ""
    if command == "-N" and name not in chains:
        chains[name] = []
        return
    rules = chains[name]
    if command in {"-A", "-I"}:
        target = target_of(rule)
        if target and target not in TARGETS and target not in chains:
            raise ValueError(f"no chain {target}: {line}")
        rules.insert(0 if command == "-I" else len(rules), rule)
    elif command == "-D":
        rules.remove(rule)
    elif command == "-X":
        if rules or any(target_of(each) == name for chain in chains.values() for each in chain):
            raise ValueError(f"chain in use: {line}")
        del chains[name]
    else:
        raise ValueError(line)


@cache
def split(rule: str) -> Arguments:
    """The rule's arguments. iptables-restore knows double quotation marks and escapes inside of them."""
    return tuple(shlex.split(rule))


@cache
def target_of(rule: str) -> str:
    """Where the rule leads to, "" for nowhere."""
    words = split(rule)
    return words[words.index("-j") + 1] if "-j" in words else ""


@dataclass(frozen=True, slots=True)
class At:
    """A packet on its way, the first one of its connection; `is_dnat` once its destination was changed."""

    saddr: str
    daddr: str
    protocol: str
    dport: int
    interface: str = ""
    mark: int = 0
    is_dnat: bool = False
    is_masqueraded: bool = False
    ended: str = ""


_RETURNED = "returned"
_REDIRECTED = {4: "127.0.0.1", 6: "::1"}
"""A local address, in place of that of the interface of arrival, which is not known here."""


class Node:
    """The machine that a packet is walked on: its addresses."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self.addresses = frozenset(addresses)

    def is_local(self, address: str) -> bool:
        """Whether packets to it are for the machine itself."""
        return address in self.addresses or ip_address(address).is_loopback

    def holds(self, option: str, values: Arguments, at: At) -> bool:
        """A match that depends on more than the packet and the addresses; ValueError where there is no such match."""
        raise ValueError(f"unknown match: {option} {' '.join(values)} for {at}")


def walk(kernel: Kernel, packet: At, addresses: Iterable[str]) -> list[At]:
    node = Node(addresses)
    from_node = node.is_local(packet.saddr)
    ends: list[At] = []
    hooks = [("mangle", "OUTPUT"), ("nat", "OUTPUT"), ("filter", "OUTPUT")]
    if not from_node:
        hooks = [("mangle", "PREROUTING"), ("nat", "PREROUTING")]
    for at in hooked(kernel, hooks, [packet], node):
        inward = node.is_local(at.daddr)
        rest = [("filter", "INPUT")] if inward else [] if from_node else [("filter", "FORWARD")]
        ends += hooked(kernel, rest if inward else (*rest, ("nat", "POSTROUTING")), [at], node)
    return ends


def hooked(kernel: Kernel, hooks: Iterable[tuple[str, str]], packets: list[At], node: Node) -> list[At]:
    """The packets after these hooks; `ended` is "accept" where the last one's filter accepted it by a rule."""
    for table, chain in hooks:
        going = (replace(at, ended="") if at.ended == "accept" else at for at in packets)
        packets = [each for at in going for each in _chain(kernel.tables[table], chain, at, node)]
        if table == "nat":
            packets = [replace(at, ended="") if at.ended == "accept" else at for at in packets]
    return packets


def _chain(chains: dict[str, list[str]], name: str, packet: At, node: Node) -> Iterator[At]:
    """The packets that leave a chain: with `ended`, or to go on after it."""
    going, done = [packet], list[At]()
    for rule in chains[name]:
        going, passed = [], going
        for at in passed:
            for each in _rule(chains, split(rule), at, node):
                (done if each.ended else going).append(each)
    for at in (*done, *going):
        yield replace(at, ended="") if at.ended == _RETURNED else at


def _rule(chains: dict[str, list[str]], words: Arguments, at: At, node: Node) -> Iterator[At]:
    """The packet after one rule, once for each thing that may happen."""
    if at.ended:
        yield at
        return
    matches, target = _parsed(words)
    ways = [_match(option, values, at, node, is_not=is_not) for is_not, option, values in matches]
    if False in ways or not target:
        yield at
        return
    if None in ways:
        yield at
    yield from _target(chains, target, at, node)


@cache
def _parsed(words: Arguments) -> tuple[tuple[tuple[bool, str, Arguments], ...], Arguments]:
    """The matches, each with its values, and the target with its options."""
    matches: list[tuple[bool, str, list[str]]] = []
    is_not = False
    for index, word in enumerate(words):
        if word == "-j":
            return tuple((flag, option, tuple(values)) for flag, option, values in matches), words[index + 1 :]
        if word == "!":
            is_not = True
        elif word.startswith("-") and not (matches and matches[-1][1] == "--comment" and not matches[-1][2]):
            matches.append((is_not, word, []))
            is_not = False
        else:
            matches[-1][2].append(word)
    return tuple((flag, option, tuple(values)) for flag, option, values in matches), ()


IGNORED = frozenset(
    {"-m", "--comment", "--mode", "--seconds", "--reap", "--name", "--rsource", "--set", "--nfacct-name"}
)


def _match(option: str, values: Arguments, at: At, node: Node, *, is_not: bool) -> bool | None:
    """Whether one match holds; None where it may."""
    if option in IGNORED:
        return True
    if option in {"--probability", "--rcheck"}:
        return None
    value = values[0] if values else ""
    match option:
        case "-s":
            holds = ip_address(at.saddr) in ip_network(value)
        case "-d":
            holds = ip_address(at.daddr) in ip_network(value)
        case "-i":
            holds = at.interface.startswith(value[:-1]) if value.endswith("+") else at.interface == value
        case "-p":
            holds = at.protocol == value
        case "--dport":
            holds = at.dport == int(value)
        case "--dst-type" if value == "LOCAL":
            holds = node.is_local(at.daddr)
        case "--src-type" if value == "LOCAL":
            holds = node.is_local(at.saddr)
        case "--ctstate":
            holds = bool({"NEW", *(("DNAT",) if at.is_dnat else ())} & set(value.split(",")))
        case "--mark":
            bits, mask = (int(each, 16) for each in value.split("/"))
            holds = at.mark & mask == bits
        case _:
            holds = node.holds(option, values, at)
    return holds is not is_not


def _target(chains: dict[str, list[str]], words: Arguments, at: At, node: Node) -> Iterator[At]:
    match words:
        case ["ACCEPT"] | ["DROP"] | ["REJECT", "--reject-with", _]:
            yield replace(at, ended=words[0].lower())
        case ["RETURN"]:
            yield replace(at, ended=_RETURNED)
        case ["MARK", "--set-xmark", value]:
            bits, mask = (int(each, 16) for each in value.split("/"))
            yield replace(at, mark=at.mark & ~mask ^ bits)
        case ["MASQUERADE", *_]:
            yield replace(at, is_masqueraded=True, ended="accept")
        case ["DNAT", "--to-destination", where]:
            address, _, port = where.rpartition(":")
            yield replace(at, daddr=address.strip("[]"), dport=int(port), is_dnat=True, ended="accept")
        case ["REDIRECT", "--to-ports", port]:
            yield replace(
                at, daddr=_REDIRECTED[ip_address(at.daddr).version], dport=int(port), is_dnat=True, ended="accept"
            )
        case [chain] if chain in chains:
            yield from _chain(chains, chain, at, node)
        case _:
            raise ValueError(f"unknown target: {' '.join(words)}")
