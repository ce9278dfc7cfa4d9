"""Sets in the kernel: what is missing is added first, what is too much is deleted last. All of it blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kdns.errors import ApplyError
from kdns.netlink.io.ipset import IpSets
from kdns.netlink.ipset import Header, SetType
from kdns.proxy.ipvs.sets import BITMAP_PORT, MAX_NAME, IpSet

TRIAL: Final = "KDNS-CHECK"
"""A set that is made to see whether rules can look into it."""
_REPLACING: Final = "-NEW"


def set_type(one: IpSet, entries: int = 0) -> SetType:
    """Room for twice the entries where that is more than usual, so the set may grow.

    `entries`: how many there are for a time, where these are more.
    """
    if one.type == BITMAP_PORT:
        return SetType(one.type, "IPv4", 0)
    room = one.max_elements
    while max(len(one.entries), entries) > room * 7 // 8:
        room *= 2
    return SetType(one.type, one.family, room)


def add_missing(kernel: IpSets, sets: Mapping[str, IpSet]) -> dict[str, set[str]]:
    """Makes sure that the sets have their entries; returns those that they have beside them, by set."""
    headers = kernel.headers()
    surplus: dict[str, set[str]] = {}
    for name, one in sets.items():
        wanted, kind = one.entries.keys(), set_type(one)
        header = headers.get(name)
        existing: set[str] = set()
        if header is None:
            kernel.create(name, kind)
        elif (header.type.type_name, header.type.family) != (kind.type_name, kind.family) and (
            kind.type_name != BITMAP_PORT or header.type.type_name != BITMAP_PORT
        ):
            _recreate(kernel, name, kind)
        elif not header.is_plain:
            _replace(kernel, name, kind, sorted(wanted))
            continue
        else:
            existing = kernel.entries(name) if header.entries else set()
            kind = set_type(one, len(wanted | existing))
            if header.type.max_entries < kind.max_entries:
                _replace(kernel, name, kind, sorted(existing))
        if missing := sorted(wanted - existing):
            kernel.add(name, missing)
        if existing - wanted:
            surplus[name] = existing - wanted
    return surplus


def make_room(kernel: IpSets, one: IpSet) -> None:
    """For entries that are still to be added."""
    kind = set_type(one)
    if kind.max_entries > one.max_elements:
        header = kernel.headers().get(one.name)
        if header and header.type.max_entries < kind.max_entries:
            _replace(kernel, one.name, kind, sorted(kernel.entries(one.name)))


def delete(kernel: IpSets, entries: Mapping[str, Iterable[str]]) -> None:
    """Deletes entries of sets; missing sets and entries are ignored."""
    for name, some in entries.items():
        try:
            kernel.delete(name, some)
        except FileNotFoundError:
            continue


def _recreate(kernel: IpSets, name: str, kind: SetType) -> None:
    if not kernel.destroy(name):
        advice = "destroy it, or remove the rules that use it"
        raise ApplyError(("netlink",), f"set {name}: expected type {kind.type_name}, got another one; {advice}")
    kernel.create(name, kind)


def replacing(name: str) -> str:
    """The name of a set until it has taken the place of another."""
    return name[: MAX_NAME - len(_REPLACING)] + _REPLACING


def _replace(kernel: IpSets, name: str, kind: SetType, entries: Sequence[str]) -> None:
    """Puts a new set in the place of one that rules may use: a larger one, or one without another program's options."""
    new = replacing(name)
    kernel.destroy(new)
    kernel.create(new, kind)
    kernel.add(new, entries)
    kernel.swap(new, name)
    kernel.destroy(new)


def changed_sets(headers: Mapping[str, Header], expected: Mapping[str, int]) -> str:
    """Which set does not have as many entries as expected, in words, or ""."""
    for name, entries in expected.items():
        header = headers.get(name)
        if header is None:
            return f"set {name} is gone"
        if header.entries != entries:
            return f"set {name} has {header.entries} entries, not {entries}"
    return ""
