"""local { localhost_prefix on|off }: localhost and the reverse zones of 0/8, 127/8 and 255/8 (RFC 6303, RFC 6761)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kdns.answers.chain import NOT_SERVED, Plugin, Request, Sees, Serve, ServeResult
from kdns.answers.response import Response, Reuse
from kdns.dns.names import Labels, ZoneSet, is_below, labels_of, text_of
from kdns.dns.rrset import Rdata, RRset, Soa
from kdns.dns.types import AAAA, IN, NOERROR, NS, NXDOMAIN, PTR, SOA, TRANSFERS, A
from kdns.net import packed
from kdns.serverblocks.directive import Directive, Repeat, World
from kdns.serverblocks.stanza import Option, choice, sets
from kdns.values import evolve

TTL_S: Final = 604_800
SOA_RDATA: Final = Soa("localhost.", "root.localhost.", 1, 0, 0, 0, TTL_S)
LOCALHOST: Final = (b"localhost",)
REVERSE: Final = ZoneSet(f"{octet}.in-addr.arpa." for octet in (0, 127, 255))
LOOPBACK_POINTER: Final = labels_of("1.0.0.127.in-addr.arpa.")

APEX: Final[dict[int, Rdata]] = {SOA: SOA_RDATA, NS: "localhost."}
ADDRESSES: Final[dict[int, Rdata]] = {A: packed("127.0.0.1"), AAAA: packed("::1")}
POINTER: Final[dict[int, Rdata]] = {PTR: "localhost."}


@dataclass(frozen=True, slots=True)
class LocalConfig:
    """`localhost_prefix`: names such as localhost.example.org., made by search paths, are also this machine."""

    localhost_prefix: bool = True


class Local(Plugin):
    """Answers for names of this machine, so that they are not sent to upstreams.

    Differs: names above 1.0.0.127.in-addr.arpa. are empty non-terminals (RFC 8020); CoreDNS answers NXDOMAIN.
    Differs: CoreDNS ignores arguments, so that `local yes` and `local no` mean the same.
    """

    sees = Sees.PACKET

    def __init__(self, config: LocalConfig, world: World) -> None:
        self._has_prefix = config.localhost_prefix
        name, text = "coredns_local_localhost_requests", "Queries for names below localhost, or that begin with it."
        self._tally = world.counters(name, text, ()).tally()

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        """Other classes are REFUSED for local names, which are not for upstreams."""
        query = request.query
        if query.qtype in TRANSFERS:
            return next(request)
        answer = self._answer(query.labels, query.qtype)
        if answer is None:
            return next(request)
        return answer if query.qclass == IN else NOT_SERVED

    def _answer(self, labels: Labels, qtype: int) -> Response | None:
        if labels == LOCALHOST:
            return local_answer(labels, qtype, APEX | ADDRESSES, labels)
        if is_below(labels, LOCALHOST) or (self._has_prefix and labels[:1] == LOCALHOST):
            return evolve(local_answer(labels, qtype, ADDRESSES, labels), tallies=(self._tally,))
        zone = REVERSE.closest(labels)
        if zone is None:
            return None
        if labels == zone:
            return local_answer(labels, qtype, APEX, zone)
        if labels == LOOPBACK_POINTER:
            return local_answer(labels, qtype, POINTER, zone)
        absent = local_answer(labels, qtype, {}, zone)
        return absent if is_below(LOOPBACK_POINTER, labels) else evolve(absent, rcode=NXDOMAIN)


def local_answer(labels: Labels, qtype: int, records: dict[int, Rdata], zone: Labels) -> Response:
    """The record of the type, or NODATA with the SOA of `zone`."""
    if qtype in records:
        answer = (RRset(text_of(labels), qtype, TTL_S, (records[qtype],)),)
        return Response(NOERROR, 0, answer, reuse=Reuse(), plugin="local")
    soa = RRset(text_of(zone), SOA, TTL_S, (SOA_RDATA,))
    return Response(NOERROR, 0, (), (soa,), reuse=Reuse(), plugin="local")


OPTIONS = {
    "localhost_prefix": Option(
        "localhost_prefix on|off", sets("localhost_prefix", lambda word: choice(word, ("on", "off")) == "on")
    )
}


DIRECTIVE: Final = Directive("local", LocalConfig, Local, OPTIONS, Repeat.LAST)
