"""Records as the lines of a zone file (RFC 1035 §5), in both directions."""

from functools import cache

import dns.rdataclass
import dns.rdatatype
import dnslib
from decoded_message import decode

from kdns.dns.rrset import RRset
from kdns.dns.zonefile import rdata_text


@cache
def zone_rrsets(text: str, origin: str = ".") -> tuple[RRset, ...]:
    """Returns the records of a zone file, one RRset a record; dnslib reads them, so that kdns's reader has a judge."""
    messages = (dnslib.DNSRecord(rr=[record]) for record in dnslib.RR.fromZone(text, origin=origin))
    return tuple(rrset for message in messages for rrset in decode(bytes(message.pack())).answer)


def record_texts(rrset: RRset) -> list[str]:
    """Returns each record of the set as a line of a zone file."""
    rclass = dns.rdataclass.to_text(dns.rdataclass.RdataClass.make(rrset.rclass))
    rtype = dns.rdatatype.to_text(dns.rdatatype.RdataType.make(rrset.rtype))
    head = f"{rrset.owner} {rrset.ttl} {rclass} {rtype}"
    return [f"{head} {rdata_text(rrset.rtype, rdata, rrset.rclass)}" for rdata in rrset.rdata]
