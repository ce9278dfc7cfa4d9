"""Lines of the query log and of errors: formats, classes, whose rule decides, and what is consolidated."""

from collections.abc import Mapping
from typing import Any

import pytest
from configured import configured
from dns_chain import Behind, FakeWorld, plugin_of, read, respond, response_at_once, server_of, server_of_blocks
from structlog.testing import capture_logs

from kdns.answers.answer import error_answer
from kdns.answers.chain import UNHANDLED, Request, Sees, unhandled
from kdns.answers.response import Response, Reuse
from kdns.cluster.state import State
from kdns.dns.message import query
from kdns.dns.types import SERVFAIL, type_number
from kdns.dnsserver.blocks import WireResponse
from kdns.dnsserver.io.exchange import log_failure
from kdns.plugins.changes.cache.flights import CROWDED
from kdns.plugins.observers import errors, log
from kdns.plugins.sources.hosts import Hosts
from kdns.plugins.sources.kubernetes.options import Options
from kdns.plugins.sources.kubernetes.plugin import Kubernetes

CLIENT = ("192.0.2.7", 40053)
RCODES = {"NOERROR": 0, "SERVFAIL": 2, "NXDOMAIN": 3, "REFUSED": 5}


@pytest.fixture
def setup() -> FakeWorld:
    return FakeWorld()


class Observed:
    """Server blocks with the `log` and `errors` of a Corefile, which are told of responses made here."""

    def __init__(self, corefile: str, setup: FakeWorld) -> None:
        self.server = server_of_blocks(configured(corefile), lambda: setup)
        self.setup = setup

    def __call__(self, packet: bytes, wire: bytes, client: tuple[str, int], transport: str, took_s: float) -> None:
        query = read(packet)
        request = Request(query, client, "198.51.100.1", transport, ".", 10.0, {"some/fact": "known"})
        block, _ = self.server.block_of(request)
        assert block
        error = query.name.partition(".")[0] if wire[3] & 15 == SERVFAIL else ""
        response = Response(wire[3] & 15, error=error, metadata=request.metadata)
        WireResponse(wire, response, request, block.chain.observers).sent(10.0 + took_s)

    def close(self) -> None:
        for call in self.setup.at_stop:
            call()


def answer(packet: bytes, rcode: str = "NOERROR", *, answers: int = 1) -> bytes:
    """A response of this kind, with addresses of the question's name."""
    response = bytearray(error_answer(packet, RCODES[rcode], len(packet)).wire(packet))
    response[6:8] = answers.to_bytes(2, "big")
    return bytes(response) + answers * bytes.fromhex("c00c 0001 0001 00000005 0004 c0000201")


def said(setup: FakeWorld) -> list[object]:
    return [line["line"] for line in setup.lines if line["event"] == "query"]


def errors_of(setup: FakeWorld) -> list[Mapping[str, Any]]:
    return [
        {
            key: value
            for key, value in line.items()
            if key in {"error", "count", "like", "last", "period_s", "log_level"}
        }
        for line in setup.lines
        if line["event"] in {"query failed", "queries failed"}
    ]


def ask(seen: Observed, name: str, qtype: str = "A", rcode: str = "NOERROR", *, answers: int = 1) -> None:
    packet = query(name, type_number(qtype))
    seen(packet, answer(packet, rcode, answers=answers), CLIENT, "udp", 0.0005)


def test_a_line_has_the_facts_that_its_format_names(setup: FakeWorld) -> None:
    ask(Observed('. {\nlog . "{name} {>id} {/some/fact} {/other}"\n}', setup), "web.example.")
    assert setup.lines == [
        {
            "log_level": "info",
            "event": "query",
            "line": "web.example. 1 known -",
            "name": "web.example.",
            "id": "1",
            "some/fact": "known",
            "other": "-",
        }
    ]


@pytest.mark.parametrize(
    ("stanza", "line"),
    [
        ("log", '192.0.2.7:40053 - 4660 "A IN web.example. udp 29 false 512" NOERROR qr,rd 45 0.0005s'),
        (
            "log . {combined}",
            '192.0.2.7:40053 - 4660 "A IN web.example. udp 29 false 512" NOERROR qr,rd 45 0.0005s "0"',
        ),
        ('log . "{name} from {remote} at {local}"', "web.example. from 192.0.2.7 at 198.51.100.1"),
        ('log . "{/metadata} {unknown} {>opcode} }{"', "- {unknown} 0 }{"),
        ('log . "{name} {/log/class} {/log/type}"', "web.example. success NOERROR"),
    ],
)
def test_formats(stanza: str, line: str, setup: FakeWorld) -> None:
    seen = Observed(f". {{\n{stanza}\n}}", setup)
    packet = b"\x12\x34" + query("Web.Example.", 1)[2:]
    seen(packet, answer(packet), CLIENT, "udp", 0.0005)
    assert said(setup) == [line]


def test_what_edns_and_addresses_look_like(setup: FakeWorld) -> None:
    seen = Observed('. {\nlog . "{remote} {>do} {>bufsize} {type} {class} {proto} {rcode} {>rflags}"\n}', setup)
    packet = bytearray(query("a.", 257, payload_bytes=1400, rd=False))
    packet[-4:-2] = b"\x80\x00"
    response = bytearray(error_answer(bytes(packet), 0, 19).wire(bytes(packet)))
    response[2:4] = b"\x87\x93"
    seen(bytes(packet), bytes(response), ("fd00::1", 5), "tcp", 1.5)
    assert said(setup) == ["[fd00::1] true 65535 CAA IN tcp NXDOMAIN qr,aa,tc,rd,ra,cd"]


@pytest.mark.parametrize(
    ("rcode", "answers", "kind", "type_name"),
    [("NOERROR", 1, "success", "NOERROR"), ("NOERROR", 0, "success", "NOERROR"), ("NXDOMAIN", 0, "denial", "NXDOMAIN"),
     ("NXDOMAIN", 1, "denial", "NXDOMAIN"), ("SERVFAIL", 0, "error", "SERVERERROR"),
     ("REFUSED", 0, "error", "OTHERERROR")],
)  # fmt: skip
def test_classes(rcode: str, answers: int, kind: str, type_name: str, setup: FakeWorld) -> None:
    packet = query("a.", 1)
    assert log.class_and_type(Response(), answer(packet, rcode, answers=answers)) == (kind, type_name)
    for wanted in ("success", "denial", "error", "all"):
        setup.lines.clear()
        seen = Observed(f'. {{\nlog . "{{rcode}}" {{\nclass {wanted}\n}}\n}}', setup)
        ask(seen, "a.", rcode=rcode, answers=answers)
        assert bool(said(setup)) == (wanted in {kind, "all"})


def test_the_first_rule_that_fits_the_name_decides(setup: FakeWorld) -> None:
    seen = Observed(
        '. {\nlog example.org "first {name}" {\nclass error\n}\nlog example.org example.net "second {name}"\n}', setup
    )
    for name in ("a.example.org.", "A.Example.NET.", "example.com.", "notexample.net."):
        ask(seen, name)
    ask(seen, "b.example.org.", rcode="SERVFAIL")
    assert said(setup) == ["second a.example.net.", "first b.example.org."]


def test_a_block_logs_its_own_queries_only(setup: FakeWorld) -> None:
    seen = Observed('example.org {\nlog . "{name}"\n}\nquiet.example.org {\nerrors\n}\n. {\nerrors\n}', setup)
    for name in ("a.example.org.", "b.quiet.example.org.", "example.com."):
        ask(seen, name)
    ask(seen, "c.example.org.", rcode="SERVFAIL")
    ask(seen, "d.quiet.example.org.", rcode="SERVFAIL")
    assert said(setup) == ["a.example.org.", "c.example.org."]
    assert [line["error"] for line in errors_of(setup)] == ["2 d.quiet.example.org. A: d"]


@pytest.mark.parametrize("packet", [b"", b"\x00" * 12, query("a.", 1)[:-1], answer(query("a.", 1))])
def test_what_is_no_query_is_not_logged(packet: bytes, setup: FakeWorld) -> None:
    server = Observed(". {\nlog\nerrors\n}", setup).server
    response_at_once(server, packet).sent(1.0)
    assert setup.lines == []


def test_a_servfail_is_never_remembered_behind_errors(setup: FakeWorld) -> None:
    failing = Behind(lambda _request: Response(SERVFAIL, reuse=Reuse()), Sees.PACKET)
    for plugins, kept in (((failing,), 1), ((errors.Errors(errors.ErrorsConfig(), setup), failing), 0)):
        server = server_of(*plugins)
        assert respond(server, query("a.", 1))
        assert len(server.table) == kept


ERRORS = """
. {
    errors {
        consolidate 5m "^slow" warning
        consolidate 1m "slow|lost" info show_first
    }
}
"""


def test_consolidated_errors(setup: FakeWorld) -> None:
    seen = Observed(ERRORS, setup)
    ask(seen, "other.", rcode="SERVFAIL")
    assert [line["error"] for line in errors_of(setup)] == ["2 other. A: other"]
    setup.lines.clear()
    for name in ("slow.", "slow2.", "slow3."):
        ask(seen, name, rcode="SERVFAIL")
    setup.wait(299)
    assert setup.lines == []
    setup.wait(1)
    last = "2 slow3. A: slow3"
    summary = {"log_level": "warning", "like": "^slow", "last": last, "count": 3, "period_s": 300.0}
    assert errors_of(setup) == [summary]
    setup.lines.clear()
    ask(seen, "slow.", rcode="SERVFAIL")
    setup.wait(1000)
    assert [line["count"] for line in errors_of(setup)] == [1]


def test_the_first_is_shown_at_once_and_not_counted_again(setup: FakeWorld) -> None:
    seen = Observed(ERRORS, setup)
    first = "2 lost. A: lost"
    ask(seen, "lost.", rcode="SERVFAIL")
    assert errors_of(setup) == [{"log_level": "info", "error": first}]
    setup.wait(60)
    assert len(setup.lines) == 1
    ask(seen, "lost.", rcode="SERVFAIL")
    ask(seen, "lost.", "AAAA", rcode="SERVFAIL")
    setup.wait(60)
    again = "2 lost. AAAA: lost"
    assert errors_of(setup)[1:] == [
        {"log_level": "info", "error": first},
        {"log_level": "info", "like": "slow|lost", "last": again, "count": 2, "period_s": 60.0},
    ]


def test_nothing_that_was_counted_is_lost_at_the_end(setup: FakeWorld) -> None:
    seen = Observed(ERRORS, setup)
    ask(seen, "slow.", rcode="SERVFAIL")
    seen.close()
    seen.close()
    setup.wait(1000)
    assert [line["count"] for line in errors_of(setup)] == [1]


def failure() -> Exception:
    with pytest.raises(KeyError) as caught:
        _ = dict[str, int]()["missing"]
    return caught.value


@pytest.mark.parametrize("with_stack", [False, True])
def test_an_unexpected_failure(with_stack: bool) -> None:
    failed = failure()
    with capture_logs() as lines:
        log_failure(failed, b"\x01\x02" * 400, "dns://:53", with_stack=with_stack)
    (line,) = lines
    assert line.pop("exc_info", None) == (failed if with_stack else None)
    assert line.pop("where").startswith("test_log_errors.py:")
    assert line == {
        "event": "query failed unexpectedly",
        "log_level": "error",
        "source": "kdns.dnsserver.io.exchange",
        "server": "dns://:53",
        "error": "KeyError: 'missing'",
        "packet": "0102" * 256,
    }


def test_failures_of_this_server_say_why(setup: FakeWorld) -> None:
    """Without an error, `errors` takes SERVFAIL for an upstream's."""
    unlisted = Kubernetes(State(), Options(), setup, ()).serve(Request(read(query("a.cluster.local.", 1))), unhandled)
    for response, error in ((unlisted, "the cluster is not listed yet"), (CROWDED.reply, "1000 queries wait for")):
        assert isinstance(response, Response)
        assert response.rcode == SERVFAIL
        assert response.error.startswith(error)


def test_servfail_of_an_upstream_or_of_hosts_is_no_error_of_this_server(setup: FakeWorld) -> None:
    """CoreDNS logs what its directives return as errors; what an upstream answers is none, nor a name of no host."""
    packet = query("a.example.org.", 1)
    plugin = plugin_of(Hosts, "hosts {\n192.0.2.1 b.example.org\n}", setup, "example.org")
    unknown = plugin.serve(Request(read(packet)), unhandled)
    assert isinstance(unknown, Response)
    of_upstream = Response(SERVFAIL, plugin="forward")
    for response, logged in ((of_upstream, ()), (unknown, ()), (UNHANDLED, (UNHANDLED.error,))):
        setup.lines.clear()
        server = Observed(". {\nerrors\n}", setup).server
        request = Request(read(packet))
        WireResponse(answer(packet, "SERVFAIL"), response, request, server.blocks[0].chain.observers).sent(0.0)
        assert [str(line["error"]).rpartition(": ")[2] for line in errors_of(setup)] == [*logged]
