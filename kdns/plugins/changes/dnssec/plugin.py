"""dnssec [ZONES…] { key file KEY…; cache_capacity N }: signs answers on the fly.

A missing name or type is proved by an NSEC record made for the question, which covers that name and no other ("black
lies"): NXDOMAIN becomes NOERROR, and nobody can enumerate the zone.
Differs: the original TTL in a signature is the RRset's (RFC 4034 §3.1.4); CoreDNS writes 3600.
Differs: the NSEC record of a delegation has the types NS, RRSIG and NSEC. CoreDNS adds missing types, and NS for every
name that is queried for DS, so that anybody can pass the name off as an unsigned zone.
Differs: the NSEC record of other names has all types in use. CoreDNS's lacks PTR, MX, NAPTR, SVCB, HTTPS and CAA, which
a resolver that reuses NSEC records (RFC 8198) then takes for absent.
Differs: signed records are not signed again. CNAMEs that lead to a missing name are signed, and the NSEC record is that
of the missing name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from cachetools import LRUCache

from kdns.answers.chain import Plugin, Reply, Request, Sees, Serve, ServeResult, awaited, then
from kdns.answers.decode import from_wire
from kdns.answers.outcome import soa_owner
from kdns.answers.response import NEVER, Response, Reuse
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line
from kdns.dns.names import MAX_LABEL_BYTES, Labels, ZoneSet, folded, is_below, labels_of, lowered, text_of
from kdns.dns.query import AA
from kdns.dns.rrset import RRset
from kdns.dns.types import CNAME, DNSKEY, DS, IN, NOERROR, NS, NSEC, NXDOMAIN, RRSIG, SOA, TRANSFERS
from kdns.plugins.changes.dnssec.signing import SigningKey, canonical, nsec_rdata, signature
from kdns.serverblocks.directive import Directive, Sample, World
from kdns.serverblocks.stanza import Option, integer, path_of, sets
from kdns.values import evolve

NAME: Final = "dnssec"
DEFAULT_CAPACITY: Final = 10_000
KEY_TTL_S: Final = 3600
HOUR_S: Final = 3600
BEFORE_S: Final = 3 * HOUR_S
"""Signatures are backdated by this, for clients whose clocks are slow."""
VALID_S: Final = 8 * 24 * HOUR_S
RENEWED_S: Final = 4 * 24 * HOUR_S
"""A signature with less remaining validity is renewed."""
MAX_ADDITIONAL: Final = 8
"""The most RRsets of the additional section that are signed; further ones are removed."""

TYPES: Final = frozenset(
    {1, 12, 13, 15, 16, 17, 18, 28, 29, 33, 35, 36, 37, 42, 44, 45, RRSIG, NSEC}
    | {49, 52, 53, 55, 61, 64, 65, 99, 108, 109, 256, 257}
)
"""Types that an NSEC record says exist at any name: A, PTR, HINFO, MX, TXT, RP, AFSDB, AAAA, LOC, SRV, NAPTR, KX, CERT,
APL, SSHFP, IPSECKEY, RRSIG, NSEC, DHCID, TLSA, SMIMEA, HIP, OPENPGPKEY, SVCB, HTTPS, SPF, EUI48, EUI64, URI and CAA.

Other types are denied with any denied type, because resolvers reuse NSEC (RFC 8198).
"""
APEX_TYPES: Final = TYPES | {NS, SOA, DNSKEY, 59, 60, 62}
"""The numbers are CDS, CDNSKEY and CSYNC."""
DELEGATION_TYPES: Final = frozenset((NS, RRSIG, NSEC))


@dataclass(frozen=True, slots=True)
class DnssecConfig:
    """`keys` are file names with or without their endings, `capacity` is the most cached signatures."""

    zones: tuple[str, ...]
    keys: tuple[Token, ...] = ()
    capacity: int = DEFAULT_CAPACITY


def _key(config: DnssecConfig, line: Line) -> DnssecConfig:
    source, *names = line.args
    if source.text != "file":
        raise source.error(f"`{source.text}` is not supported: keys are in files, use `key file KEY...`")
    for name in names:
        path_of(name)
    return replace(config, keys=(*config.keys, *names))


OPTIONS: Final = {
    "key": Option("key file KEY...", _key),
    "cache_capacity": Option("cache_capacity SIGNATURES", sets("capacity", integer, 1)),
}


class Signed(NamedTuple):
    """A signature, and the end of its validity in Unix seconds."""

    rrset: RRset
    expiration_s: int


class Dnssec(Plugin):
    """Signs the answers to queries with DO, and answers for the keys of its zones."""

    sees = Sees.PACKET

    def __init__(self, zones: Iterable[str], keys: tuple[SigningKey, ...], capacity: int, world: World) -> None:
        self._zones = ZoneSet(zones)
        self._world = world
        of_keys = tuple(key for key in keys if key.is_for_keys)
        of_zone = tuple(key for key in keys if not key.is_for_keys)
        is_split = bool(of_keys and of_zone)
        self._keys = keys
        self._key_signers = of_keys if is_split else keys
        self._signers = of_zone if is_split else keys
        self._cached: LRUCache[tuple[int, Labels, bytes], Signed] = LRUCache(capacity)
        self._servers: set[str] = set()
        self._hits = world.counters("coredns_dnssec_cache_hits", "Signatures taken from the cache.", ("server",))
        self._misses = world.counters("coredns_dnssec_cache_misses", "Signatures that were made.", ("server",))
        labels = ("server", "type")
        world.expose("coredns_dnssec_cache_entries", "Signatures in the cache.", labels, self._entries)

    def _entries(self) -> Iterable[Sample]:
        return [((server, "signature"), float(len(self._cached))) for server in sorted(self._servers)]

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        query = request.query
        zone = self._zones.closest(query.labels)
        if zone is None or not self._keys or query.qclass != IN or query.qtype in TRANSFERS:
            return next(request)
        if query.qtype == DNSKEY and query.labels == zone:
            return self._dnskey(request, zone)
        if not query.do:
            return next(request)
        if query.qtype == DS and (query.labels != zone or self._zones.closest(zone[1:]) is not None):
            return self._ds(request, zone, next)
        return then(next(request), partial(self._signed_reply, request, zone))

    def _dnskey(self, request: Request, zone: Labels) -> Response:
        rrset = RRset(request.query.name, DNSKEY, KEY_TTL_S, tuple(key.dnskey for key in self._keys))
        response = Response(NOERROR, AA, (rrset,), reuse=Reuse(), plugin=NAME)
        return self.signed(request, zone, response) if request.query.do else response

    async def _ds(self, request: Request, zone: Labels, next: Serve) -> Reply:  # noqa: A002 - as in Plugin
        """Signs a reply about DS as the parent (RFC 4035 §3.1.4.1), unless only the child is served.

        Without DS, a query for NS tells an unsigned child from other names.
        """
        reply = await awaited(next(request))
        is_cut = False
        labels = request.query.labels
        if labels == zone:
            parent = self._zones.closest(labels[1:])
            is_cut = reply is not None and parent is not None and soa_owner(reply) != text_of(zone)
            zone = parent if is_cut and parent is not None else zone
        elif reply is not None and reply.rcode == NOERROR and not _has(from_wire(reply).answer, DS):
            referral = await awaited(next(request.about(labels, NS)))
            is_cut = referral is not None and _is_cut(from_wire(referral), request.query.name)
        return self._signed_reply(request, zone, reply, is_cut=is_cut)

    def _signed_reply(self, request: Request, zone: Labels, reply: Reply, *, is_cut: bool = False) -> Reply:
        if reply is None or reply.rcode not in {NOERROR, NXDOMAIN}:
            return reply
        return self.signed(request, zone, from_wire(reply), is_cut=is_cut)

    def signed(self, request: Request, zone: Labels, response: Response, *, is_cut: bool = False) -> Response:
        """`is_cut`: the question name is a child's apex."""
        reuse = response.reuse
        if response.soa is not None:
            response = evolve(response, soa=None, authority=(response.soa.rrset, *response.authority))
            reuse = NEVER.and_then(reuse)  # the SOA changes with the zone
        answer, authority = response.answer, response.authority
        additional = response.additional
        rcode = response.rcode
        denied = _last_name(request.query.labels, answer) if not _has(answer, request.query.qtype) else None
        cut_zone = self._zone_of_cut(zone, answer, authority, denied)
        if cut_zone is not None:
            answer = self._section(request, answer)
            authority = self._delegation(request, cut_zone, authority)
        elif denied is not None and _has(authority, SOA):
            denied_zone = zone if denied == request.query.labels else self._zones.closest(denied)
            authority = self._section(request, authority)
            if denied_zone is None:
                answer = self._section(request, answer)
            else:
                ttl_s = next(rrset.ttl for rrset in authority if rrset.rtype == SOA)
                nsec = self._nsec(request, denied_zone, denied, ttl_s, is_cut=is_cut)
                if request.query.qtype == NSEC and not answer:
                    answer, authority = nsec, ()
                else:
                    answer, authority = self._section(request, answer), (*authority, *nsec)
                rcode = NOERROR if nsec else rcode
        else:
            answer = self._section(request, answer)
            authority = self._section(request, authority)
            additional = self._section(request, additional[:MAX_ADDITIONAL])
        until = Reuse((), request.received_s + RENEWED_S / 2)
        return evolve(
            response,
            rcode=rcode,
            answer=answer,
            authority=authority,
            additional=additional,
            reuse=reuse.and_then(until),
        )

    def _zone_of_cut(
        self, zone: Labels, answer: tuple[RRset, ...], authority: tuple[RRset, ...], last: Labels | None
    ) -> Labels | None:
        """The zone of a referral, direct or after CNAMEs; None for other responses.

        NS records of a delegation and glue are not signed (RFC 4035 §2.2).
        """
        cut = next((rrset for rrset in authority if rrset.rtype == NS), None)
        if cut is None or _has(authority, SOA):
            return None
        if not answer:
            return zone
        labels = lowered(labels_of(cut.owner))
        is_behind = last is not None and is_below(last, labels) and self._zones.closest(labels) != labels
        return self._zones.closest(labels) if is_behind else None

    def _delegation(self, request: Request, zone: Labels, authority: tuple[RRset, ...]) -> tuple[RRset, ...]:
        """A referral has its DS records signed, or the proof of their absence (RFC 4035 §3.1.4)."""
        merged = _merged(authority)
        delegations = [rrset for rrset in merged if rrset.rtype == DS]
        if delegations:
            signatures = [signed for rrset in delegations for signed in self._signatures(request, zone, rrset)]
            return (*merged, *signatures)
        cut = next(rrset for rrset in merged if rrset.rtype == NS)
        labels = lowered(labels_of(cut.owner))
        beside = (
            (labels[0] + b"\x00", *labels[1:]) if labels and len(labels[0]) < MAX_LABEL_BYTES else (b"\x00", *labels)
        )
        nsec = self._nsec_of(request, zone, labels, cut.ttl, DELEGATION_TYPES, beside)
        return (*merged, *nsec)

    def _nsec(self, request: Request, zone: Labels, labels: Labels, ttl_s: int, *, is_cut: bool) -> tuple[RRset, ...]:
        """Proves that a name does not have the question's type; covers that name only."""
        qtype = request.query.qtype
        types = APEX_TYPES if labels == zone else DELEGATION_TYPES if is_cut else TYPES
        types = types if qtype in {NSEC, RRSIG} else types - {qtype}
        return self._nsec_of(request, zone, labels, ttl_s, types, (b"\x00", *labels))

    def _nsec_of(
        self, request: Request, zone: Labels, labels: Labels, ttl_s: int, types: Iterable[int], following: Labels
    ) -> tuple[RRset, ...]:
        """An NSEC record and its signatures; () if `following` is too long for a name."""
        try:
            rdata = nsec_rdata(following, types)
        except ValueError:
            return ()
        rrset = RRset(text_of(labels), NSEC, ttl_s, (rdata,))
        return (rrset, *self._signatures(request, zone, rrset))

    def _section(self, request: Request, rrsets: tuple[RRset, ...]) -> tuple[RRset, ...]:
        merged = _merged(rrsets)
        covered = {
            (folded(rrset.owner), int.from_bytes(rdata[:2], "big"))
            for rrset in merged
            if rrset.rtype == RRSIG
            for rdata in rrset.rdata
            if isinstance(rdata, bytes)
        }
        signatures: list[RRset] = []
        for rrset in merged:
            if rrset.rtype == RRSIG or (folded(rrset.owner), rrset.rtype) in covered:
                continue
            owner = lowered(labels_of(rrset.owner))
            zone = self._zones.closest(owner[1:] if rrset.rtype == DS else owner)  # DS is the parent's
            if zone is not None:
                signatures += self._signatures(request, zone, rrset)
        return (*merged, *signatures)

    def _signatures(self, request: Request, zone: Labels, rrset: RRset) -> list[RRset]:
        now_s = int(self._world.unix_s())
        records = canonical(rrset)
        signatures: list[RRset] = []
        self._servers.add(request.server)
        for key in self._key_signers if rrset.rtype == DNSKEY else self._signers:
            cache_key = key.tag, zone, records
            signed = self._cached.get(cache_key)
            if signed is None or signed.expiration_s < now_s + RENEWED_S:
                expiration_s = now_s + VALID_S
                rrsig = signature(key, zone, rrset, records, now_s - BEFORE_S, expiration_s)
                signed = self._cached[cache_key] = Signed(rrsig, expiration_s)
                self._misses.tally(request.server).count += 1
            else:
                self._hits.tally(request.server).count += 1
            signatures.append(replace(signed.rrset, owner=rrset.owner))
        return signatures


def _is_cut(referral: Response, name: str) -> bool:
    at_name = [rrset for rrset in referral.authority if rrset.rtype == NS and folded(rrset.owner) == name]
    return bool(at_name) and not referral.answer


def _merged(rrsets: tuple[RRset, ...]) -> tuple[RRset, ...]:
    """One RRset for each owner and type, with the lowest TTL (RFC 2181 §5.2)."""
    merged: dict[tuple[str, int, int], RRset] = {}
    for rrset in rrsets:
        key = folded(rrset.owner), rrset.rtype, rrset.rclass
        old = merged.get(key)
        rdata = rrset.rdata if old is None else (*old.rdata, *rrset.rdata)
        ttl_s = rrset.ttl if old is None else min(rrset.ttl, old.ttl)
        merged[key] = replace(old or rrset, ttl=ttl_s, rdata=rdata)
    return tuple(merged.values())


def _has(rrsets: tuple[RRset, ...], rtype: int) -> bool:
    return any(rrset.rtype == rtype for rrset in rrsets)


def _last_name(labels: Labels, answer: tuple[RRset, ...]) -> Labels | None:
    """The name that CNAMEs lead to; None if the answer has other records."""
    for rrset in answer:
        if rrset.rtype == CNAME:
            labels = lowered(labels_of(str(rrset.rdata[-1])))
        elif rrset.rtype != RRSIG:
            return None
    return labels


def key_pair(token: Token, world: World) -> SigningKey:
    """CorefileError at the word that names the file, with or without its ending."""
    from kdns.plugins.changes.dnssec.keys import read_key  # noqa: PLC0415 - only where it is used

    base = token.text.removesuffix(".key").removesuffix(".private")
    texts: list[str] = []
    for ending in (".key", ".private"):
        world.watch_file("key", base + ending, 0.0, texts.append)
    try:
        return read_key(*texts)
    except ValueError as error:
        raise token.error(str(error)) from error


def build(config: DnssecConfig, world: World) -> Dnssec:
    """CorefileError for a key that cannot be read, or that is not for one of the zones."""
    zones = [labels_of(zone) for zone in config.zones]
    keys: list[SigningKey] = []
    for token in config.keys:
        key = key_pair(token, world)
        if not any(is_below(zone, key.owner) for zone in zones):
            raise token.error(f"the key's zone {text_of(key.owner)} is not one of {', '.join(config.zones)}")
        keys.append(key)
    if not keys:
        world.log("warning", "directive without effect", directive=NAME, reason="no `key file`")
    return Dnssec(config.zones, tuple(keys), config.capacity, world)


DIRECTIVE: Final = Directive("dnssec [ZONES...]", DnssecConfig, build, OPTIONS)
