"""Questions about the benchmark's cluster, of each sort that clients of a cluster ask."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import dnslib
from _cluster import BASE, BIG_EVERY, ZONE, cluster_ip, pod_name, reverse_name

SEARCHED: Final = (f"default.svc.{ZONE}", f"svc.{ZONE}", ZONE)


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of question: `name` makes the name for a number."""

    label: str
    name: Callable[[int], str]
    qtype: str
    rcode: str = "NOERROR"

    def line(self, number: int) -> str:
        """The question as dnsperf reads it."""
        return f"{self.name(number)} {self.qtype}\n"


A: Final = Kind("A of a cluster IP", lambda n: f"svc-{n}.{BASE}", "A")
AAAA: Final = Kind("AAAA of a cluster IP (NODATA)", lambda n: f"svc-{n}.{BASE}", "AAAA")
NXDOMAIN: Final = Kind("NXDOMAIN of a search path", lambda n: f"svc-{n}.{BASE}.{SEARCHED[n % 3]}", "A", "NXDOMAIN")
HEADLESS: Final = Kind("A, headless, 5 endpoints", lambda n: f"set-{n}.{BASE}", "A")
SRV: Final = Kind("SRV, headless, 5 endpoints", lambda n: f"_http._tcp.set-{n}.{BASE}", "SRV")
PTR: Final = Kind("PTR of a cluster IP", lambda n: reverse_name(cluster_ip(n)), "PTR")
POD: Final = Kind("A of a Pod's address", lambda n: f"{pod_name(n)}.{ZONE}", "A")
BIG: Final = Kind("A, headless, 100 endpoints", lambda n: f"big-{n // BIG_EVERY}.{BASE}", "A")
KINDS: Final = (A, AAAA, NXDOMAIN, HEADLESS, SRV, PTR, POD)
SHARES: Final = {A: 8, AAAA: 8, NXDOMAIN: 12, HEADLESS: 1, SRV: 1, PTR: 1, POD: 1}
"""A client with `ndots:5` asks for A and AAAA of each name of its search path until one exists."""
TEXTS_MAX: Final = 100_000
"""Lines of a file of questions; dnsperf begins anew at its end."""


def at_random(kind: Kind, services: int) -> Iterator[str]:
    """As many questions as a file holds, each for any Service."""
    return (kind.line(random.randrange(services)) for _ in range(TEXTS_MAX))


def mixed(services: int) -> Iterator[str]:
    """A mix of all kinds."""
    kinds, weights = list(SHARES), list(SHARES.values())
    return (kind.line(random.randrange(services)) for kind in random.choices(kinds, weights, k=TEXTS_MAX))


def packet(kind: Kind, number: int, *, size: int = 4096) -> bytes:
    """A query packet with EDNS."""
    record = dnslib.DNSRecord.question(kind.name(number), kind.qtype)
    record.add_ar(dnslib.EDNS0(udp_len=size))
    return bytes(record.pack())


def meaning(response: bytes, *, with_extra: bool) -> tuple[str, frozenset[str]]:
    """What a response says: its rcode, its answer, and the addresses beside it, without order."""
    record = dnslib.DNSRecord.parse(response)
    extra = [rr for rr in record.ar if rr.rtype == dnslib.QTYPE.A] if with_extra else []
    records = frozenset(f"{rr.rname} {rr.ttl} {rr.rtype} {rr.rdata}" for rr in (*record.rr, *extra))
    return dnslib.RCODE[record.header.rcode], records
