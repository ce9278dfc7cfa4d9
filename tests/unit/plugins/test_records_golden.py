"""Every row of tests/golden/records through the pure core and through whole packets."""

from collections import Counter
from collections.abc import Iterable

import pytest
from decoded_message import decode
from dns_chain import cluster_server, respond
from records_table import OWN, SERIAL, Case, Row, cases, folded

from kdns.dns.message import query
from kdns.dns.names import labels_of
from kdns.dns.rrset import RRset
from kdns.dns.types import AAAA, ANY, A
from kdns.dnsserver.blocks import Server
from kdns.plugins.sources.kubernetes.service import ServiceNames
from kdns.plugins.sources.kubernetes.zone import Status, Zones

CASES = cases()
ROWS = [(case, row) for case in CASES for row in case.rows]
STATUSES = {"NOERROR": Status.SUCCESS} | {status.name: status for status in Status if status is not Status.SUCCESS}
AXFR_AND_IXFR = {251, 252}

by_case = pytest.mark.parametrize("case", [pytest.param(case, id=case.title) for case in CASES])


def server_of(case: Case) -> Server:
    server, plugin = cluster_server(case.state(), case.options, fallthrough=case.directive.fallthrough)
    plugin.renew(SERIAL)
    return server


def are_ordered(additional: Iterable[RRset]) -> bool:
    """Whether the addresses of one target are A before AAAA."""
    additional_records = [(rrset.owner, rrset.rtype) for rrset in additional if rrset.rtype in {A, AAAA}]
    owners = list(dict.fromkeys(owner for owner, _ in additional_records))
    return additional_records == sorted(additional_records, key=lambda pair: (owners.index(pair[0]), pair[1]))


@by_case
def test_the_core(case: Case) -> None:
    zones = Zones(case.state(), case.options)
    zones.serial = SERIAL
    for row in case.rows:
        got = zones.lookup(row.labels, row.qtype)
        if not row.is_authoritative:
            falls = any(row.labels[-len(zone) :] == zone for zone in map(labels_of, case.directive.fallthrough))
            assert row.qtype in AXFR_AND_IXFR or got is None or falls, row
            continue
        assert got is not None, row
        authority = [zones.soa(got.zone)] if got.status is not Status.SUCCESS else []
        sections = tuple(folded(part) for part in (got.answer, authority, got.additional))
        assert (got.status, sections) == (STATUSES[row.status], row.sections), row
        assert are_ordered(got.additional), row


@pytest.mark.parametrize("payload_bytes", [4096, 1232, 0], ids=["large", "usual", "plain"])
@by_case
def test_the_bytes(case: Case, payload_bytes: int) -> None:
    """Twice, since the second answer comes from the table."""
    server = server_of(case)
    for row in case.rows:
        packet = query(row.name, row.qtype, payload_bytes=payload_bytes)
        first, second = respond(server, packet), respond(server, packet)
        assert row.difference(decode(first)) == ""
        assert are_ordered(decode(first).additional), row
        assert first == second, row
        assert len(first) <= max(payload_bytes, 512)


@by_case
def test_letters_of_any_size_come_back_as_they_were(case: Case) -> None:
    server = server_of(case)
    for row in case.rows:
        name = "".join(letter.upper() if index % 2 else letter for index, letter in enumerate(row.name))
        for packet in (query(name, row.qtype), query(row.name, row.qtype), query(name, row.qtype)):
            got = respond(server, packet)
            assert got[12 : len(packet)] == packet[12:], row
            assert row.difference(decode(got)) == ""


def test_the_table_holds_what_it_should() -> None:
    """A row that says nothing would prove nothing."""
    assert len(ROWS) > 200
    statuses = Counter(row.status for _, row in ROWS)
    assert statuses.keys() == {"NOERROR", "NODATA", "NXDOMAIN", "SERVFAIL", "REFUSED"}
    answered = {rrset.rtype for _, row in ROWS for rrset in row.answer}
    assert answered == {1, 2, 5, 6, 12, 16, 28, 33}
    assert len({(case.title, row.name, row.qtype) for case, row in ROWS}) == len(ROWS)
    assert OWN == "127.0.0.1"


def test_a_wrong_row_is_seen() -> None:
    case, row = next((case, row) for case, row in ROWS if row.status == "NOERROR" and row.additional)
    server = server_of(case)
    decoded = decode(respond(server, query(row.name, row.qtype)))
    wrong: list[Row] = [
        Row(row.name, row.qtype, "NXDOMAIN", True, row.answer, row.authority, row.additional),
        Row(row.name, row.qtype, row.status, False, row.answer, row.authority, row.additional),
        Row(row.name, row.qtype, row.status, True, (), row.authority, row.additional),
        Row(row.name, row.qtype, row.status, True, row.answer, row.authority, ()),
    ]
    assert row.difference(decoded) == ""
    assert "" not in [one.difference(decoded) for one in wrong]


@by_case
def test_addresses_of_a_service_are_the_same_without_its_ports(case: Case) -> None:
    state = case.state()
    for service in state.services.values():
        names = ServiceNames(service, state.slices_of(service.key), case.options)
        alone, whole = names.get((), A), names.get((), ANY)
        assert (alone and alone[0]) == (whole and whole[0])
