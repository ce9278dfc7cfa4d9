"""`acl` beyond the recorded cases: addresses as listeners know them, EDNS, metrics, and the table in front of it."""

from ipaddress import ip_network
from itertools import pairwise

import pytest
from dns_chain import Behind, FakeWorld, read, respond, response_at_once
from harness import server_of

from kdns.answers.chain import Request, Sees
from kdns.answers.decode import from_wire
from kdns.answers.response import PRIVATE, Message, Response, Reuse
from kdns.dns.message import query
from kdns.dns.rrset import RRset
from kdns.dns.types import TXT, A
from kdns.dnsserver.blocks import Server
from kdns.net import client_address, packed
from kdns.plugins.guards import acl
from kdns.values import evolve


def address(request: Request) -> Response:
    return Response(answer=(RRset(request.query.name, A, 5, (packed("192.0.2.1"),)),), reuse=Reuse())


def server(stanza: str, setup: FakeWorld) -> Server:
    return server_of(stanza, setup, Behind(address, Sees.PACKET), zone="example.org")


def counts(setup: FakeWorld) -> dict[str, dict[tuple[str, ...], float]]:
    return {
        name.removeprefix("coredns_acl_").removesuffix("_requests"): {
            sample.labels: sample.value for sample in family.samples()
        }
        for name, family in setup.counted.items()
        if family.samples()
    }


@pytest.mark.parametrize(
    ("networks", "inside", "outside"),
    [
        (["10.0.0.0/8"], ["10.0.0.0", "10.255.255.255"], ["9.255.255.255", "11.0.0.0", "::a00:0"]),
        (["10.1.0.0/16", "10.2.3.4"], ["10.1.2.3", "10.2.3.4"], ["10.2.3.5"]),
        (["0.0.0.0/0"], ["1.2.3.4"], ["::1", ""]),
        (["fe80::/10", "fd00::1"], ["fe80::1%eth0", "fd00::1"], ["fd00::2", "10.0.0.1"]),
        (["10.0.0.0/8"], ["::ffff:10.0.0.1"], ["::ffff:11.0.0.1"]),
        ([], [], ["10.0.0.1", "::1", ""]),
    ],
)
def test_networks(networks: list[str], inside: list[str], outside: list[str]) -> None:
    accepted = acl.Networks(ip_network(text) for text in networks)
    assert [host for host in inside if client_address(host) not in accepted] == []
    assert [host for host in outside if client_address(host) in accepted] == []


def test_extended_errors_go_to_who_sent_an_opt() -> None:
    with_opt, without = query("a.example.org.", A, payload_bytes=1232), query("a.example.org.", A)
    block = server("acl {\nblock\n}", FakeWorld())
    got = [from_wire(Response(body=Message(respond(block, packet)))) for packet in (with_opt, without)]
    assert [(reply.rcode, reply.options) for reply in got] == [(5, ((15, b"\0\x0f"),)), (5, ())]
    wire = respond(block, without)
    assert wire[10:12] == b"\0\0"


RULES = """
acl example.org a.example.org {
    drop type TXT
    allow net 10.0.0.0/8
    block net 192.0.2.0/24
    filter
}
"""


def test_the_first_rule_decides_and_is_counted() -> None:
    setup = FakeWorld()
    guarded = server(RULES, setup)
    for host, name, qtype, rcode in (
        ("10.1.1.1", "b.example.org.", A, 0), ("10.1.1.1", "b.example.org.", TXT, None),
        ("192.0.2.9", "a.a.example.org.", A, 5), ("198.51.100.1", "example.org.", A, 0),
    ):  # fmt: skip
        wire = response_at_once(guarded, query(name, qtype), (host, 53)).wire
        assert (wire[3] & 15 if wire else None) == rcode
    assert len(guarded.table) == 0
    assert counts(setup) == {
        "allowed": {("dns://:53", ""): 1},
        "dropped": {("dns://:53", "example.org.", ""): 1},
        "blocked": {("dns://:53", "a.example.org.", ""): 1},
        "filtered": {("dns://:53", "example.org.", ""): 1},
    }


@pytest.mark.parametrize("host", ["10.1.1.1", "192.0.2.9", "198.51.100.1"])
@pytest.mark.parametrize(("rules", "is_for_all"), [("block net 192.0.2.0/24", False), ("block type TXT", True)])
def test_what_networks_decide_about_a_target_is_for_one_client(host: str, rules: str, *, is_for_all: bool) -> None:
    """The server asks for a CNAME's target in the client's name, and a cache in front of it serves all clients."""
    (block,) = server(f"acl {{\n{rules}\n}}", FakeWorld()).blocks
    request = Request(read(query("a.example.org.", A)), (host, 53), "127.0.0.1", "udp")
    for depth in (0, 1):
        reply = block.chain.serve(evolve(request, depth=depth))
        assert isinstance(reply, Response)
        assert (reply.reuse != PRIVATE) == (is_for_all or not depth)


def test_rules_without_networks_leave_the_table_on_and_the_counts_exact() -> None:
    setup = FakeWorld()
    guarded = server("acl {\nblock type TXT\n}", setup)
    for packet in (query("a.example.org.", A), query("a.example.org.", TXT)):
        assert [respond(guarded, packet) for _ in range(5)]
    assert len(guarded.table) == 2
    for partition in guarded.table.partitions.values():
        partition.totals()
    assert counts(setup) == {"allowed": {("dns://:53", ""): 5}, "blocked": {("dns://:53", "example.org.", ""): 5}}


def test_many_networks() -> None:
    networks = acl.Networks(ip_network((number << 8, 24)) for number in range(100_000))
    assert all(packed(f"0.{high}.{low}.1") in networks for high, low in pairwise(range(0, 250, 10)))
    assert packed("1.200.0.1") not in networks
