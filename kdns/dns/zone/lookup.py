"""Look-ups in a zone (RFC 1034 §4.3.2): wildcards (RFC 4592), DNAME (RFC 6672), delegations, proofs (RFC 4035 §3.1).

A positive answer has the NS records of the apex in its authority section, as CoreDNS sends them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from kdns.dns.names import MAX_NAME_BYTES, Labels, is_below, labels_of, lowered, read_name, text_of
from kdns.dns.rrset import Mx, Rdata, RRset, Srv
from kdns.dns.types import (
    AAAA,
    ANY,
    CNAME,
    DNAME,
    DS,
    HTTPS,
    MX,
    NOERROR,
    NS,
    NSEC,
    NXDOMAIN,
    RRSIG,
    SERVFAIL,
    SRV,
    SVCB,
    YXDOMAIN,
    A,
)
from kdns.dns.zone import denial
from kdns.dns.zone.zone import Zone, ZoneNode

MAX_CHAIN: Final = 11
"""The most CNAME and DNAME records of one answer that are followed within the zone."""
_ABOUT_THE_NAME_ITSELF: Final = frozenset((CNAME, ANY, RRSIG, NSEC))
"""Types that are answered at a name with a CNAME, instead of at its target."""
_WITH_TARGETS: Final = frozenset((NS, MX, SRV, SVCB, HTTPS))


class Lookup(NamedTuple):
    """The result of a look-up in a zone.

    `is_authoritative` is false for a referral. `target` is where the last CNAME leads, if that is outside of the zone.
    `is_bare`: the question name does not exist, or is an empty non-terminal. `wildcard` is the wildcard that matches
    the question name, or the owner of the DNAME above it; "" for neither.
    """

    rcode: int = NOERROR
    answer: tuple[RRset, ...] = ()
    authority: tuple[RRset, ...] = ()
    additional: tuple[RRset, ...] = ()
    is_authoritative: bool = True
    target: Labels | None = None
    is_bare: bool = False
    wildcard: str = ""


class TreePosition(NamedTuple):
    """Where the walk down the tree ended.

    `node` is the name itself, the cut or DNAME above it, or the matching wildcard; None if there is neither.
    `at` is the name of that node; for a wildcard, and without a node, the closest encloser.
    """

    node: ZoneNode | None
    at: Labels
    is_cut: bool = False
    is_dname: bool = False
    is_wildcard: bool = False


def position_of(zone: Zone, labels: Labels, qtype: int) -> TreePosition:
    """Walks from the apex towards the name (RFC 1034 §4.3.2 step 3); `labels` are folded and below the apex."""
    encloser = zone.labels
    for depth in range(len(zone.labels), len(labels) + 1):
        at = labels[len(labels) - depth :]
        node = zone.nodes.get(at)
        if node is None:
            wildcard = zone.nodes.get((denial.WILDCARD, *encloser))
            return TreePosition(wildcard, encloser, is_wildcard=wildcard is not None)
        is_whole = depth == len(labels)
        if depth > len(zone.labels) and NS in node.rrsets and not (is_whole and qtype == DS):
            return TreePosition(node, at, is_cut=True)
        if DNAME in node.rrsets and not is_whole:
            return TreePosition(node, at, is_dname=True)
        encloser = at
    return TreePosition(zone.nodes[labels], labels)


def substituted(labels: Labels, owner: Labels, target: Labels) -> Labels | None:
    """DNAME substitution (RFC 6672 §2.2); None for a name that is not below `owner`, or gets too long."""
    if len(labels) <= len(owner) or not is_below(labels, owner):
        return None
    moved = labels[: len(labels) - len(owner)] + target
    return moved if sum(map(len, moved)) + len(moved) < MAX_NAME_BYTES else None


def lookup(zone: Zone, labels: Labels, qtype: int, *, do: bool = False) -> Lookup:
    """`labels` are folded, and at or below the apex."""
    answer = _Answer(zone, qtype, do=do)
    result = answer.about(labels)
    return result._replace(wildcard=answer.wildcard) if answer.wildcard else result


class _Answer:
    """An answer under construction, with the names that were followed so far."""

    def __init__(self, zone: Zone, qtype: int, *, do: bool) -> None:
        self._zone = zone
        self._qtype = qtype
        self._do = do
        self._answer: list[RRset] = []
        self._proofs: list[ZoneNode | None] = []
        self._followed: set[Labels] = set()
        self.wildcard = ""

    def about(self, labels: Labels) -> Lookup:
        """Follows CNAME and DNAME within the zone, at most MAX_CHAIN, and answers for the name at their end."""
        while True:
            self._followed.add(labels)
            position = position_of(self._zone, labels, self._qtype)
            node = position.node
            if node and (position.is_wildcard or position.is_dname) and len(self._followed) == 1:
                self.wildcard = node.owner
            if node is None:
                return self._name_error(labels, position.at)
            if position.is_cut:
                return self._referral(node, position.at)
            if position.is_dname:
                target = self._moved(node, position.at, labels)
                if target is None:
                    return Lookup(YXDOMAIN, tuple(self._answer), self._apex_ns())
                if target == labels:  # a resolver would follow it forever
                    return Lookup(SERVFAIL)
            elif CNAME in node.rrsets and self._qtype not in _ABOUT_THE_NAME_ITSELF:
                self._answer += self._signed(node, node.rrsets[CNAME], self._owner(position, labels))
                target = lowered(labels_of(str(node.rrsets[CNAME].rdata[0])))
                self._prove_wildcard(position, labels)
            else:
                return self._at(node, position, labels)
            if self._qtype == CNAME:
                return self._positive()
            if target in self._followed or len(self._followed) > MAX_CHAIN:
                return self._positive()
            if not is_below(target, self._zone.labels):
                return self._positive()._replace(target=target)
            labels = target

    def _at(self, node: ZoneNode, position: TreePosition, labels: Labels) -> Lookup:
        owner = self._owner(position, labels)
        if self._qtype == ANY:
            rrsets = list(node.rrsets.values())
        else:
            rrsets = [rrset for rtype, rrset in node.rrsets.items() if rtype == self._qtype]
        if self._qtype == RRSIG:
            signatures = [replace(rrset, owner=owner) for rrset in node.signatures.values()]
            if signatures:
                self._answer += signatures
                return self._positive()
        if not rrsets:
            proof = denial.no_type_at_wildcard if position.is_wildcard else None
            self._proofs += proof(self._zone, labels, position.at) if proof else denial.no_type(self._zone, labels)
            return self._negative(NOERROR, is_bare=not (node.rrsets or self._answer))
        for rrset in rrsets:
            self._answer += self._signed(node, rrset, owner)
        self._prove_wildcard(position, labels)
        return self._positive(self._targets(rrsets))

    def _owner(self, position: TreePosition, labels: Labels) -> str:
        return text_of(labels) if position.is_wildcard or position.node is None else position.node.owner

    def _prove_wildcard(self, position: TreePosition, labels: Labels) -> None:
        if position.is_wildcard:
            self._proofs += denial.no_closer_name(self._zone, labels, position.at)

    def _signed(self, node: ZoneNode, rrset: RRset, owner: str = "") -> Iterator[RRset]:
        """The RRset, with its signatures if DO is set; `owner` is that of a wildcard's records."""
        owner = owner or rrset.owner
        yield rrset if rrset.owner == owner else replace(rrset, owner=owner)
        signatures = node.signatures.get(rrset.rtype) if self._do else None
        if signatures:
            is_same = (signatures.owner, signatures.ttl) == (owner, rrset.ttl)
            yield signatures if is_same else replace(signatures, owner=owner, ttl=rrset.ttl)

    def _moved(self, node: ZoneNode, at: Labels, labels: Labels) -> Labels | None:
        """Adds the DNAME, once, and its synthesized CNAME; None for a name that gets too long."""
        dname = node.rrsets[DNAME]
        self._answer += [rrset for rrset in self._signed(node, dname, node.owner) if rrset not in self._answer]
        target = substituted(labels, at, labels_of(str(dname.rdata[0])))
        if target is not None:
            self._answer.append(RRset(text_of(labels), CNAME, dname.ttl, (text_of(target),)))
            target = lowered(target)
        return target

    def _positive(self, additional: tuple[RRset, ...] = ()) -> Lookup:
        answer = tuple(self._answer)
        is_apex_ns = any(rrset.rtype == NS and rrset.owner == self._zone.name for rrset in answer)
        authority = (() if is_apex_ns else self._apex_ns()) + self._proof()
        return Lookup(NOERROR, answer, authority, additional)

    def _apex_ns(self) -> tuple[RRset, ...]:
        ns = self._zone.apex.rrsets.get(NS)
        return tuple(self._signed(self._zone.apex, ns)) if ns else ()

    def _proof(self) -> tuple[RRset, ...]:
        return denial.records(self._proofs) if self._do else ()

    def _negative(self, rcode: int, *, is_bare: bool) -> Lookup:
        soa = tuple(self._signed(self._zone.apex, self._zone.negative_soa))
        return Lookup(rcode, tuple(self._answer), soa + self._proof(), is_bare=is_bare)

    def _name_error(self, labels: Labels, encloser: Labels) -> Lookup:
        """Behind a CNAME the end of the chain does not exist (RFC 6604 §3)."""
        if self._do:
            self._proofs += denial.no_name(self._zone, labels, encloser)
        return self._negative(NXDOMAIN, is_bare=not self._answer)

    def _referral(self, node: ZoneNode, at: Labels) -> Lookup:
        """NS records of the child, DS or the proof of its absence, and glue within the zone."""
        ns = node.rrsets[NS]
        authority: tuple[RRset, ...] = (ns,)
        if self._do and DS in node.rrsets:
            authority += tuple(self._signed(node, node.rrsets[DS]))
        elif self._do:
            self._proofs += denial.no_type(self._zone, at)
        glue = self._targets([ns])
        answer = tuple(self._answer)
        return Lookup(NOERROR, answer, authority + self._proof(), glue, is_authoritative=bool(answer))

    def _targets(self, rrsets: Iterable[RRset]) -> tuple[RRset, ...]:
        names = dict.fromkeys(
            target
            for rrset in rrsets
            if rrset.rtype in _WITH_TARGETS
            for rdata in rrset.rdata
            if (target := target_of(rdata)) is not None and is_below(target, self._zone.labels)
        )
        return tuple(rrset for target in names for rrset in self._addresses(target))

    def _addresses(self, target: Labels) -> Iterator[RRset]:
        node = self._zone.nodes.get(target)
        owner = node.owner if node else text_of(target)
        if node is None:
            position = position_of(self._zone, target, A)
            node = position.node if position.is_wildcard else None
        for rtype in (A, AAAA) if node else ():
            if node and (rrset := node.rrsets.get(rtype)):
                yield from self._signed(node, rrset, owner)


def target_of(rdata: Rdata) -> Labels | None:
    """The folded target of an NS, MX, SRV, SVCB or HTTPS record; None if it has none."""
    match rdata:
        case str():
            return lowered(labels_of(rdata))
        case Mx():
            return lowered(labels_of(rdata.exchange))
        case Srv():
            return lowered(labels_of(rdata.target))
        case bytes():
            try:
                return read_name(rdata.lower(), 2)[0]
            except ValueError:
                return None
    return None
