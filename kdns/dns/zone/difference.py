"""The changes between two versions of a zone, and the records of a transfer (RFC 5936 §2.2, RFC 1995 §4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from kdns.dns.rdata import type_covered
from kdns.dns.rrset import Rdata, RRset
from kdns.dns.zone.zone import Zone

HALF: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class Difference:
    """The step from one serial to a later one."""

    old_soa: RRset
    removed: tuple[RRset, ...]
    new_soa: RRset
    added: tuple[RRset, ...]
    old_serial: int

    @property
    def size(self) -> int:
        return 2 + sum(len(rrset.rdata) for rrset in (*self.removed, *self.added))

    def records(self) -> Iterator[RRset]:
        yield self.old_soa
        yield from self.removed
        yield self.new_soa
        yield from self.added


def is_newer(serial: int, than: int) -> bool:
    return 0 < (serial - than) % (1 << 32) < HALF


def difference(old: Zone, new: Zone) -> Difference:
    before, after = _by_key(old), _by_key(new)
    removed: list[RRset] = []
    added: list[RRset] = []
    for key in before.keys() | after.keys():
        was, now = before.get(key), after.get(key)
        if was == now:
            continue
        if was and now and was.ttl == now.ttl:
            removed += _without(was, now.rdata)
            added += _without(now, was.rdata)
        else:
            removed += [was] if was else []
            added += [now] if now else []
    return Difference(old.soa, tuple(removed), new.soa, tuple(added), old.serial)


def _by_key(zone: Zone) -> dict[tuple[str, int, int], RRset]:
    return {(rrset.owner, rrset.rtype, type_covered(rrset.rtype, rrset.rdata[0])): rrset for rrset in zone.records()}


def _without(rrset: RRset, others: tuple[Rdata, ...]) -> list[RRset]:
    remaining = tuple(set(rrset.rdata) - set(others))
    return [replace(rrset, rdata=remaining)] if remaining else []
