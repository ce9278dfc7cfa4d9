"""records: zones in the Corefile are answered as those of files, without an SOA where there is none."""

import pytest
from dns_chain import FakeWorld, ask, respond
from zone_text import record_texts

from kdns.answers.chain import Block, Chain
from kdns.corefile.parse import parse
from kdns.dns.message import query
from kdns.dns.types import A
from kdns.dnsserver.blocks import Server
from kdns.plugins.sources import records, whoami
from kdns.plugins.sources.records import Records, RecordsConfig

SOA = "example.org. 60 IN SOA ns.icann.org. noc.dns.icann.org. 2020091001 7200 3600 1209600 3600"
PLAIN = r"""
@ 60 IN MX 10 mx
mx 60 IN A 127.0.0.1
*.web A 192.0.2.1
www CNAME mx
key._domainkey IN TXT "v=DKIM1\; k=rsa" other
texts IN TXT "one two;" three "\"four\"" "" "IN"
below.sub A 192.0.2.2
"""
WITH_SOA = f"{SOA}\n{PLAIN}"
MX = "mx.example.org. 60 IN A 127.0.0.1"


def configured(text: str, zones: str = "") -> RecordsConfig:
    (block,) = parse(f"example.org {{\nrecords {zones} {{\n{text}\n}}\n}}", "F")
    (stanza,) = block.stanzas
    return records.parse(stanza, ("example.org.",))


def served(config: RecordsConfig) -> tuple[Server, Records, FakeWorld]:
    setup = FakeWorld()
    plugin = records.Records(config, setup)
    server = Server("dns://:53", (Block(".", Chain((plugin, whoami.Whoami()))),))
    setup.servers.append(server)
    return server, plugin, setup


ROWS: list[tuple[str, str, str, str, list[str]]] = [
    (PLAIN, "mx.example.org.", "A", "NOERROR", [MX]),
    (PLAIN, "MX.example.org.", "AAAA", "NOERROR", []),
    (PLAIN, "bla.example.org.", "A", "NXDOMAIN", []),
    (PLAIN, "example.org.", "SOA", "NOERROR", []),
    (PLAIN, "example.org.", "ANY", "NOERROR", ["example.org. 60 IN MX 10 mx.example.org."]),
    (PLAIN, "sub.example.org.", "A", "NOERROR", []),
    (PLAIN, "x.web.example.org.", "A", "NOERROR", ["x.web.example.org. 3600 IN A 192.0.2.1"]),
    (PLAIN, "www.example.org.", "A", "NOERROR", ["www.example.org. 3600 IN CNAME mx.example.org.", MX]),
    (PLAIN, "key._domainkey.example.org.", "TXT", "NOERROR", [
        'key._domainkey.example.org. 3600 IN TXT "v=DKIM1; k=rsa" "other"']),
    (PLAIN, "texts.example.org.", "TXT", "NOERROR", [
        'texts.example.org. 3600 IN TXT "one two;" "three" "four" "" "IN"']),
    (WITH_SOA, "mx.example.org.", "A", "NOERROR", [MX]),
    (WITH_SOA, "mx.example.org.", "AAAA", "NOERROR", [SOA]),
    (WITH_SOA, "bla.example.org.", "A", "NXDOMAIN", [SOA]),
    (WITH_SOA, "example.org.", "SOA", "NOERROR", [SOA]),
]  # fmt: skip
"""Records, a question, and its response code and records of the answer and authority sections."""


@pytest.mark.parametrize(("text", "name", "qtype", "rcode", "expected"), ROWS)
async def test_answers(text: str, name: str, qtype: str, rcode: str, expected: list[str]) -> None:
    server, _, _ = served(configured(text))
    response = await ask(server, name, qtype)
    assert response.rcode == rcode
    assert [line for rrset in (*response.answer, *response.authority) for line in record_texts(rrset)] == expected
    assert "aa" in response.flags


async def test_each_zone_has_relative_names_and_the_next_directive_other_names() -> None:
    server, _, _ = served(configured("@ MX 10 mx\nmx.a.example. A 192.0.2.1", "a.example b.example"))
    for name, rcode in (("mx.a.example.", "NOERROR"), ("mx.b.example.", "NXDOMAIN"), ("c.example.", "NOERROR")):
        response = await ask(server, name)
        assert (response.rcode, bool(response.additional)) == (rcode, name == "c.example."), name
    for zone in ("a.example.", "b.example."):
        response = await ask(server, zone, "MX")
        assert [line for rrset in response.answer for line in record_texts(rrset)] == [
            f"{zone} 3600 IN MX 10 mx.{zone}"
        ]


def test_answers_are_kept_by_the_table() -> None:
    server, _, _ = served(configured(PLAIN))
    packets = [query(f"{name}.example.org.", A) for name in ("mx", "none", "www")]
    assert all(respond(server, packet) for packet in packets)
    assert len(server.table) == len(packets)


@pytest.mark.parametrize(("text", "zones"), [(PLAIN, ()), (WITH_SOA, ("example.org.",))])
def test_zones_with_an_soa_are_transferred(text: str, zones: tuple[str, ...]) -> None:
    _, plugin, _ = served(configured(text))
    assert plugin.transfer_zones() == zones
    assert bool(plugin.transfer("example.org.", None)) is bool(zones)


def test_records_of_no_zone_are_reported() -> None:
    config = configured("www A 192.0.2.1\nwww.example.net. A 192.0.2.1\n$ORIGIN a.example.org.")
    assert [warning.line for warning in records.DIRECTIVE.warnings(config)] == [4, 5]
