"""Responses as dnslib reads them: a decoder that is not kdns's own."""

from dataclasses import dataclass

import dnslib

from kdns.dns import types
from kdns.dns.names import text_of
from kdns.dns.rdata import expanded, rdata_of
from kdns.dns.rrset import Rdata, RRset


@dataclass(frozen=True, slots=True)
class Decoded:
    """A parsed response: flags in dig's words, the sections without OPT, the rcode's name."""

    rcode: str
    flags: frozenset[str]
    answer: tuple[RRset, ...]
    authority: tuple[RRset, ...]
    additional: tuple[RRset, ...]


def decode(packet: bytes) -> Decoded:
    """Raises ValueError if the bytes are not a DNS message."""
    try:
        record = dnslib.DNSRecord.parse(packet)
    except (dnslib.DNSError, dnslib.buffer.BufferError) as error:
        raise ValueError(f"not a DNS message: {error}") from error
    header = record.header
    flags = {name for name in ("qr", "aa", "tc", "rd", "ra", "ad", "cd") if getattr(header, name)}
    sections = [
        tuple(_rrset(rr) for rr in part if rr.rtype != dnslib.QTYPE.OPT) for part in (record.rr, record.auth, record.ar)
    ]
    return Decoded(types.rcode_name(header.rcode), frozenset(flags), *sections)


def _rrset(record: dnslib.RR) -> RRset:
    return RRset(text_of(tuple(record.rname.label)), record.rtype, record.ttl, (_rdata(record),), record.rclass)


def _rdata(record: dnslib.RR) -> Rdata:
    buffer = dnslib.DNSBuffer()
    record.rdata.pack(buffer)
    packed = bytes(buffer.data)
    return rdata_of(record.rtype, expanded(record.rtype, packed, 0, len(packed)))
