"""`hosts`: what of a file and of the block counts, which names are there, and what changes with the file."""

import asyncio

import pytest
from configured import configured
from dns_chain import Behind, FakeWorld, ask
from harness import server_of
from zone_text import record_texts

from kdns.answers.chain import Sees
from kdns.answers.response import Response
from kdns.answers.table import packet_key
from kdns.corefile.parse import parse
from kdns.dns.message import query
from kdns.dns.types import REFUSED, A
from kdns.dnsserver.blocks import Server
from kdns.plugins.directives import configure
from kdns.plugins.sources import hosts
from kdns.plugins.sources.hosts import MAX_RECORDS, HostTable, read_entries

FILE = """
127.0.0.1 localhost  # the machine itself
10.0.0.1 Web.example.org www.example.org Web.example.org
10.0.0.1 web.example.org
fd00::1%eth0 web.example.org
10.0.0.2 *.apps.example.org
fd00::2 v6.apps.example.org
10.0.0.3 a..b bad\\999.name fine.example.org
300.0.0.1 wrong.example.org
10.0.0.4
"""


def served(stanza: str, text: str = FILE, zone: str = ".") -> tuple[Server, FakeWorld]:
    setup = FakeWorld(files={"/etc/hosts": text})
    refusing = Behind(lambda _request: Response(REFUSED), Sees.PACKET)
    return server_of(stanza, setup, refusing, zone=zone), setup


def answer(server: Server, name: str, qtype: str) -> tuple[str, list[str]]:
    got = asyncio.run(ask(server, name, qtype))
    return got.rcode, [line for rrset in got.answer for line in record_texts(rrset)]


@pytest.mark.parametrize(
    ("stanza", "name", "qtype", "rcode", "records"),
    [
        ("hosts", "WEB.example.org.", "A", "NOERROR", ["WEB.example.org. 3600 IN A 10.0.0.1"]),
        ("hosts", "web.example.org.", "AAAA", "NOERROR", ["web.example.org. 3600 IN AAAA fd00::1"]),
        ("hosts", "web.example.org.", "ANY", "NOERROR",
         ["web.example.org. 3600 IN A 10.0.0.1", "web.example.org. 3600 IN AAAA fd00::1"]),
        ("hosts {\nttl 9\n}", "www.example.org.", "A", "NOERROR", ["www.example.org. 9 IN A 10.0.0.1"]),
        ("hosts", "www.example.org.", "TXT", "NOERROR", []),
        ("hosts", "1.0.0.10.in-addr.arpa.", "PTR", "NOERROR",
         [f"1.0.0.10.in-addr.arpa. 3600 IN PTR {name}.example.org." for name in ("Web", "www")]),
        ("hosts", "1.0.0.10.in-addr.arpa.", "A", "NOERROR", []),
        ("hosts", "9.0.0.10.in-addr.arpa.", "PTR", "REFUSED", []),
        ("hosts {\nno_reverse\n}", "1.0.0.10.in-addr.arpa.", "PTR", "REFUSED", []),
        ("hosts /etc/hosts example.net", "1.0.0.10.in-addr.arpa.", "PTR", "REFUSED", []),
        ("hosts", "x.apps.example.org.", "A", "NOERROR", ["x.apps.example.org. 3600 IN A 10.0.0.2"]),
        ("hosts", "v6.apps.example.org.", "A", "NOERROR", []),
        ("hosts", "y.x.apps.example.org.", "A", "SERVFAIL", []),
        ("hosts {\n10.1.1.1 a.b.apps.example.org\n}", "b.apps.example.org.", "A", "NOERROR", []),
        ("hosts", "apps.example.org.", "A", "NOERROR", []),
        ("hosts", "fine.example.org.", "A", "NOERROR", ["fine.example.org. 3600 IN A 10.0.0.3"]),
        ("hosts", "wrong.example.org.", "A", "SERVFAIL", []),
        ("hosts", ".", "A", "NOERROR", []),
        ("hosts {\nfallthrough\n}", "wrong.example.org.", "A", "REFUSED", []),
        ("hosts {\nfallthrough\n}", "apps.example.org.", "A", "REFUSED", []),
        ("hosts {\nfallthrough\n}", "web.example.org.", "TXT", "NOERROR", []),
        ("hosts {\nfallthrough example.net\n}", "wrong.example.org.", "A", "SERVFAIL", []),
        ("hosts {\nfallthrough\nfallthrough_unsupported\n}", "web.example.org.", "TXT", "REFUSED", []),
        ("hosts /etc/hosts example.net", "web.example.org.", "A", "REFUSED", []),
        ("hosts {\n10.1.1.1 web.example.org more\n}", "web.example.org.", "A", "NOERROR",
         ["web.example.org. 3600 IN A 10.0.0.1", "web.example.org. 3600 IN A 10.1.1.1"]),
        ("hosts missing {\n10.1.1.1 more\n}", "more.", "A", "NOERROR", ["more. 3600 IN A 10.1.1.1"]),
    ],
)  # fmt: skip
def test_answers(stanza: str, name: str, qtype: str, rcode: str, records: list[str]) -> None:
    server, _ = served(stanza)
    answer_records = answer(server, name, qtype)
    assert (answer_records[0], sorted(answer_records[1])) == (rcode, sorted(records))


def test_another_file_is_seen_at_once() -> None:
    server, setup = served("hosts")
    for _ in range(2):
        assert answer(server, "web.example.org.", "A") == ("NOERROR", ["web.example.org. 3600 IN A 10.0.0.1"])
    packet = query("web.example.org.", A, payload_bytes=4096)
    assert packet_key(packet) in server.table.partition("udp", 4).answers
    setup.clock_s = 7.0
    setup.readers["/etc/hosts"]("10.0.0.9 web.example.org")
    assert answer(server, "web.example.org.", "A") == ("NOERROR", ["web.example.org. 3600 IN A 10.0.0.9"])
    assert [*setup.exposed["coredns_hosts_entries"]()] == [(("/etc/hosts",), 2)]
    assert [*setup.exposed["coredns_hosts_reload_timestamp_seconds"]()] == [((), 7.0)]


def test_one_address_with_very_many_names_is_bounded() -> None:
    table = HostTable(read_entries("\n".join(f"0.0.0.0 ad{number}.example.org" for number in range(3000))), (".",))
    assert len(table.addresses) == 3000
    assert table.size == 3000 + MAX_RECORDS


def test_an_address_that_is_none_leaves_out_its_line() -> None:
    """CoreDNS goes on as well; `kdns check` warns at the line."""
    stanza = "hosts {\n10.1.1.1 more\n300.1.1.1 wrong\n1::2::3 wrong\n10.1.1.2 a..b most\n}"
    server, setup = served(stanza)
    assert answer(server, "most.", "A") == ("NOERROR", ["most. 3600 IN A 10.1.1.2"])
    assert [(line["event"], line["line"]) for line in setup.lines] == [
        ("hosts line ignored", line) for line in (4, 5, 6)
    ]
    (config,) = configured(f". {{\n{stanza}\n}}")
    assert [(warning.line, warning.token) for warning in config.warnings()] == [
        (4, "300.1.1.1"),
        (5, "1::2::3"),
        (6, "a..b"),
    ]


IGNORED = [
    ("host.test 10.0.0.1", "the address comes first: `10.0.0.1 host.test`; the line is ignored"),
    ("a b ::1", "the address comes first: `::1 a b`; the line is ignored"),
    ("10.0.0.1", "expected a name after 10.0.0.1; the line is ignored"),
    ("10.0.0.1 {$UNSET}", "expected a name after 10.0.0.1; the line is ignored; {$UNSET} is empty or not set"),
    ("{$UNSET}", "expected ADDRESS NAME..., got ''; the line is ignored; {$UNSET} is empty or not set"),
    ("10.0.0.1, a", "expected ADDRESS NAME..., got '10.0.0.1,'; write the address as 10.0.0.1; the line is ignored"),
    (
        "10.0.0.1/24 a",
        "expected ADDRESS NAME..., got '10.0.0.1/24'; write the address as 10.0.0.1; the line is ignored",
    ),
    ("10.0.0.300 a", "expected ADDRESS NAME..., got '10.0.0.300'; the line is ignored"),
    ("addres a", "expected ADDRESS NAME..., got 'addres'; the line is ignored"),
    (
        "fallthrogh",
        "expected ADDRESS NAME..., got 'fallthrogh'; the line is ignored; did you mean the option `fallthrough`?",
    ),
    (
        "cache 30",
        "expected ADDRESS NAME..., got 'cache'; the line is ignored; is a `}` missing before the directive `cache`?",
    ),
]


@pytest.mark.parametrize(("line", "reason"), IGNORED)
def test_a_line_that_is_no_entry_is_ignored_and_reported(line: str, reason: str) -> None:
    server, setup = served(f"hosts {{\n10.1.1.1 more\n{line}\n10.1.1.2 most\n}}")
    assert answer(server, "most.", "A") == ("NOERROR", ["most. 3600 IN A 10.1.1.2"])
    assert [(line["event"], line["line"], line["reason"]) for line in setup.lines] == [
        ("hosts line ignored", 4, reason)
    ]


def test_a_variable_may_hold_several_names() -> None:
    (block,) = parse(". {\nhosts {\n10.1.1.1 {$NAMES}\n}\n}", environ={"NAMES": "a b"})
    (server,) = configure([block])
    assert [entry.names for config in server.configs(hosts.DIRECTIVE) for entry in config.inline] == [("a.", "b.")]
