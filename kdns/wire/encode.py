"""RRsets to the bytes behind the question.

An owner that is the question's name is the pointer 0xC00C, so the client's spelling comes back by itself
(draft-vixie-dnsext-dns0x20). Other owners end in a pointer to the question's zone. The names in SRV rdata are
never compressed (RFC 2782).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from struct import pack
from typing import Final

from kdns.records.names import is_below, labels_of
from kdns.records.rrset import TXT, RRset, Soa, Srv
from kdns.wire.name import POINTER, encode_labels, encode_name
from kdns.wire.query import HEADER_BYTES, Edns

OWN_PAYLOAD_BYTES: Final = 1232
"""The UDP payload kdns can take without fragments, as it says in its OPT (DNS flag day 2020)."""
MAX_OFFSET: Final = 0x3FFF
ENDLESS: Final = 1 << 32
"""A position behind every message."""


def encode_opt(edns: Edns, extended_rcode: int = 0) -> bytes:
    """kdns's OPT record in answer to a client's (RFC 6891 §6.1.2)."""
    return pack("!BHHBBHH", 0, 41, OWN_PAYLOAD_BYTES, extended_rcode, 0, 0x8000 if edns.do else 0, 0)


@dataclass(slots=True)
class Names:
    """Where in the message names can be pointed at: the question's own, its zone, and owners written since."""

    offsets: dict[tuple[str, ...], int]

    @classmethod
    def of_question(cls, labels: tuple[str, ...], zone: tuple[str, ...]) -> Names:
        """The question's name and the part of it that is its zone."""
        offsets = {}
        if zone and is_below(labels, zone):
            offsets[zone] = HEADER_BYTES + sum(1 + len(label) for label in labels[: len(labels) - len(zone)])
        return cls({**offsets, labels: HEADER_BYTES} if labels else offsets)

    def encode(self, name: str, at: int) -> bytes:
        """The name, ending in a pointer where part of it already stands; `at` is its own position."""
        labels = labels_of(name)
        for cut in range(len(labels)):
            offset = self.offsets.get(labels[cut:])
            if offset is not None:
                self._remember(labels, cut, at)
                return encode_labels(labels[:cut]) + pack("!H", POINTER | offset)
        self._remember(labels, len(labels), at)
        return encode_name(name)

    def forget_from(self, position: int) -> None:
        """Point at nothing from `position` on: what was to stand there did not fit."""
        self.offsets = {name: offset for name, offset in self.offsets.items() if offset < position}

    def _remember(self, labels: tuple[str, ...], count: int, at: int) -> None:
        for number in range(count):
            if at > MAX_OFFSET:
                return
            self.offsets.setdefault(labels[number:], at)
            at += 1 + len(labels[number])


def encode_rrset(rrset: RRset, names: Names, at: int, end: int = ENDLESS) -> list[bytes]:
    """Each record of the set in bytes, the first starting at position `at` of the message.

    The first record that reaches beyond `end` is the last one that is written.
    A record whose name cannot be written (longer than 255 bytes) is left out: better one answer less than none.
    """
    records = []
    for rdata in rrset.rdata:
        try:
            owner = names.encode(rrset.owner, at)
            fixed = len(owner) + 10
            body = _rdata(rdata, rrset.rtype, names, at + fixed)
        except (ValueError, UnicodeEncodeError):
            names.forget_from(at)
            continue
        record = owner + pack("!HHIH", rrset.rtype, 1, rrset.ttl, len(body)) + body
        records.append(record)
        at += len(record)
        if at > end:
            break
    return records


def _rdata(rdata: object, rtype: int, names: Names, at: int) -> bytes:
    match rdata:
        case bytes() if rtype == TXT:
            return bytes((len(rdata),)) + rdata
        case bytes():
            return rdata
        case Srv():
            return pack("!HHH", rdata.priority, rdata.weight, rdata.port) + encode_name(rdata.target)
        case Soa():
            mname = names.encode(rdata.mname, at)
            rname = names.encode(rdata.rname, at + len(mname))
            times = (rdata.serial, rdata.refresh, rdata.retry, rdata.expire, rdata.minimum)
            return mname + rname + pack("!IIIII", *times)
        case _:
            return names.encode(str(rdata), at)


def encode_section(rrsets: Iterable[RRset], names: Names, at: int, end: int = ENDLESS) -> list[bytes]:
    """All records of a section, in order, up to the first that reaches beyond `end`."""
    records: list[bytes] = []
    for rrset in rrsets:
        encoded = encode_rrset(rrset, names, at, end)
        at += sum(map(len, encoded))
        records += encoded
        if at > end:
            break
    return records
