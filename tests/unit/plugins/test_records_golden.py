"""Every row of tests/golden/records through whole packets."""

from collections import Counter
from collections.abc import Iterable

import pytest
from decoded_message import decode
from dns_chain import cluster_server, respond
from records_table import OWN, SERIAL, Case, Row, cases

from kdns.dns.message import query
from kdns.dns.rrset import RRset
from kdns.dns.types import AAAA, A
from kdns.dnsserver.blocks import Server

CASES = cases()
ROWS = [(case, row) for case in CASES for row in case.rows]

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
