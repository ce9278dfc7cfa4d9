"""The mnemonics of types and response codes, as logs and metrics write them."""

from __future__ import annotations

from typing import Final

from kdns.wire.table import COUNTED_TYPES

_TYPES: Final = {
    1: "A", 2: "NS", 5: "CNAME", 6: "SOA", 12: "PTR", 13: "HINFO", 15: "MX", 16: "TXT", 28: "AAAA", 33: "SRV",
    35: "NAPTR", 43: "DS", 46: "RRSIG",
    47: "NSEC", 48: "DNSKEY", 50: "NSEC3", 64: "SVCB", 65: "HTTPS", 251: "IXFR", 252: "AXFR",
    255: "ANY", 257: "CAA",
}  # fmt: skip
_RCODES: Final = {0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED", 16: "BADVERS"}


def type_name(qtype: int) -> str:
    """The mnemonic, or TYPE1234 (RFC 3597 §5)."""
    return _TYPES.get(qtype, f"TYPE{qtype}")


def type_label(qtype: int) -> str:
    """The type as a metric's label: CoreDNS's list of types, else `other`."""
    return type_name(qtype) if qtype in COUNTED_TYPES else "other"


def rcode_name(rcode: int) -> str:
    """The mnemonic, or RCODE12."""
    return _RCODES.get(rcode, f"RCODE{rcode}")
