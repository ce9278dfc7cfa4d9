"""Tables of iptables as the kernel has them: chains, the number of their rules, and jumps from built-in chains."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from kdns.net import Family

Backend: TypeAlias = Literal["nft", "legacy"]
"""The kernel's side of iptables: the program iptables-nft or iptables-legacy."""

HOOKS: Final = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")
_ENTRY_BYTES: Final = {"IPv4": 112, "IPv6": 168}
"""The size of struct ipt_entry and ip6t_entry."""
_OFFSETS_AT: Final = {"IPv4": 88, "IPv6": 140}
"""Where an entry has the offsets of its target and of the next entry."""
_OFFSETS: Final = struct.Struct("=HH")
_VERDICT: Final = struct.Struct("=i")
_VERDICT_AT: Final = 32
_HEADER: Final = re.compile(rb"@\0ERROR\0{25}([^\0]{1,29})\0")
"""The target of an entry that begins a chain, with the chain's name. The table ends with one that is called ERROR."""
_HEADER_BYTES: Final = 64
_VERDICT_CHAIN: Final = re.compile(rb"\x02\0([!-~]{1,127})\0")
"""An attribute of type 2 that holds a name: in a verdict (NFTA_VERDICT_CHAIN) that of the chain."""


@dataclass(slots=True)
class TableContent:
    """One table: the number of rules by chain, and jumps of built-in chains as (chain, target)."""

    rules: Counter[str] = field(default_factory=Counter)
    jumps: set[tuple[str, str]] = field(default_factory=set)


def content_of_entries(family: Family, entries: memoryview, built_in: list[tuple[int, int, str]]) -> TableContent:
    """Built-in chains with the offsets of their first entry and of their policy."""
    size, offsets_at = _ENTRY_BYTES[family], _OFFSETS_AT[family]
    content = TableContent(Counter({name: 0 for *_, name in built_in}))
    heads = {header.start() + _HEADER_BYTES: header[1].decode(errors="replace") for header in _HEADER.finditer(entries)}
    starts, names = list(heads), list(heads.values())
    unpack = _OFFSETS.unpack_from
    for begin, end, name in built_in:
        at = begin
        while at < end:
            target, length = unpack(entries, at + offsets_at)
            if entries[at + target + 2] == 0:  # a standard target has no name
                (verdict,) = _VERDICT.unpack_from(entries, at + target + _VERDICT_AT)
                if verdict in heads:
                    content.jumps.add((name, heads[verdict]))
            content.rules[name] += 1
            at += length
    for number, (start, name) in enumerate(zip(starts[:-1], names[:-1], strict=True)):
        end, at, count = (
            starts[number + 1] - _HEADER_BYTES - size,
            start,
            -1,
        )  # a chain's last entry is the return from it
        while at < end:
            at += unpack(entries, at + offsets_at)[1]
            count += 1
        content.rules[name] = count
    return content


def chains_in(rule: bytes) -> Iterator[str]:
    """The chains that a rule's message leads to; other texts of the rule may be among them."""
    return (match[1].decode(errors="replace") for match in _VERDICT_CHAIN.finditer(rule))
