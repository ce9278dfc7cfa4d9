"""Signatures of RRsets, and NSEC records (RFC 4034)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import pack
from typing import Final, NamedTuple

from kdns.dns.names import Labels, encode_name, folded, labels_of, lowered
from kdns.dns.rdata import LAYOUTS, renamed, wire_of
from kdns.dns.rrset import RRset
from kdns.dns.types import HTTPS, NSEC, RRSIG, SVCB

SEP: Final = 0x0001
"""The flag of a key that signs keys (RFC 4034 §2.1.1)."""
NAMES_AS_THEY_ARE: Final = frozenset((NSEC, SVCB, HTTPS))
"""Types whose names keep their case in the canonical form (RFC 6840 §5.1, RFC 9460 §2.2)."""


class SigningKey(NamedTuple):
    """A key pair; `owner` is folded, `dnskey` is rdata, `tag` is the key tag."""

    owner: Labels
    dnskey: bytes
    algorithm: int
    tag: int
    sign: Callable[[bytes], bytes]

    @property
    def is_for_keys(self) -> bool:
        return bool(self.dnskey[1] & SEP)


def canonical(rrset: RRset) -> bytes:
    """Records in canonical form and order (RFC 4034 §6)."""
    owner = encode_name(labels_of(folded(rrset.owner)))
    start = owner + pack("!HHI", rrset.rtype, rrset.rclass, rrset.ttl)
    return b"".join(start + pack("!H", len(rdata)) + rdata for rdata in sorted(set(_wires(rrset))))


def _wires(rrset: RRset) -> Iterable[bytes]:
    keeps_case = rrset.rtype not in LAYOUTS or rrset.rtype in NAMES_AS_THEY_ARE
    for rdata in rrset.rdata:
        value = rdata if keeps_case else renamed(rrset.rtype, rdata, lowered)
        yield wire_of(value)


def signature(
    key: SigningKey, zone: Labels, rrset: RRset, records: bytes, inception_s: int, expiration_s: int
) -> RRset:
    """The RRSIG; `records` is the canonical form of `rrset`, times are in Unix seconds (RFC 4034 §3)."""
    labels = labels_of(rrset.owner)
    count = len(labels) - (labels[:1] == (b"*",))
    times = (expiration_s & 0xFFFFFFFF, inception_s & 0xFFFFFFFF)
    head = pack("!HBBIIIH", rrset.rtype, key.algorithm, count, rrset.ttl, *times, key.tag) + encode_name(zone)
    return RRset(rrset.owner, RRSIG, rrset.ttl, (head + key.sign(head + records),), rrset.rclass)


def nsec_rdata(next_name: Labels, types: Iterable[int]) -> bytes:
    """RFC 4034 §4.1."""
    windows: dict[int, bytearray] = {}
    for rtype in types:
        bits = windows.setdefault(rtype >> 8, bytearray(32))
        bits[(rtype & 255) >> 3] |= 0x80 >> (rtype & 7)
    blocks = ((number, bytes(bits).rstrip(b"\x00")) for number, bits in sorted(windows.items()))
    return encode_name(next_name) + b"".join(bytes((number, len(bits))) + bits for number, bits in blocks)
