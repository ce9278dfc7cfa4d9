"""Objects of an nftables table as values, and their text in nft's language.

Text that is not kdns's own (names of Services, of interfaces) gets into a ruleset by `quoted` only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from kdns.net import Family
from kdns.proxy.plan.plan import printable

TABLE: Final = "kdns"
NFT_FAMILY: Final[Mapping[Family, str]] = {"IPv4": "ip", "IPv6": "ip6"}
NAME_BYTES: Final = 255
"""The kernel's limit for names of chains and sets (NFT_NAME_MAXLEN less the terminating zero)."""
COMMENT_BYTES: Final = 128
"""nft's limit for a comment."""
_ELEMENTS_A_LINE: Final = 1000

_IDENTIFIER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9/_.-]*")


def quoted(text: str) -> str:
    """A string of nft's language, which has no escapes: invalid characters become "?"."""
    return f'"{comment_text(text)}"'


def comment_text(text: str) -> str:
    """As the kernel keeps it for people who list the table."""
    return printable(text)[:COMMENT_BYTES]


def checked_name(name: str) -> str:
    if len(name) > NAME_BYTES or not _IDENTIFIER.fullmatch(name):
        raise ValueError(f"name of an nftables object: {name!r}")
    return name


class Part(NamedTuple):
    """One part of the key or data of a set or map: the expression that it is compared with, and its datatype.

    `expression` has {ip} for the family, {client} for what tells clients apart. `datatype` is nft's, "address" for that
    of the family.
    """

    expression: str
    datatype: str


_CLIENT: Final[Mapping[Family, str]] = {"IPv4": "ip saddr", "IPv6": "@nh,96,96"}
"""Of an IPv6 source all but the first 32 bits, which clients that differ in nothing else share.

nft up to 1.0.6 has room for 16 bytes of key in an update of a map, and either aborts or overwrites what is beyond.
"""
CLIENT: Final = Part("{client}", "address")
SOURCE: Final = Part("{ip} saddr", "address")
DESTINATION: Final = Part("{ip} daddr", "address")
PROTOCOL: Final = Part("meta l4proto", "inet_proto")
PORT: Final = Part("th dport", "inet_service")
PRIORITY: Final = Part("meta priority", "classid")
DRAW: Final = Part("numgen random mod 65536", "integer")
"""A random number; rules draw among as many as there are endpoints."""
VERDICT: Final = Part("verdict", "verdict")


def port_of(protocol: str) -> Part:
    return Part(f"{protocol} dport", "inet_service")


Parts: TypeAlias = tuple[Part, ...]


def expression(parts: Iterable[Part], family: Family) -> str:
    return " . ".join(part.expression for part in parts).format(ip=NFT_FAMILY[family], client=_CLIENT[family])


class Goto(NamedTuple):
    """Data of a verdict map: the packet continues in another chain."""

    chain: str


class Number(NamedTuple):
    """Data of a map: the number of a verdict. `comment` is for people who list the table."""

    number: int
    comment: str


class AddressPort(NamedTuple):
    """Data of a map: where a packet is sent."""

    address: str
    port: int


Data: TypeAlias = Goto | Number | AddressPort | int | None
"""The data of a map's element; None: an element of a set."""
ElementKey: TypeAlias = tuple[str | int, ...]
"""The parts of an element's key in the order of its set: addresses and protocols as text, numbers as numbers."""


def element_key(key: ElementKey) -> str:
    return " . ".join(map(str, key))


def element(key: ElementKey, data: Data) -> str:
    match data:
        case None:
            return element_key(key)
        case AddressPort(address, port):
            return f"{element_key(key)} : {address} . {port}"
        case Goto(chain):
            return f"{element_key(key)} : goto {chain}"
        case Number(number, comment):
            return f"{element_key(key)} comment {quoted(comment)} : {number}"
        case _:
            return f"{element_key(key)} : {data}"


@dataclass(frozen=True, slots=True)
class Set:
    """A set; with `data` a map. `has_counters`: its elements count packets.

    `dynamic_size`: rules add so many elements at most, each for a time of its own.
    """

    name: str
    key: Parts
    data: Parts = ()
    comment: str = ""
    has_counters: bool = False
    has_intervals: bool = False
    dynamic_size: int = 0

    def __post_init__(self) -> None:
        checked_name(self.name)

    @property
    def sort(self) -> str:
        return "map" if self.data else "set"

    def block(self, family: Family) -> str:
        types = " : ".join(expression(parts, family) for parts in (self.key, self.data) if parts)
        flags = ("flags interval",) if self.has_intervals else ()
        dynamic = (f"size {self.dynamic_size}", "flags dynamic,timeout") if self.dynamic_size else ()
        counters = ("counter",) if self.has_counters else ()
        comment = (f"comment {quoted(self.comment)}",) if self.comment else ()
        return _block(f"{self.sort} {self.name}", (f"typeof {types}", *flags, *dynamic, *counters, *comment))


class Hook(NamedTuple):
    """Where the kernel enters a base chain."""

    kind: str
    hook: str
    priority: int


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain and its rules, each as nft's statements; with `hook` a base chain."""

    name: str
    rules: tuple[str, ...] = ()
    hook: Hook | None = None

    def __post_init__(self) -> None:
        checked_name(self.name)

    @property
    def sort(self) -> str:
        return "chain"

    def block(self, family: Family) -> str:
        del family
        at = self.hook
        base = (f"type {at.kind} hook {at.hook} priority {at.priority}; policy accept;",) if at else ()
        return _block(f"chain {self.name}", (*base, *self.rules))


def _block(head: str, lines: Iterable[str]) -> str:
    return "\n".join((f"\t{head} {{", *(f"\t\t{line}" for line in lines), "\t}"))


def table_text(family: Family, objects: Iterable[Set | Chain]) -> str:
    body = "\n".join(table_object.block(family) for table_object in objects)
    return f"table {NFT_FAMILY[family]} {TABLE} {{\n{body}\n}}"


@dataclass(slots=True)
class Transaction:
    """Changes of the table, in this order: chains made or refilled, elements deleted, elements added.

    They are by name of the chain or set.
    """

    family: Family
    chains: dict[str, Chain] = field(default_factory=dict)
    delete: dict[str, list[ElementKey]] = field(default_factory=dict)
    add: dict[str, dict[ElementKey, Data]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.chains or self.delete or self.add)


def commands(change: Transaction) -> Iterator[str]:
    """Chains are created before they are filled, since they lead to each other."""
    table = f"{NFT_FAMILY[change.family]} {TABLE}"
    yield from (f"add chain {table} {name}" for name in change.chains)
    for name, chain in change.chains.items():
        yield f"flush chain {table} {name}"
        yield from (f"add rule {table} {name} {rule}" for rule in chain.rules)
    for name, keys in change.delete.items():
        for batch in _batches(keys):
            yield f"delete element {table} {name} {{ {', '.join(map(element_key, batch))} }}"
    for name, elements in change.add.items():
        for batch in _batches(list(elements)):
            yield f"add element {table} {name} {{ {', '.join(element(key, elements[key]) for key in batch)} }}"


def _batches(keys: list[ElementKey]) -> Iterator[list[ElementKey]]:
    return (keys[start : start + _ELEMENTS_A_LINE] for start in range(0, len(keys), _ELEMENTS_A_LINE))
