"""RRsets to the bytes behind the question.

An owner that is the question's name is the pointer 0xC00C, so the client's spelling comes back by itself
(draft-vixie-dnsext-dns0x20). Other owners end in a pointer to the question's zone. The names in SRV and
DNAME rdata are never compressed (RFC 2782, RFC 6672 §2.5): other implementations refuse the whole message then.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import pack
from typing import Final

from kdns.dns.names import MAX_NAME_BYTES, POINTER, Labels, encode_labels, encode_name, is_below, labels_of
from kdns.dns.query import HEADER_BYTES, Edns, encode_options
from kdns.dns.rdata import wire_of
from kdns.dns.rrset import Mx, Rdata, RRset, Soa, Srv
from kdns.dns.types import AAAA, DNAME, SRV, A

OWN_PAYLOAD_BYTES: Final = 1232
"""The size in kdns's OPT: the UDP payload that it can receive without fragments (DNS flag day 2020)."""
MAX_OFFSET: Final = 0x3FFF
ENDLESS: Final = 1 << 32

QUESTION_POINTER: Final = pack("!H", POINTER | HEADER_BYTES)


def encode_opt(edns: Edns, extended_rcode: int = 0, options: tuple[tuple[int, bytes], ...] = ()) -> bytes:
    """kdns's OPT record in answer to a client's (RFC 6891 §6.1.2)."""
    if not (extended_rcode or options):
        return _OPT_DO if edns.do else _OPT
    rdata = encode_options(options)
    flags = 0x8000 if edns.do else 0
    return pack("!BHHBBHH", 0, 41, OWN_PAYLOAD_BYTES, extended_rcode, 0, flags, len(rdata)) + rdata


_OPT: Final = pack("!BHHBBHH", 0, 41, OWN_PAYLOAD_BYTES, 0, 0, 0, 0)
_OPT_DO: Final = pack("!BHHBBHH", 0, 41, OWN_PAYLOAD_BYTES, 0, 0, 0x8000, 0)


class Names:
    """The names in the message that a pointer can refer to: the question's, its zone, and owners written since."""

    __slots__ = ("_offsets", "_question", "_text", "_zone")

    def __init__(self, question: Labels = (), text: str = "", zone: Labels = ()) -> None:
        """`question` is folded, `text` is the same name as text, `zone` a suffix that other names may compress to."""
        self._question = question
        self._text = text
        self._zone = zone
        self._offsets: dict[Labels, int] | None = None

    @classmethod
    def at(cls, name: Labels, offset: int) -> Names:
        names = cls()
        names._offsets = {name: offset} if name else {}
        return names

    def encode(self, name: str, at: int) -> bytes:
        """The name, compressed; `at` is its own position. ValueError for a name that cannot be written."""
        if name == self._text and self._question:
            return QUESTION_POINTER
        labels = labels_of(name)
        offsets = self.offsets
        for cut in range(len(labels)):
            offset = offsets.get(labels[cut:])
            if offset is not None:
                if sum(map(len, labels)) + len(labels) >= MAX_NAME_BYTES:
                    raise ValueError(f"a name has at most {MAX_NAME_BYTES} bytes, also behind a pointer")
                self._remember(labels, cut, at)
                return encode_labels(labels[:cut]) + pack("!H", POINTER | offset)
        self._remember(labels, len(labels), at)
        return encode_name(labels)

    def forget_from(self, position: int) -> None:
        """Drops the pointers at or after `position`, because the bytes there did not fit."""
        self._offsets = {name: offset for name, offset in self.offsets.items() if offset < position}

    @property
    def offsets(self) -> dict[Labels, int]:
        if self._offsets is None:
            question, zone = self._question, self._zone
            self._offsets = {question: HEADER_BYTES} if question else {}
            if zone and is_below(question, zone):
                above = question[: len(question) - len(zone)]
                self._offsets[zone] = HEADER_BYTES + sum(1 + len(label) for label in above)
        return self._offsets

    def _remember(self, labels: Labels, count: int, at: int) -> None:
        offsets = self.offsets
        for number in range(count):
            if at > MAX_OFFSET:
                return
            offsets.setdefault(labels[number:], at)
            at += 1 + len(labels[number])


def encode_rrset(rrset: RRset, names: Names, at: int, end: int = ENDLESS) -> list[bytes]:
    """Up to the first record beyond `end`. One whose name is longer than 255 bytes is left out."""
    records: list[bytes] = []
    for rdata in rrset.rdata:
        try:
            owner = names.encode(rrset.owner, at)
            if rrset.rtype in _WRITTEN_OUT:
                body = rdata if isinstance(rdata, bytes) else wire_of(rdata)
            else:
                body = _compressed(rdata, names, at + len(owner) + 10)
        except (ValueError, UnicodeEncodeError):
            names.forget_from(at)
            continue
        record = owner + pack("!HHIH", rrset.rtype, rrset.rclass, rrset.ttl, len(body)) + body
        records.append(record)
        at += len(record)
        if at > end:
            break
    return records


_WRITTEN_OUT: Final = frozenset((A, AAAA, SRV, DNAME))
"""Types without names, or whose names are never compressed."""


def _compressed(rdata: Rdata, names: Names, at: int) -> bytes:
    match rdata:
        case bytes() | Srv():
            return wire_of(rdata)
        case Soa():
            mname = names.encode(rdata.mname, at)
            rname = names.encode(rdata.rname, at + len(mname))
            times = (rdata.serial, rdata.refresh, rdata.retry, rdata.expire, rdata.minimum)
            return mname + rname + pack("!IIIII", *times)
        case Mx():
            return pack("!H", rdata.preference) + names.encode(rdata.exchange, at + 2)
        case str():
            return names.encode(rdata, at)


def encode_section(rrsets: Iterable[RRset], names: Names, at: int, end: int = ENDLESS) -> list[bytes]:
    records: list[bytes] = []
    for rrset in rrsets:
        encoded = encode_rrset(rrset, names, at, end)
        at += sum(map(len, encoded))
        records += encoded
        if at > end:
            break
    return records
