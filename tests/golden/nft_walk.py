"""A packet's way through a ruleset as it is written: the part of nft's language that kdns writes, walked by the text.

It knows nothing of Services. Every number that numgen may draw is followed, so the result is a set of outcomes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network
from typing import TypeAlias

_ACCEPTED, _RETURNED = "accept", "returned"
"""A packet that a hook is done with, and one that left a chain by goto: it leaves the chain before, too."""
Words: TypeAlias = list[str]


@dataclass(frozen=True, slots=True)
class At:
    """A packet on its way; `dnat` is set once its destination was changed."""

    saddr: str
    daddr: str
    protocol: str
    dport: int
    interface: str = ""
    mark: int = 0
    priority: str = "0"
    is_dnat: bool = False
    is_masqueraded: bool = False
    ended: str = ""


@dataclass(slots=True)
class Ruleset:
    """One table, as read from nft commands."""

    family: str
    elements: dict[str, dict[str, str]] = field(default_factory=dict)
    chains: dict[str, list[str]] = field(default_factory=dict)
    hooks: list[tuple[str, int, str]] = field(default_factory=list)


def read(text: str) -> Ruleset:
    """The table that these commands make; ValueError for a command that is not known here."""
    made = Ruleset(text.split()[2])
    inside = ""
    for line in (line.strip() for line in text.splitlines()):
        words = line.split()
        if not words or words[:2] in (["add", "table"], ["delete", "table"]) or words[0] == "table":
            continue
        if words[-1] == "{":
            inside = words[1] if words[0] == "chain" else ""
            (made.chains if inside else made.elements).setdefault(words[1], [] if inside else {})  # type: ignore[arg-type]
        elif words[0] == "}":
            inside = ""
        elif words[0] in {"add", "flush", "delete"}:
            _command(made, words)
        elif inside and words[0] == "type":
            made.hooks.append((f"{words[1]} {words[3]}", int(words[5].rstrip(";")), inside))
        elif inside:
            made.chains[inside].append(line)
    return made


def in_use(made: Ruleset) -> Ruleset:
    """The table without the chains that no front leads to, and without their numbers."""
    numbers = {data for elements in made.elements.values() for data in elements.values()}
    gotos = {
        name: {number: goto for number, goto in made.elements[name].items() if number in numbers}
        for name in ("service-chains", "external-local-chains")
    }
    reached: set[str] = set()
    targets = {chain for _, _, chain in made.hooks} | _targets(
        goto for each in gotos.values() for goto in each.values()
    )
    while new := targets - reached:
        reached |= new
        targets = _targets(rule for name in new for rule in made.chains[name])
    chains = {name: rules for name, rules in made.chains.items() if name in reached}
    return replace(made, elements=made.elements | gotos, chains=chains)


def _targets(rules: Iterable[str]) -> set[str]:
    words = [rule.split() for rule in rules]
    return {rule[at + 1].rstrip(",") for rule in words for at, word in enumerate(rule) if word in {"goto", "jump"}}


def apply(made: Ruleset, commands: Iterable[str]) -> None:
    for command in commands:
        _command(made, command.split())


def _command(made: Ruleset, words: Words) -> None:
    match words:
        case ["add" | "flush", "chain", _, _, name]:
            made.chains[name] = []
        case ["add", "map", _, _, name, *_]:
            made.elements.setdefault(name, {})
        case ["add", "rule", _, _, name, *rule]:
            made.chains[name].append(" ".join(rule))
        case ["add", "element", _, _, name, "{", *rest, "}"]:
            for element in " ".join(rest).split(", "):
                named, _, data = element.partition(" : ")
                key = named.partition(" comment ")[0]
                if key in made.elements[name]:
                    raise ValueError(f"{name} has {key} twice")
                made.elements[name][key] = data
        case ["delete", "element", _, _, name, "{", *rest, "}"]:
            for key in " ".join(rest).split(", "):
                del made.elements[name][key]
        case ["delete", "chain", _, _, name]:
            del made.chains[name]
        case ["delete", "map", _, _, name]:
            del made.elements[name]
        case _:
            raise ValueError(f"unknown command: {' '.join(words)}")


def walk(rules: Ruleset, packet: At, node: Iterable[str]) -> list[At]:
    local = set(node)
    from_node = packet.saddr in local or ip_address(packet.saddr).is_loopback
    arrival = "output" if from_node else "prerouting"
    found = list(_hook(rules, "filter", arrival, [packet], local, before=0))
    found = list(_hook(rules, "nat", arrival, found, local))
    ended, arrived = [], []
    for at in found:
        inward = at.daddr in local or ip_address(at.daddr).is_loopback
        ways = [at]
        if from_node:
            ways = list(_hook(rules, "filter", "output", ways, local, after=0))
        if from_node and inward:  # what a node sends to itself comes in again
            ways = list(_hook(rules, "filter", "prerouting", ways, local, before=0))
        if inward or not from_node:
            ways = list(_hook(rules, "filter", "input" if inward else "forward", ways, local, after=0))
        if inward and not from_node:
            arrived += ways
        else:
            ended += ways
    return [*_hook(rules, "nat", "postrouting", ended, local), *arrived]


def _hook(
    rules: Ruleset, kind: str, hook: str, packets: list[At], local: set[str], *, before: int = 999, after: int = -999
) -> Iterator[At]:
    chains = sorted((at, name) for told, at, name in rules.hooks if told == f"{kind} {hook}" and after <= at < before)
    for _, chain in chains:
        packets = [each for packet in packets for each in _chain(rules, chain, packet, local)]
    yield from (replace(each, ended="") if each.ended == _ACCEPTED else each for each in packets)


def _chain(rules: Ruleset, name: str, packet: At, local: set[str]) -> Iterator[At]:
    """The packets that leave a chain: with `ended`, or to go on after it."""
    if packet.ended:
        yield packet
        return
    going = [packet]
    for rule in rules.chains[name]:
        going = [each for at in going for each in (_rule(rules, rule.split(), at, local) if not at.ended else [at])]
    for at in going:
        yield replace(at, ended="") if at.ended == _RETURNED else at


def _rule(rules: Ruleset, words: Words, at: At, local: set[str]) -> Iterator[At]:
    """The packet after one rule, once for each number that can be drawn."""
    condition = _condition(words, at, local)
    if condition:
        holds, rest = condition
        yield from _rule(rules, rest, at, local) if holds else [at]
        return
    match words:
        case []:
            yield at
        case ["meta", "mark" | "priority", "set", *_]:
            for marked, rest in _meta(rules, words, at):
                yield from _rule(rules, rest, marked, local)
        case ["masquerade", "fully-random"]:
            yield replace(at, is_masqueraded=True)
        case ["drop" | "reject"] | ["reject", "with", "tcp", "reset"]:
            yield replace(at, ended=words[0])
        case ["update" | "delete", name, "{", *_]:
            assert name.removeprefix("@") in rules.elements
            yield from _rule(rules, words[words.index("}") + 1 :], at, local)
        case ["jump", chain]:
            yield from _chain(rules, chain, at, local)
        case ["goto", chain]:
            for each in _chain(rules, chain, at, local):
                yield each if each.ended else replace(each, ended=_RETURNED)
        case ["dnat", *_]:
            yield from _dnat(rules, words, at)
        case _:
            yield from _matched(rules, words, at, local)


def _meta(rules: Ruleset, words: Words, at: At) -> Iterator[tuple[At, Words]]:
    """The packet with what a rule writes on it, and the rule's rest; no rest where no element says what to write."""
    match words:
        case ["meta", "mark", "set", "meta", "mark", "or" | "xor" as step, mask, *rest]:
            value = int(mask, 16)
            yield replace(at, mark=at.mark | value if step == "or" else at.mark ^ value), rest
        case ["meta", "priority", "set", "0", *rest]:
            yield replace(at, priority="0"), rest
        case ["meta", "priority", "set", *expression]:
            for key, [_, name, *rest] in _keys(expression, at, rules.family):
                found = rules.elements[name.removeprefix("@")].get(key)
                yield (replace(at, priority=found), rest) if found else (at, [])
        case _:
            raise ValueError(f"unknown rule: {' '.join(words)}")


def _condition(words: Words, at: At, local: set[str]) -> tuple[bool, Words] | None:
    """Whether a rule's first words hold, and the rest; None for words that are no simple condition."""
    match words:
        case ["ct", "state", "new", *rest]:
            return True, rest
        case ["ct", "status", "dnat", *rest]:
            return at.is_dnat, rest
        case ["ct", "status", "and", "dnat", "==", "0", *rest]:
            return not at.is_dnat, rest
        case ["fib", side, "type", "local", *rest]:
            address = at.saddr if side == "saddr" else at.daddr
            return address in local or ip_address(address).is_loopback, rest
        case ["iifname", "!=", name, *rest]:
            return not _interface(at, name), rest
        case ["iifname", name, *rest]:
            return _interface(at, name), rest
        case ["meta", "mark", "and", mask, "!=", "0", *rest]:
            return bool(at.mark & int(mask, 16)), rest
        case ["meta", "l4proto", protocol, *rest] if protocol != ".":
            return at.protocol == protocol, rest
    return None


def _dnat(rules: Ruleset, words: Words, at: At) -> Iterator[At]:
    match words:
        case ["dnat", "to", where]:
            yield _sent(at, where.rpartition(":"))
        case ["dnat", _, "addr", ".", "port", "to", *rest]:
            for key, end in _keys(rest, at, rules.family):
                found = rules.elements[end[1].removeprefix("@")].get(key)
                yield _sent(at, found.rpartition(" . ")) if found else at
        case _:
            raise ValueError(f"unknown rule: {' '.join(words)}")


def _sent(at: At, where: tuple[str, str, str]) -> At:
    return replace(at, daddr=where[0].strip("[]"), dport=int(where[2]), is_dnat=True, ended=_ACCEPTED)


def _matched(rules: Ruleset, words: Words, at: At, local: set[str]) -> Iterator[At]:
    """Rules that begin with an expression: a look-up or a comparison."""
    for key, rest in _keys(words, at, rules.family):
        match rest:
            case ["vmap", "{", *elements]:
                known = dict(pair.split(" : ") for pair in " ".join(elements).removesuffix(" }").split(", "))
                yield from _rule(rules, known[key].split(), at, local) if key in known else [at]
            case ["vmap", name]:
                verdict = rules.elements[name.removeprefix("@")].get(key)
                yield from _rule(rules, verdict.split(), at, local) if verdict else [at]
            case ["!=", wanted, *then]:
                yield from _rule(rules, then, at, local) if not _holds(rules, wanted, key) else [at]
            case ["{", *then]:
                end = then.index("}")
                holds = any(_within(key, each.rstrip(",")) for each in then[:end])
                yield from _rule(rules, then[end + 1 :], at, local) if holds else [at]
            case [wanted, *then]:
                yield from _rule(rules, then, at, local) if _holds(rules, wanted, key) else [at]
            case _:
                raise ValueError(f"unknown rule: {' '.join(words)}")


def _holds(rules: Ruleset, wanted: str, key: str) -> bool:
    if not wanted.startswith("@"):
        return _within(key, wanted)
    elements = rules.elements[wanted[1:]]
    if key in elements:
        return True
    front, _, address = key.rpartition(" . ")
    prefixes = (element.rpartition(" . ") for element in elements if "/" in element)
    return any(front == before and _within(address, network) for before, _, network in prefixes)


def _within(address: str, network: str) -> bool:
    return ip_address(address) in ip_network(network)


def _interface(at: At, quoted: str) -> bool:
    name = quoted.strip('"')
    return at.interface.startswith(name[:-1]) if name.endswith("*") else at.interface == name


def _keys(words: Words, at: At, ip: str) -> Iterator[tuple[str, Words]]:
    """The values of the expression that the words begin with, and the words behind it."""
    values: list[list[str]] = [[]]
    rest = words
    while True:
        match rest:
            case [family, "saddr" | "daddr" as side, *rest] if family == ip:
                found = [at.saddr if side == "saddr" else at.daddr]
            case ["meta", "l4proto", *rest]:
                found = [at.protocol]
            case ["@nh,96,96", *rest] if ip == "ip6":
                found = [str(int(ip_address(at.saddr)) & (1 << 96) - 1)]
            case ["(meta", "priority", "and", mask, *rest]:
                found = [str(int(at.priority) & int(mask.rstrip(")"), 16))]
            case ["meta", "priority", *rest]:
                found = [at.priority]
            case ["th" | "tcp" | "udp" | "sctp" as protocol, "dport", *rest]:
                found = [str(at.dport)] if protocol in {"th", at.protocol} else []
            case ["numgen", "random", "mod", count, *rest]:
                found = [str(number) for number in range(int(count))]
            case _:
                raise ValueError(f"unknown expression: {' '.join(rest)}")
        values = [[*before, each] for before in values for each in found]
        if rest[:1] != ["."]:
            break
        rest = rest[1:]
    return ((" . ".join(value), rest) for value in values)
