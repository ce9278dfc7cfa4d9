"""The door to dnspython: the text of records and zone files (RFC 1035 §5), for every type that it knows."""

from __future__ import annotations

import dns.exception
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.ttl

from kdns.dns.names import text_of
from kdns.dns.rdata import rdata_of, wire_of
from kdns.dns.rrset import Rdata, RRset


def parse_record(text: str, origin: str = ".", default_ttl_s: int = 0) -> RRset:
    """One record in the text form of zone files, such as `web 60 IN A 192.0.2.1`; ValueError for anything else.

    TTL and class may be left out or change places. Owner and names keep their case; those without a dot at the end
    lie below `origin`.
    """
    owner, *words = text.split(None, 1)
    ttl_s, rclass = default_ttl_s, dns.rdataclass.IN
    try:
        for _ in range(2):
            word, *rest = words[0].split(None, 1)
            if word.isdecimal():
                ttl_s = dns.ttl.from_text(word)
            elif word.upper() in _CLASSES:
                rclass = dns.rdataclass.from_text(word)
            else:
                break
            words = rest
        rtype, *rdata = words[0].split(None, 1)
        at = dns.name.from_text(origin)
        found = dns.rdata.from_text(rclass, rtype, rdata[0] if rdata else "", origin=at, relativize=False)
        name = dns.name.from_text(owner, at)
    except (dns.exception.DNSException, ValueError, IndexError) as error:
        raise ValueError(f"{text!r} is no record: {error}") from error
    return RRset(_text(name), int(found.rdtype), ttl_s, (_rdata(found),), int(rclass))


_CLASSES = frozenset(("IN", "CH", "HS", "ANY", "NONE"))


def rdata_text(rtype: int, rdata: Rdata, rclass: int = 1) -> str:
    """Rdata in text form, names whole; what cannot be read is written as RFC 3597 §5 says."""
    wire = wire_of(rtype, rdata)
    try:
        return str(dns.rdata.from_wire(_class(rclass), _type(rtype), wire, 0, len(wire)).to_text())
    except (dns.exception.DNSException, ValueError):
        return f"\\# {len(wire)} {wire.hex()}".rstrip()


def record_texts(rrset: RRset) -> list[str]:
    """Each record of the set as a line of a zone file."""
    rtype, rclass = dns.rdatatype.to_text(_type(rrset.rtype)), dns.rdataclass.to_text(_class(rrset.rclass))
    head = f"{rrset.owner} {rrset.ttl} {rclass} {rtype}"
    return [f"{head} {rdata_text(rrset.rtype, rdata, rrset.rclass)}" for rdata in rrset.rdata]


_type = dns.rdatatype.RdataType.make
_class = dns.rdataclass.RdataClass.make


def _text(name: dns.name.Name) -> str:
    return text_of(tuple(label for label in name.labels if label))


def _rdata(rdata: dns.rdata.Rdata) -> Rdata:
    return rdata_of(int(rdata.rdtype), rdata.to_wire() or b"")
