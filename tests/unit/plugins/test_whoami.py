"""`whoami` tells each client its own address and port, and is never answered for by the table."""

import pytest
from configured import configured
from decoded_message import decode
from dns_chain import FakeWorld, response_at_once, server_of

from kdns.dns.message import query
from kdns.dns.types import type_name, type_number
from kdns.dnsserver.blocks import Server
from kdns.net import unpacked


@pytest.fixture
def server() -> Server:
    (config,) = configured(". {\nwhoami\n}")
    return server_of(*config.build(FakeWorld()))


def additional(server: Server, name: str, qtype: str, client: tuple[str, int], transport: str) -> list[str]:
    """The additional section as text; the rest must be as it always is."""
    decoded = decode(response_at_once(server, query(name, type_number(qtype)), client, transport=transport).wire)
    assert (decoded.rcode, set(decoded.flags)) == ("NOERROR", {"qr", "aa", "rd"})
    assert (decoded.answer, decoded.authority) == ((), ())
    return [
        f"{rrset.owner} {rrset.ttl} {type_name(rrset.rtype)} {text(rrset.rdata[0])}" for rrset in decoded.additional
    ]


def text(rdata: object) -> str:
    return unpacked(rdata) if isinstance(rdata, bytes) else str(rdata)


@pytest.mark.parametrize(
    ("name", "qtype", "client", "transport", "records"),
    [
        ("example.org.", "A", ("192.0.2.1", 5353), "udp",
         ["example.org. 0 A 192.0.2.1", "_udp.example.org. 0 SRV Srv(priority=0, weight=0, port=5353, target='.')"]),
        ("A.Example.ORG.", "TXT", ("fd00::1", 1), "tcp",
         ["A.Example.ORG. 0 AAAA fd00::1", "_tcp.A.Example.ORG. 0 SRV Srv(priority=0, weight=0, port=1, target='.')"]),
        (".", "SRV", ("192.0.2.1", 65535), "udp",
         [". 0 A 192.0.2.1", "_udp. 0 SRV Srv(priority=0, weight=0, port=65535, target='.')"]),
        (f"{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 61}.", "A", ("192.0.2.1", 1), "udp",
         [f"{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 61}. 0 A 192.0.2.1"]),
    ],
)  # fmt: skip
def test_records(
    server: Server, name: str, qtype: str, client: tuple[str, int], transport: str, records: list[str]
) -> None:
    assert additional(server, name, qtype, client, transport) == records


def test_each_client_gets_its_own(server: Server) -> None:
    for port in (1, 2, 1):
        additional_records = additional(server, "example.org.", "A", ("192.0.2.1", port), "udp")
        assert f"port={port}," in additional_records[1]
    assert len(server.table) == 0


@pytest.mark.parametrize("qtype", ["AXFR", "IXFR"])
def test_transfers_are_refused(server: Server, qtype: str) -> None:
    response = response_at_once(server, query("example.org.", type_number(qtype)), transport="tcp")
    assert decode(response.wire).rcode == "REFUSED"
