"""Sets in the kernel: what is missing is added first, what is too much is deleted last. All of it blocks."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence

from kdns.aio.netlink.ipset import Header, IpSets, SetType, error_text
from kdns.errors import ApplyError
from kdns.proxy.ipvs.sets import BITMAP_PORT, IpSet

Refused = dict[tuple[str, str], str]
"""Entries that a set cannot have, by its name and their text, with the reason."""


def set_type(one: IpSet) -> SetType:
    """The type of a set. It has room for twice its entries where that is more than usual, so it may grow."""
    if one.type == BITMAP_PORT:
        return SetType(one.type, "IPv4", 0)
    room = one.max_elements
    while len(one.entries) > room * 7 // 8:
        room *= 2
    return SetType(one.type, one.family, room)


def add_missing(kernel: IpSets, sets: Mapping[str, IpSet]) -> tuple[dict[str, set[str]], Refused]:
    """Make sure that the sets have their entries; those that they have beside them, by set, and what is refused."""
    headers = kernel.headers()
    surplus: dict[str, set[str]] = {}
    refused: Refused = {}
    for name, one in sets.items():
        wanted, kind = set(map(str, one.entries)), set_type(one)
        header = headers.get(name)
        if header is None:
            kernel.create(name, kind)
        elif (header.type.type_name, header.type.family) != (kind.type_name, kind.family) and (
            kind.type_name != BITMAP_PORT or header.type.type_name != BITMAP_PORT
        ):
            _make_anew(kernel, name, kind)
            header = None
        elif header.type.max_entries < kind.max_entries:
            _grow(kernel, name, kind)
        there = kernel.entries(name) if header and header.entries else set()
        refused |= add(kernel, name, sorted(wanted - there))
        if there - wanted:
            surplus[name] = there - wanted
    return surplus, refused


def add(kernel: IpSets, name: str, entries: Sequence[str]) -> Refused:
    """Add entries; those that the set cannot have, which are found by bisection, with the reason."""
    if not entries:
        return {}
    try:
        kernel.add(name, entries)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in {errno.EPERM, errno.ENOENT}:
            raise
        if len(entries) == 1:
            return {(name, entries[0]): error_text(error.errno or 0) if isinstance(error, OSError) else str(error)}
        middle = len(entries) // 2
        return add(kernel, name, entries[:middle]) | add(kernel, name, entries[middle:])
    return {}


def delete(kernel: IpSets, entries: Mapping[str, Iterable[str]]) -> None:
    """Delete entries of sets; who deleted them, or the set, before does not matter."""
    for name, some in entries.items():
        try:
            kernel.delete(name, some)
        except FileNotFoundError:
            continue


def _make_anew(kernel: IpSets, name: str, kind: SetType) -> None:
    if not kernel.destroy(name):
        wanted = "that the set is destroyed, or the rules that use it are removed"
        raise ApplyError(("netlink",), f"set {name} is there and is no {kind.type_name}; wanted: {wanted}")
    kernel.create(name, kind)


def _grow(kernel: IpSets, name: str, kind: SetType) -> None:
    """Put a larger set in the place of one that rules use."""
    larger = f"{name[:27]}-NEW"
    kernel.destroy(larger)
    kernel.create(larger, kind)
    kernel.add(larger, kernel.entries(name))
    kernel.swap(larger, name)
    kernel.destroy(larger)


def changed_sets(headers: Mapping[str, Header], expected: Mapping[str, int]) -> str:
    """Which set does not have as many entries as expected, in words; "" for none."""
    for name, entries in expected.items():
        header = headers.get(name)
        if header is None:
            return f"set {name} is gone"
        if header.entries != entries:
            return f"set {name} has {header.entries} entries, not {entries}"
    return ""
