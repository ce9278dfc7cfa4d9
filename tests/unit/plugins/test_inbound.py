"""Transfers as they arrive: where they end, what they make of a zone, and what is refused."""

from collections.abc import Sequence
from struct import pack

import pytest
from zone_text import record_texts

from kdns.dns.names import encode_name, labels_of
from kdns.dns.query import QR
from kdns.dns.rdata import wire_of
from kdns.dns.zone.zone import Zone
from kdns.dns.zonefile import parse_record
from kdns.plugins.sources.secondary.inbound import Inbound, TransferKind, serial_in


def soa(serial: int) -> str:
    return f"x. 60 IN SOA ns.x. admin.x. {serial} 7200 3600 86400 60"


def message(*lines: str, flags: int = QR) -> bytes:
    body = b""
    for rrset in map(parse_record, lines):
        rdata = wire_of(rrset.rdata[0])
        body += encode_name(labels_of(rrset.owner)) + pack("!HHIH", rrset.rtype, 1, rrset.ttl, len(rdata)) + rdata
    return pack("!HHHHHH", 7, flags, 0, len(lines), 0, 0) + body


A1, A2, A3 = (f"a.x. 60 IN A 192.0.2.{number}" for number in (1, 2, 3))
HELD = (soa(1), "x. 60 IN NS ns.x.", A1, A2)
# messages, the serial that is held, what it is, the records that there are afterwards
WHOLE: dict[str, tuple[list[Sequence[str]], int | None, TransferKind, list[str]]] = {
    "AXFR in one message": ([(soa(2), A1, soa(2))], None, TransferKind.FULL, [A1]),
    "AXFR record by record": ([(soa(2),), (A1,), (A2,), (soa(2),)], None, TransferKind.FULL, [A1, A2]),
    "nothing newer": ([(soa(1),)], 1, TransferKind.CURRENT, []),
    "IXFR in full": ([(soa(2), A3), (soa(2),)], 1, TransferKind.FULL, [A3]),
    "IXFR in full, the SOA alone": ([(soa(2),), (A3, soa(2))], 1, TransferKind.FULL, [A3]),
    "one change": ([(soa(2), soa(1), A1, soa(2), A3, soa(2))], 1, TransferKind.CHANGES, [A2, A3]),
    "letters of another case": ([(soa(2).replace("x.", "X.", 1), A1, soa(2))], None, TransferKind.FULL, [A1]),
    "two changes": (
        [(soa(3), soa(1), A1), (soa(2), A3, soa(2), A2), (soa(3),), (A1, soa(3))], 1, TransferKind.CHANGES, [A1, A3],
    ),
}  # fmt: skip
REFUSED = {
    "an error": message(soa(1), flags=QR | 5),
    "a query": message(soa(1), flags=0),
    "no records": message(),
    "no SOA first": message(A1),
    "another SOA in between": message(soa(2), A1, soa(1)),
    "records behind the end": message(soa(2), A1, soa(2), A2),
    "cut": message(soa(2), A1)[:-3],
}

# what a primary whose differences are wrong sends to a secondary that has serial 1
LIES = {
    "changes that do not follow each other": (soa(4), soa(1), A1, soa(2), A3, soa(3), A3, soa(4), A1, soa(4)),
    "changes that go back": (soa(4), soa(1), A1, soa(2), A3, soa(2), A3, soa(1), A1, soa(1)),
    "changes to another serial": (soa(4), soa(1), A1, soa(3), A3, soa(4)),
    "changes that stand still": (soa(4), soa(1), A1, soa(1), A1, soa(1)),
    "the SOA of another zone": (soa(2), A1, soa(2).replace("x.", "a.x.", 1)),
    "the first SOA of another zone": (soa(2).replace("x.", "y.", 1), A1, soa(2).replace("x.", "y.", 1)),
}


@pytest.mark.parametrize("about", LIES)
def test_lies(about: str) -> None:
    """They are refused at the first wrong record: a primary that never ends is not listened to for long."""
    with pytest.raises(ValueError, match=r"serial|not the zone's"):
        Inbound("x.", 1).feed(message(*LIES[about]))


@pytest.mark.parametrize("about", WHOLE)
def test_transfers(about: str) -> None:
    messages, held, kind, lines = WHOLE[about]
    inbound = Inbound("x.", held)
    assert [inbound.feed(message(*part)) for part in messages] == [False] * (len(messages) - 1) + [True]
    assert inbound.kind is kind
    if kind is not TransferKind.CURRENT:
        zone = inbound.zone(Zone("x.", map(parse_record, HELD)))
        got = [line for rrset in zone.records() for line in record_texts(rrset)]
        assert sorted(line for line in got if " A " in line) == sorted(lines)
        assert zone.serial == inbound.serial


@pytest.mark.parametrize("about", REFUSED)
def test_refused(about: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Inbound("x.").feed(REFUSED[about])


def test_the_records_of_a_transfer_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kdns.plugins.sources.secondary.inbound.MAX_RECORDS", 3)
    inbound = Inbound("x.")
    assert not inbound.feed(message(soa(2), A1))
    with pytest.raises(ValueError, match="more than 3 records"):
        inbound.feed(message(A2, A3))


def test_changes_that_do_not_fit() -> None:
    inbound = Inbound("x.", 1)
    inbound.feed(message(soa(2), soa(1), A3, soa(2), soa(2)))
    with pytest.raises(ValueError, match="not there"):
        inbound.zone(Zone("x.", map(parse_record, HELD)))


def test_the_serial_of_a_primary() -> None:
    assert serial_in(message(soa(9))) == 9
    with pytest.raises(ValueError, match="without an SOA"):
        serial_in(message(A1))
