"""Proofs that something does not exist, for signed zones (RFC 4035 §3.1.3, RFC 5155 §7.2).

Each proof is a list of names with an NSEC or NSEC3 record; an unsigned zone proves nothing. NSEC3 wins where a zone
has both, as while its operator moves from one to the other.
"""

from __future__ import annotations

from collections.abc import Iterable

from kdns.dns.names import Labels
from kdns.dns.rrset import RRset
from kdns.dns.types import NSEC, NSEC3
from kdns.dns.zone.zone import Zone, ZoneNode

WILDCARD = b"*"


def no_type(zone: Zone, labels: Labels) -> Iterable[ZoneNode | None]:
    """The name exists without the type, or is an empty non-terminal."""
    if zone.nsec3:
        match = zone.nsec3.match(labels)
        return (match,) if match else _closest(zone, _encloser(zone, labels[1:]), labels)
    return (zone.nsec_match(labels) or zone.nsec_cover(labels),)


def no_name(zone: Zone, labels: Labels, encloser: Labels) -> Iterable[ZoneNode | None]:
    """Neither the name nor a wildcard exists; `encloser` is the closest name above it that does."""
    wildcard = (WILDCARD, *encloser)
    if zone.nsec3:
        return (*_closest(zone, encloser, labels), zone.nsec3.cover(wildcard))
    return zone.nsec_cover(labels), zone.nsec_cover(wildcard)


def no_closer_name(zone: Zone, labels: Labels, encloser: Labels) -> Iterable[ZoneNode | None]:
    """For a wildcard answer: no name is closer to the question's."""
    if zone.nsec3:
        return (zone.nsec3.cover(_next_closer(encloser, labels)),)
    return (zone.nsec_cover(labels),)


def no_type_at_wildcard(zone: Zone, labels: Labels, encloser: Labels) -> Iterable[ZoneNode | None]:
    """A wildcard matches the name and does not have the type."""
    wildcard = (WILDCARD, *encloser)
    if zone.nsec3:
        return (*_closest(zone, encloser, labels), zone.nsec3.match(wildcard))
    return zone.nsec_cover(labels), zone.nsec_match(wildcard)


def records(nodes: Iterable[ZoneNode | None]) -> tuple[RRset, ...]:
    """The NSEC or NSEC3 records of these names with their signatures, each once."""
    rrsets: dict[str, tuple[RRset, ...]] = {}
    for node in nodes:
        if node:
            pairs = [(node.rrsets.get(rtype), node.signatures.get(rtype)) for rtype in (NSEC3, NSEC)]
            rrsets[node.owner] = tuple(rrset for pair in pairs for rrset in pair if rrset)
    return tuple(rrset for owned in rrsets.values() for rrset in owned)


def _closest(zone: Zone, encloser: Labels, labels: Labels) -> tuple[ZoneNode | None, ...]:
    assert zone.nsec3  # noqa: S101 - callers have looked
    return zone.nsec3.match(encloser), zone.nsec3.cover(_next_closer(encloser, labels))


def _next_closer(encloser: Labels, labels: Labels) -> Labels:
    return labels[-len(encloser) - 1 :]


def _encloser(zone: Zone, labels: Labels) -> Labels:
    """The closest name with NSEC3; an unsigned delegation has none if the zone opts out (§7.2.4)."""
    assert zone.nsec3  # noqa: S101 - callers have looked
    while len(labels) > len(zone.labels) and not zone.nsec3.match(labels):
        labels = labels[1:]
    return labels
