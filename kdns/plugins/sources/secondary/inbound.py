"""Inbound transfers: the query, the end of its answer, and the zone (RFC 5936 §2.2, RFC 1995 §4).

The bytes are the primary's, so sizes are limited, and every violation is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from struct import pack
from typing import Final

from kdns.dns.names import encode_name, folded, labels_of, lowered, text_of
from kdns.dns.query import QR
from kdns.dns.rdata import expanded, rdata_of, wire_of
from kdns.dns.rrset import Rdata, RRset
from kdns.dns.types import IN, SOA, rcode_name
from kdns.dns.wire import ANSWER, Record, owner_of, records
from kdns.dns.zone.difference import is_newer
from kdns.dns.zone.zone import MAX_RECORDS, Zone
from kdns.plugins.sources.transfer import LEAST_SOA_BYTES, serial_at, soa_serial

MAX_TRANSFER_BYTES: Final = 256 << 20
"""The limit of all messages of one transfer."""


class TransferKind(Enum):
    """The kind of a transfer."""

    UNKNOWN = "unknown"
    CURRENT = "current"
    """The primary has nothing newer."""
    FULL = "full"
    CHANGES = "changes"


def question(zone: str, qtype: int, message_id: int, soa: RRset | None = None) -> bytes:
    """A query about a zone; for IXFR with the current SOA in the authority section."""
    name = encode_name(labels_of(zone))
    packet = pack("!HHHHHH", message_id, 0, 1, 0, soa is not None, 0) + name + pack("!HH", qtype, IN)
    if soa is None:
        return packet
    rdata = wire_of(soa.rdata[0])
    return packet + b"\xc0\x0c" + pack("!HHIH", SOA, IN, soa.ttl, len(rdata)) + rdata


def serial_in(packet: bytes) -> int:
    """The serial in the response to a query for an SOA; ValueError without one."""
    _refuse_errors(packet)
    serial = soa_serial(packet, ANSWER)
    if serial is None:
        raise ValueError("a response without an SOA record")
    return serial


class Inbound:
    """The messages of one transfer of the zone `name`; `held` is the serial in an IXFR query, None for AXFR."""

    def __init__(self, name: str, held: int | None = None) -> None:
        self._name, self._labels = name, labels_of(folded(name))
        self._held = held
        self.messages: list[bytes] = []
        self.kind = TransferKind.UNKNOWN
        self.serial = 0
        self._count = 0
        self._size_bytes = 0
        self._from = held
        self._adding: int | None = None
        self._is_complete = False

    def feed(self, packet: bytes) -> bool:
        """Takes the next message; True after the last one. ValueError if it is not a transfer."""
        _refuse_errors(packet)
        self._size_bytes += len(packet)
        if self._size_bytes > MAX_TRANSFER_BYTES:
            raise ValueError(f"a transfer of more than {MAX_TRANSFER_BYTES >> 20} MiB")
        answer = [record for record in records(packet) if record.section == ANSWER]
        if self._count + len(answer) > MAX_RECORDS:
            raise ValueError(f"a transfer of more than {MAX_RECORDS:,} records")
        if not answer:
            raise ValueError("a message without records")
        for record in answer:
            if self._is_complete:
                raise ValueError("records behind the last SOA")
            self._take(record.rtype, self._soa_serial(packet, record) if record.rtype == SOA else None)
        if self._count == 1 and self._held is not None and not is_newer(self.serial, self._held):
            self.kind, self._is_complete = TransferKind.CURRENT, True
        self.messages.append(packet)
        return self._is_complete

    def _soa_serial(self, packet: bytes, record: Record) -> int:
        owner = lowered(owner_of(packet, record))
        if owner != self._labels or record.end - record.rdata_at < LEAST_SOA_BYTES:
            raise ValueError("an SOA record that is not the zone's")
        return serial_at(packet, record.end)

    def _take(self, rtype: int, serial: int | None) -> None:
        self._count += 1
        if self._count == 1:
            if serial is None:
                raise ValueError("a transfer begins with an SOA record")
            self.serial = serial
            return
        if self._count == 2:
            is_changes = self._held is not None and rtype == SOA and serial == self._held
            self.kind = TransferKind.CHANGES if is_changes else TransferKind.FULL
            if is_changes:
                return
        if serial is None:
            return
        if self.kind is TransferKind.FULL:
            if serial != self.serial:
                raise ValueError("an SOA record in the middle of a zone")
            self._is_complete = True
        elif self._adding is None:
            if not is_newer(serial, self._from or 0):
                raise ValueError(f"changes from serial {self._from} to {serial}, which is not newer")
            self._adding = serial
        else:
            if serial != self._adding:
                raise ValueError(f"changes to serial {self._adding} are followed by those from {serial}")
            self._is_complete = serial == self.serial
            self._from, self._adding = serial, None

    def zone(self, held: Zone | None) -> Zone:
        """The transferred zone, or the zone `held` with the changes; ValueError if they are invalid."""
        if self.kind is TransferKind.CHANGES and held:
            return _changed(self._name, held, list(self.records()))
        return Zone(self._name, list(self.records())[:-1])

    def records(self) -> Iterator[RRset]:
        for packet in self.messages:
            for record in records(packet):
                if record.section == ANSWER:
                    wire = expanded(record.rtype, packet, record.rdata_at, record.end)
                    owner = text_of(owner_of(packet, record))
                    yield RRset(owner, record.rtype, record.ttl, (rdata_of(record.rtype, wire),), record.rclass)


def _changed(name: str, held: Zone, changes: Sequence[RRset]) -> Zone:
    """ValueError if a change removes a missing record."""
    content: dict[tuple[str, int, Rdata], RRset] = {}
    for rrset in held.records():
        for rdata in rrset.rdata:
            content[rrset.owner, rrset.rtype, rdata] = RRset(rrset.owner, rrset.rtype, rrset.ttl, (rdata,))
    soa, *steps = changes
    is_adding = True
    for rrset in steps[:-1]:
        if rrset.rtype == SOA:
            is_adding = not is_adding
            continue
        owner = folded(rrset.owner)
        key = owner, rrset.rtype, rrset.rdata[0]
        if is_adding:
            content[key] = rrset
        elif content.pop(key, None) is None:
            raise ValueError(f"changes that do not fit what is held: {owner} is not there")
    return Zone(name, (soa, *content.values()))


def _refuse_errors(packet: bytes) -> None:
    flags = int.from_bytes(packet[2:4], "big")
    if not flags & QR or flags & 15:
        raise ValueError(f"the answer is {rcode_name(flags & 15)}" if flags & QR else "no answer")
