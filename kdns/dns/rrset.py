"""DNS records as values: rdata and RRsets, in the words of RFC 1035 and RFC 2782.

Names are text with a trailing dot and the escapes of master files (RFC 1035 §5.1, see kdns.dns.names).
Names made from cluster objects are in lower case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from kdns.dns.types import IN


class Srv(NamedTuple):
    """SRV rdata (RFC 2782); a Service may have thousands."""

    priority: int
    weight: int
    port: int
    target: str


class Mx(NamedTuple):
    """MX rdata (RFC 1035 §3.3.9)."""

    preference: int
    exchange: str


@dataclass(frozen=True, slots=True)
class Soa:
    """SOA rdata (RFC 1035 §3.3.13); times in seconds."""

    mname: str
    rname: str
    serial: int
    refresh: int
    retry: int
    expire: int
    minimum: int


Rdata: TypeAlias = bytes | str | Srv | Soa | Mx
"""str: the name of a CNAME, NS, PTR or DNAME; bytes: rdata of any other type, uncompressed (RFC 3597 §4)."""


@dataclass(frozen=True, slots=True)
class RRset:
    """The records of one owner, type and class (RFC 2181 §5); the TTL is in seconds."""

    owner: str
    rtype: int
    ttl: int
    rdata: tuple[Rdata, ...]
    rclass: int = IN
