"""Numbers and mnemonics of types, classes, response codes and EDNS options (IANA's registry of DNS parameters)."""

from __future__ import annotations

from typing import Final

A: Final = 1
NS: Final = 2
CNAME: Final = 5
SOA: Final = 6
PTR: Final = 12
HINFO: Final = 13
MX: Final = 15
TXT: Final = 16
AAAA: Final = 28
SRV: Final = 33
NAPTR: Final = 35
DNAME: Final = 39
OPT: Final = 41
DS: Final = 43
RRSIG: Final = 46
NSEC: Final = 47
DNSKEY: Final = 48
NSEC3: Final = 50
SVCB: Final = 64
HTTPS: Final = 65
TSIG: Final = 250
IXFR: Final = 251
AXFR: Final = 252
ANY: Final = 255

IN: Final = 1
CH: Final = 3
ANY_CLASS: Final = 255

NOERROR: Final = 0
FORMERR: Final = 1
SERVFAIL: Final = 2
NXDOMAIN: Final = 3
NOTIMP: Final = 4
REFUSED: Final = 5
YXDOMAIN: Final = 6
NOTAUTH: Final = 9
BADVERS: Final = 16

NSID: Final = 3
CLIENT_SUBNET: Final = 8
COOKIE: Final = 10
TCP_KEEPALIVE: Final = 11
PADDING: Final = 12
EXTENDED_ERROR: Final = 15

OTHER_ERROR: Final = 0
STALE_ANSWER: Final = 3
BLOCKED: Final = 15
FILTERED: Final = 17
STALE_NXDOMAIN_ANSWER: Final = 19
NETWORK_ERROR: Final = 23
"""Codes of extended errors (RFC 8914 §4)."""

TRANSFERS: Final = frozenset((IXFR, AXFR))
"""Types that ask for a whole zone (RFC 1995, RFC 5936)."""

METRIC_TYPES: Final = frozenset((1, 2, 5, 6, 12, 15, 16, 28, 33, 43, 46, 47, 48, 50, 64, 65, 251, 252, 255))
"""Types that have a label of their own in metrics, as in CoreDNS; all others are `other`."""

_TYPES: Final = {
    1: "A", 2: "NS", 3: "MD", 4: "MF", 5: "CNAME", 6: "SOA", 7: "MB", 8: "MG", 9: "MR", 10: "NULL", 11: "WKS",
    12: "PTR", 13: "HINFO", 14: "MINFO", 15: "MX", 16: "TXT", 17: "RP", 18: "AFSDB", 19: "X25", 20: "ISDN", 21: "RT",
    22: "NSAP", 23: "NSAP-PTR", 24: "SIG", 25: "KEY", 26: "PX", 27: "GPOS", 28: "AAAA", 29: "LOC", 30: "NXT", 31: "EID",
    32: "NIMLOC", 33: "SRV", 34: "ATMA", 35: "NAPTR", 36: "KX", 37: "CERT", 38: "A6", 39: "DNAME", 40: "SINK",
    41: "OPT", 42: "APL", 43: "DS", 44: "SSHFP", 45: "IPSECKEY", 46: "RRSIG", 47: "NSEC", 48: "DNSKEY", 49: "DHCID",
    50: "NSEC3", 51: "NSEC3PARAM", 52: "TLSA", 53: "SMIMEA", 55: "HIP", 56: "NINFO", 57: "RKEY", 58: "TALINK",
    59: "CDS", 60: "CDNSKEY", 61: "OPENPGPKEY", 62: "CSYNC", 63: "ZONEMD", 64: "SVCB", 65: "HTTPS", 99: "SPF",
    104: "NID", 105: "L32", 106: "L64", 107: "LP", 108: "EUI48", 109: "EUI64", 249: "TKEY", 250: "TSIG", 251: "IXFR",
    252: "AXFR", 253: "MAILB", 254: "MAILA", 255: "ANY", 256: "URI", 257: "CAA", 258: "AVC", 259: "DOA",
    260: "AMTRELAY", 32768: "TA", 32769: "DLV",
}  # fmt: skip
_NUMBERS: Final = {name: number for number, name in _TYPES.items()}
_CLASSES: Final = {1: "IN", 3: "CH", 4: "HS", 254: "NONE", 255: "ANY"}
_CLASS_NUMBERS: Final = {name: number for number, name in _CLASSES.items()}
_RCODES: Final = {
    0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED", 6: "YXDOMAIN", 7: "YXRRSET",
    8: "NXRRSET", 9: "NOTAUTH", 10: "NOTZONE", 16: "BADVERS",
}  # fmt: skip
_RCODE_NUMBERS: Final = {name: number for number, name in _RCODES.items()}


def type_name(qtype: int) -> str:
    return _TYPES.get(qtype, f"TYPE{qtype}")


def type_number(name: str) -> int:
    """Of a mnemonic in upper case, or of TYPE1234; KeyError for any other text."""
    number = name.removeprefix("TYPE")
    return int(number) if number != name and number.isdecimal() else _NUMBERS[name]


def type_label(qtype: int) -> str:
    return type_name(qtype) if qtype in METRIC_TYPES else "other"


def class_name(qclass: int) -> str:
    return _CLASSES.get(qclass, f"CLASS{qclass}")


def class_number(name: str) -> int:
    return _CLASS_NUMBERS[name]


def rcode_name(rcode: int) -> str:
    return _RCODES.get(rcode, f"RCODE{rcode}")


def rcode_number(name: str) -> int:
    """Of a mnemonic, or of RCODE12; KeyError for any other text."""
    number = name.removeprefix("RCODE")
    return int(number) if number != name and number.isdecimal() else _RCODE_NUMBERS[name]


def address_type(packed: bytes) -> int:
    return A if len(packed) == 4 else AAAA
