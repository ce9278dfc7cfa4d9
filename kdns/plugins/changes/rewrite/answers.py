"""Changes of answers: names, TTLs, response codes and options.

Differs: renamed answers have no AD: they are not the validated data (RFC 4035 §3.2.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from kdns.answers.chain import Reply, Request, ServeResult, joined, then
from kdns.answers.decode import from_wire
from kdns.answers.response import NEVER, PRIVATE, Response, counted_down
from kdns.dns.names import Labels, encode_name, is_below, labels_of, lowered, text_of
from kdns.dns.query import AD, TC
from kdns.dns.rdata import LAYOUTS, renamed
from kdns.dns.rrset import Rdata, RRset, Soa
from kdns.dns.types import CNAME, NOERROR, NSEC, NXDOMAIN, RRSIG
from kdns.plugins.changes.rewrite.patterns import NamePattern
from kdns.values import evolve

Rename: TypeAlias = Callable[[Labels], Labels]

_SIGNED = frozenset((RRSIG, NSEC))
"""Types whose names are signed: another name would invalidate the signature."""


Change: TypeAlias = Callable[[Request, Response], ServeResult]
"""Changes an answer; the request is the client's."""


def in_records(response: Response, labels: Labels) -> Response:
    """In records, for a question name of `labels`; if that is not below the shared SOA's zone, the SOA is a record."""
    response = from_wire(response)
    if response.soa is not None and not is_below(labels, labels_of(response.soa.rrset.owner)):
        response = _with_fixed_soa(response)
    if response.zone and not is_below(labels, labels_of(response.zone)):
        response = evolve(response, zone="")
    return response


def _with_fixed_soa(response: Response) -> Response:
    """Turns the shared SOA into a record with its current serial, valid for this query only."""
    if response.soa is None:
        return response
    return evolve(
        response, soa=None, authority=(response.soa.rrset, *response.authority), reuse=NEVER.and_then(response.reuse)
    )


def _mapped(response: Response, changed: Callable[[RRset], RRset]) -> Response:
    if response.soa is not None and changed(response.soa.rrset) != response.soa.rrset:
        response = _with_fixed_soa(response)
    sections = (response.answer, response.authority, response.additional)
    answer, authority, additional = (tuple(map(changed, rrsets)) for rrsets in sections)
    return evolve(response, answer=answer, authority=authority, additional=additional)


def by_pattern(pattern: NamePattern) -> Rename:

    def changed(labels: Labels) -> Labels:
        name = pattern.replaced(text_of(lowered(labels)))
        return labels if name is None else labels_of(name)

    return changed


def by_suffix(owner: Labels, to: Labels) -> Rename:
    """Renames names at and below `owner`; for the root, only the root itself."""
    return partial(_moved, owner, to)


def _moved(owner: Labels, to: Labels, labels: Labels) -> Labels:
    if not is_below(lowered(labels), owner) or (labels and not owner):
        return labels
    return (*labels[: len(labels) - len(owner)], *to)


@dataclass(frozen=True, slots=True)
class RenameRecords:
    """Changes owners, names in rdata, or both. A name that would become too long stays."""

    rename: Rename
    owners: bool = True
    values: bool = True

    def __call__(self, _request: Request, response: Response, /) -> Response:
        renamed = _mapped(response, self._changed)
        return response if renamed == response else evolve(renamed, flags=response.flags & ~AD, zone="")

    def _changed(self, rrset: RRset) -> RRset:
        owner, rdata = rrset.owner, rrset.rdata
        if self.owners:
            owner = self._name(owner)
        if self.values and rrset.rtype in LAYOUTS and rrset.rtype not in _SIGNED:
            rdata = tuple(self._rdata(rrset.rtype, value) for value in rdata)
        return rrset if owner == rrset.owner and rdata == rrset.rdata else replace(rrset, owner=owner, rdata=rdata)

    def _name(self, name: str) -> str:
        try:
            labels = self.rename(labels_of(name))
            encode_name(labels)
        except ValueError:
            return name
        return text_of(labels)

    def _rdata(self, rtype: int, rdata: Rdata) -> Rdata:
        if isinstance(rdata, Soa):
            return replace(rdata, mname=self._name(rdata.mname))  # RNAME is a mailbox, not a host
        try:
            return renamed(rtype, rdata, self.rename)
        except ValueError:
            return rdata


@dataclass(frozen=True, slots=True)
class LimitTtls:
    """Limits the TTLs of all records."""

    least_s: int
    most_s: int

    def __call__(self, request: Request, response: Response, /) -> Response:
        return _mapped(counted_down(response, request.received_s), self._changed)

    def _changed(self, rrset: RRset) -> RRset:
        ttl = min(max(rrset.ttl, self.least_s), self.most_s)
        return rrset if ttl == rrset.ttl else replace(rrset, ttl=ttl)


@dataclass(frozen=True, slots=True)
class ReplaceRcode:
    """Replaces one response code by another."""

    rcode: int
    to: int

    def __call__(self, _request: Request, response: Response, /) -> Response:
        return evolve(response, rcode=self.to) if response.rcode == self.rcode else response


@dataclass(frozen=True, slots=True)
class RestoreOption:
    """Restores the client's data in options with `code`, or removes the options if the client sent none."""

    code: int

    def __call__(self, request: Request, response: Response, /) -> Response:
        if not any(code == self.code for code, _ in response.options):
            return response
        edns = request.query.edns
        own = tuple(option for option in edns.options if option[0] == self.code) if edns else ()
        options: list[tuple[int, bytes]] = []
        for option in response.options:
            if option[0] != self.code:
                options.append(option)
            elif own:
                options += own
                own = ()
        return evolve(response, options=tuple(options))


@dataclass(frozen=True, slots=True)
class RetargetCname:
    """Changes the target of the first CNAME that matches; `resolve` answers for the new target.

    Its records, or the negative answer, replace all later records; if `resolve` fails, nothing changes.
    Differs: the response code is that of the new target (RFC 6604 §3); CoreDNS keeps the old one.
    """

    pattern: NamePattern
    resolve: Callable[[Request], ServeResult]

    def __call__(self, request: Request, response: Response, /) -> ServeResult:
        for index, rrset in enumerate(response.answer):
            if rrset.rtype == CNAME:
                target = self.pattern.replaced(text_of(lowered(labels_of(str(rrset.rdata[0])))))
                if target is not None:
                    return self._retargeted(request, response, index, target)
        return response

    def _retargeted(self, request: Request, response: Response, index: int, target: str) -> ServeResult:
        try:
            labels = labels_of(target)
            retargeted = request.about(labels)
        except ValueError:
            return response
        response = counted_down(response, request.received_s)
        cname = replace(response.answer[index], rdata=(text_of(labels),))
        start = (*response.answer[:index], cname)
        if request.query.qtype == CNAME:
            return evolve(response, answer=start, flags=response.flags & ~AD)
        return then(self.resolve(retargeted), partial(_joined, response, start, request.received_s))


def _joined(response: Response, start: tuple[RRset, ...], now_s: float, reply: Reply) -> Reply:
    if reply is None:
        return evolve(response, reuse=PRIVATE)
    reply = counted_down(from_wire(reply), now_s)
    if reply.rcode not in {NOERROR, NXDOMAIN}:
        reuse = response.reuse.and_then(reply.reuse)
        return evolve(response, reuse=reuse, tallies=(*response.tallies, *reply.tallies))
    cnames = evolve(response, answer=start, flags=response.flags & ~(AD | TC), soa=None, zone="")
    return joined(cnames, reply, TC, now_s)
