"""dns64 [PREFIX] { prefix PREFIX; translate_all; allow_ipv4 }: AAAA records synthesized from A records (RFC 6147).

A client behind NAT64 reaches an IPv4 host by an IPv6 address that embeds the host's address (RFC 6052).
Differs: a query with CD and DO passes unchanged, because its client validates (RFC 6147 §5.5); CoreDNS synthesizes
records for it. Synthesized records have no AD and no signatures.
Differs: a PREFIX on the line and options in the block are both used; CoreDNS ignores the block then.
Differs: RA is that of the A answer; CoreDNS clears it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from ipaddress import IPv6Network, ip_network
from typing import Final

from kdns.answers.chain import Plugin, Reply, Request, Sees, Serve, ServeResult, for_one_client, then
from kdns.answers.decode import from_wire
from kdns.answers.response import Response
from kdns.corefile.lexer import Token
from kdns.dns.query import AD, CD
from kdns.dns.rrset import RRset
from kdns.dns.types import AAAA, IN, NOERROR, NXDOMAIN, RRSIG, SOA, A
from kdns.serverblocks.directive import Directive, World
from kdns.serverblocks.stanza import Option, flag, sets
from kdns.values import evolve

NAME: Final = "dns64"
WELL_KNOWN: Final = IPv6Network("64:ff9b::/96")
LENGTHS: Final = (32, 40, 48, 56, 64, 96)
NO_SOA_TTL_S: Final = 600
"""The longest TTL of a translated record if the AAAA answer has no SOA (RFC 6147 §5.1.7)."""


@dataclass(frozen=True, slots=True)
class Dns64Config:
    """`translate_all` also replaces AAAA records; `allow_ipv4` also serves clients with IPv4 addresses."""

    prefix: IPv6Network = WELL_KNOWN
    translate_all: bool = False
    allow_ipv4: bool = False


def _prefix(token: Token) -> IPv6Network:
    try:
        network = ip_network(token.text)
    except ValueError as error:
        raise token.error(f"expected an IPv6 prefix such as {WELL_KNOWN}: {error}") from error
    if not isinstance(network, IPv6Network) or network.prefixlen not in LENGTHS:
        raise token.expected(f"an IPv6 prefix of {', '.join(map(str, LENGTHS))} bits")
    if network.network_address.packed[8]:
        raise token.error("bits 64 to 71 of a prefix must be zero (RFC 6052 §2.2)")
    return network


OPTIONS: Final = {
    "prefix": Option("prefix PREFIX", sets("prefix", _prefix)),
    "translate_all": Option("translate_all", flag("translate_all")),
    "allow_ipv4": Option("allow_ipv4", flag("allow_ipv4")),
}


def synthesized(prefix: IPv6Network, address: bytes) -> bytes:
    """Embeds an IPv4 address behind the prefix; bits 64 to 71 stay zero (RFC 6052 §2.2)."""
    free = [at for at in range(prefix.prefixlen // 8, 16) if at != 8]
    embedded = bytearray(prefix.network_address.packed)
    for at, octet in zip(free, address, strict=False):
        embedded[at] = octet
    return bytes(embedded)


class Dns64(Plugin):
    """Queries A if a name has no AAAA. The result depends on the client's family, like partitions of the table."""

    sees = Sees.PACKET

    def __init__(self, config: Dns64Config, world: World) -> None:
        self._config = config
        self._translated = world.counters(
            "coredns_dns64_requests_translated", "Queries for AAAA that caused a query for A.", ("server",)
        )

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        reply = next(request)
        if self.is_concerned(request):
            reply = then(reply, partial(self._after, request, next))
        is_of_family = request.query.qtype == AAAA and not self._config.allow_ipv4
        # an internal query for a CNAME's target: a cache in front of its caller serves both families
        return then(reply, for_one_client) if is_of_family and request.depth else reply

    def is_concerned(self, request: Request) -> bool:
        query = request.query
        if query.qtype != AAAA or query.qclass != IN or (query.do and query.flags & CD):
            return False
        return self._config.allow_ipv4 or ":" in request.client[0]

    def is_translated(self, reply: Response) -> bool:
        """Whether A is queried after this answer: not for a name that does not exist (RFC 6147 §5.1.2)."""
        if reply.rcode == NXDOMAIN:
            return False
        return self._config.translate_all or not any(rrset.rtype == AAAA for rrset in reply.answer)

    def _after(self, request: Request, next: Serve, reply: Reply) -> ServeResult:  # noqa: A002 - as in Plugin
        if reply is None:
            return None
        first = from_wire(reply)
        if not self.is_translated(first):
            return reply
        return then(next(request.about(request.query.labels, A)), partial(self._translation, request, first))

    def _translation(self, request: Request, first: Response, reply: Reply) -> Reply:
        if reply is None:
            return None
        ipv4 = from_wire(reply)
        tallies = (*first.tallies, *ipv4.tallies, self._translated.tally(request.server))
        reuse = first.reuse.and_then(ipv4.reuse)
        if not any(rrset.rtype == A for rrset in ipv4.answer):
            empty = first if first.rcode == NOERROR else ipv4
            return evolve(empty, reuse=reuse, tallies=tallies)
        longest_s = _negative_ttl_s(first)
        answer = tuple(self._rrset(rrset, longest_s) for rrset in ipv4.answer if rrset.rtype != RRSIG)
        return evolve(ipv4, answer=answer, flags=ipv4.flags & ~AD, reuse=reuse, tallies=tallies)

    def _rrset(self, rrset: RRset, longest_s: int) -> RRset:
        if rrset.rtype != A:
            return rrset
        addresses = (rdata for rdata in rrset.rdata if isinstance(rdata, bytes))
        rdata = tuple(synthesized(self._config.prefix, address) for address in addresses)
        return RRset(rrset.owner, AAAA, min(rrset.ttl, longest_s), rdata)


def _negative_ttl_s(first: Response) -> int:
    """The SOA's TTL (RFC 6147 §5.1.7)."""
    rrsets = (*((first.soa.rrset,) if first.soa else ()), *first.authority)
    return next((rrset.ttl for rrset in rrsets if rrset.rtype == SOA), NO_SOA_TTL_S)


DIRECTIVE: Final = Directive("dns64 [PREFIX]", Dns64Config, Dns64, OPTIONS, argument=_prefix)
