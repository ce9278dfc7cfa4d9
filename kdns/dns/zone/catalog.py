"""Catalog zones (RFC 9432): zones whose records name other zones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from kdns.dns.names import Labels, folded, is_below, labels_of, text_of
from kdns.dns.rdata import character_strings
from kdns.dns.rrset import RRset
from kdns.dns.types import IN, NS, PTR, SOA, TXT

VERSION: Final = b"2"
"""The version of the schema (RFC 9432 §4.2.1)."""
MAX_MEMBERS: Final = 10_000


class CatalogError(ValueError):
    """An invalid catalog; none of its records is used (RFC 9432 §5.1)."""


@dataclass(slots=True)
class Member:
    """A zone of a catalog: its unique label, its groups, and the catalog that may take it over (§4.3)."""

    id: str
    zone: str = ""
    groups: list[str] = field(default_factory=list)
    coo: str = ""


def parse_catalog(name: str, rrsets: Iterable[RRset]) -> dict[str, Member]:
    origin = labels_of(folded(name))
    members: dict[str, Member] = {}
    apex: set[int] = set()
    versions: list[bytes] = []
    for rrset in rrsets:
        if rrset.rclass != IN:
            raise CatalogError(f"{rrset.owner}: expected a record of class IN")
        labels = labels_of(folded(rrset.owner))
        if not is_below(labels, origin):
            continue
        below = labels[: len(labels) - len(origin)]
        if not below:
            apex.add(rrset.rtype)
        elif below == (b"version",) and rrset.rtype == TXT:
            versions += [rdata for rdata in rrset.rdata if isinstance(rdata, bytes)]
        elif below[-1:] == (b"zones",):
            _note(members, below[:-1], rrset)
    for rtype, mnemonic in ((SOA, "SOA"), (NS, "NS")):
        if rtype not in apex:
            raise CatalogError(f"{name} has no {mnemonic} record at its apex")
    if len(versions) != 1:
        raise CatalogError(f"{name}: expected exactly one version record, got {len(versions)}")
    if character_strings(versions[0]) != (VERSION,):
        raise CatalogError(f"{name}: unsupported version; expected version {VERSION.decode()}")
    return _by_zone(members)


def _note(members: dict[str, Member], below: Labels, rrset: RRset) -> None:
    """Applies a record at or below a member's node; other records are ignored (§4.4)."""
    if not below:
        return
    label = text_of(below[-1:]).removesuffix(".")
    if len(members) >= MAX_MEMBERS and label not in members:
        raise CatalogError(f"expected at most {MAX_MEMBERS:,} members")
    member = members.setdefault(label, Member(label))
    match below[:-1], rrset.rtype:
        case (), rtype if rtype == PTR:
            if member.zone or len(rrset.rdata) > 1:
                raise CatalogError(f"{rrset.owner}: expected exactly one PTR record, got {len(rrset.rdata)}")
            member.zone = folded(str(rrset.rdata[0]))
        case (b"group",), rtype if rtype == TXT:
            texts = (character_strings(rdata) for rdata in rrset.rdata if isinstance(rdata, bytes))
            member.groups += [b"".join(strings).decode("latin-1") for strings in texts]
        case (b"coo",), rtype if rtype == PTR:
            if member.coo or len(rrset.rdata) > 1:
                raise CatalogError(f"{rrset.owner}: more than one coo record")
            member.coo = folded(str(rrset.rdata[0]))


def _by_zone(members: dict[str, Member]) -> dict[str, Member]:
    by_zone: dict[str, Member] = {}
    for member in sorted(members.values(), key=lambda member: member.id):
        if member.zone in by_zone:
            raise CatalogError(f"{member.zone} is listed by both {by_zone[member.zone].id} and {member.id}")
        if member.zone:
            by_zone[member.zone] = member
    return by_zone
