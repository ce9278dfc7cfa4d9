"""Lines of the query log and of errors: formats, classes, whose rule decides, and what is consolidated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, TypeAlias

import pytest
from structlog.testing import capture_logs

from kdns.aio.querylog import QueryLog, ServerLog, answer_class, log_failure
from kdns.corefile.parse import parse
from kdns.plugins.registry import ServerConfig, configure
from kdns.plugins.server import Block, Server
from kdns.wire.message import query, type_number
from kdns.wire.respond import error

Lines: TypeAlias = list[MutableMapping[str, Any]]
CLIENT = ("192.0.2.7", 40053)
RCODES = {"NOERROR": 0, "SERVFAIL": 2, "NXDOMAIN": 3, "REFUSED": 5}


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        self._due.append((self.now_s + delay_s, call))

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        for at_s, call in [one for one in self._due if one[0] <= self.now_s]:
            self._due.remove((at_s, call))
            call()


@pytest.fixture
def lines() -> Iterator[Lines]:
    with capture_logs() as captured:
        yield captured


@pytest.fixture
def clock() -> Clock:
    return Clock()


def configs(corefile: str) -> tuple[ServerConfig, ...]:
    return configure(parse(corefile))


def observer(corefile: str, clock: Clock) -> ServerLog:
    servers = configs(corefile)
    blocks = tuple(Block(zone) for config in servers for zone in config.zones)
    logs = {
        zone: QueryLog(config.log, config.errors, "198.51.100.1", clock.later)
        for config in servers
        for zone in config.zones
    }
    return ServerLog(Server("dns://:53", blocks), logs)


def answer(packet: bytes, rcode: str = "NOERROR", *, answers: int = 1) -> bytes:
    """A response of this kind; the log only looks at its header and its length."""
    response = bytearray(error(packet, RCODES[rcode], len(packet), None))
    response[6:8] = answers.to_bytes(2, "big")
    return bytes(response)


def said(lines: Lines) -> list[str]:
    return [line["line"] for line in lines if line["event"] == "query"]


def errors_of(lines: Lines) -> list[Mapping[str, Any]]:
    return [
        {key: value for key, value in line.items() if key in {"error", "count", "period_s", "log_level"}}
        for line in lines
        if line["event"] == "query failed"
    ]


def ask(log: ServerLog, name: str, qtype: str = "A", rcode: str = "NOERROR", *, answers: int = 1) -> None:
    packet = query(name, type_number(qtype))
    log(packet, answer(packet, rcode, answers=answers), CLIENT, "udp", 0.0005)


@pytest.mark.parametrize(
    ("stanza", "line"),
    [
        (
            "log",
            '192.0.2.7:40053 - 4660 "A IN Web.Example. udp 29 false 512" NOERROR qr,rd 29 0.000500000s',
        ),
        (
            "log . {combined}",
            '192.0.2.7:40053 - 4660 "A IN Web.Example. udp 29 false 512" NOERROR qr,rd 29 0.000500000s "0"',
        ),
        ('log . "{name} from {remote} at {local}"', "Web.Example. from 192.0.2.7 at 198.51.100.1"),
        ('log . "{/metadata} {unknown} {>opcode} }{"', "- {unknown} 0 }{"),
    ],
)
def test_formats(stanza: str, line: str, lines: Lines, clock: Clock) -> None:
    log = observer(f". {{\n{stanza}\n}}", clock)
    packet = b"\x12\x34" + query("Web.Example.", 1)[2:]
    log(packet, answer(packet), CLIENT, "udp", 0.0005)
    assert said(lines) == [line]


def test_what_edns_and_addresses_look_like(lines: Lines, clock: Clock) -> None:
    log = observer('. {\nlog . "{remote} {>do} {>bufsize} {type} {class} {proto} {rcode} {>rflags}"\n}', clock)
    packet = bytearray(query("a.", 257, payload_bytes=1400, rd=False))
    packet[-4:-2] = b"\x80\x00"
    response = bytearray(error(bytes(packet), 0, 19, None))
    response[2:4] = b"\x87\x93"
    log(bytes(packet), bytes(response), ("fd00::1", 5), "tcp", 1.5)
    assert said(lines) == ["[fd00::1] true 1400 CAA IN tcp NXDOMAIN qr,aa,tc,rd,ra,cd"]


@pytest.mark.parametrize(
    ("rcode", "answers", "kind"),
    [("NOERROR", 1, "success"), ("NOERROR", 0, "denial"), ("NXDOMAIN", 0, "denial"), ("NXDOMAIN", 1, "denial"),
     ("SERVFAIL", 0, "error"), ("REFUSED", 0, "error")],
)  # fmt: skip
def test_classes(rcode: str, answers: int, kind: str, lines: Lines, clock: Clock) -> None:
    packet = query("a.", 1)
    assert answer_class(RCODES[rcode], answer(packet, rcode, answers=answers)) == kind
    for wanted in ("success", "denial", "error", "all"):
        lines.clear()
        log = observer(f'. {{\nlog . "{{rcode}}" {{\nclass {wanted}\n}}\n}}', clock)
        ask(log, "a.", rcode=rcode, answers=answers)
        assert bool(said(lines)) == (wanted in {kind, "all"})


def test_the_first_rule_that_fits_the_name_decides(lines: Lines, clock: Clock) -> None:
    log = observer(
        '. {\nlog example.org "first {name}" {\nclass error\n}\nlog example.org example.net "second {name}"\n}', clock
    )
    for name in ("a.example.org.", "A.Example.NET.", "example.com.", "notexample.net."):
        ask(log, name)
    ask(log, "b.example.org.", rcode="SERVFAIL")
    assert said(lines) == ["second A.Example.NET.", "first b.example.org."]


def test_a_block_logs_its_own_queries_only(lines: Lines, clock: Clock) -> None:
    log = observer('example.org {\nlog . "{name}"\n}\nquiet.example.org {\nerrors\n}\n. {\nerrors\n}', clock)
    for name in ("a.example.org.", "b.quiet.example.org.", "example.com."):
        ask(log, name)
    ask(log, "c.example.org.", rcode="SERVFAIL")
    ask(log, "d.quiet.example.org.", rcode="SERVFAIL")
    assert said(lines) == ["a.example.org.", "c.example.org."]
    assert [one["error"] for one in errors_of(lines)] == ["d.quiet.example.org. A: the answer is not known (SERVFAIL)"]


def test_what_is_no_query_is_not_logged(lines: Lines, clock: Clock) -> None:
    log = observer(". {\nlog\nerrors\n}", clock)
    for packet in (b"", b"\x00" * 12, query("a.", 1)[:-1], answer(query("a.", 1))):
        log(packet, error(packet.ljust(12, b"\0"), 1, 12, None), CLIENT, "udp", 0.0)
    assert lines == []


ERRORS = """
. {
    errors {
        consolidate 5m "^slow" warning
        consolidate 1m "slow|lost" info show_first
    }
}
"""


def test_consolidated_errors(lines: Lines, clock: Clock) -> None:
    log = observer(ERRORS, clock)
    ask(log, "other.", rcode="SERVFAIL")
    assert [one["error"] for one in errors_of(lines)] == ["other. A: the answer is not known (SERVFAIL)"]
    lines.clear()
    for name in ("slow.", "slow2.", "slow3."):
        ask(log, name, rcode="SERVFAIL")
    clock.wait(299)
    assert lines == []
    clock.wait(1)
    last = "slow3. A: the answer is not known (SERVFAIL)"
    assert errors_of(lines) == [{"log_level": "warning", "error": last, "count": 3, "period_s": 300.0}]
    lines.clear()
    ask(log, "slow.", rcode="SERVFAIL")
    clock.wait(1000)
    assert [one["count"] for one in errors_of(lines)] == [1]


def test_the_first_is_shown_at_once_and_not_counted_again(lines: Lines, clock: Clock) -> None:
    log = observer(ERRORS, clock)
    first = "lost. A: the answer is not known (SERVFAIL)"
    ask(log, "lost.", rcode="SERVFAIL")
    assert errors_of(lines) == [{"log_level": "info", "error": first}]
    clock.wait(60)
    assert len(lines) == 1
    ask(log, "lost.", rcode="SERVFAIL")
    ask(log, "lost.", "AAAA", rcode="SERVFAIL")
    clock.wait(60)
    again = "lost. AAAA: the answer is not known (SERVFAIL)"
    assert errors_of(lines)[1:] == [
        {"log_level": "info", "error": first},
        {"log_level": "info", "error": again, "count": 1, "period_s": 60.0},
    ]


def test_nothing_that_was_counted_is_lost_at_the_end(lines: Lines, clock: Clock) -> None:
    log = observer(ERRORS, clock)
    ask(log, "slow.", rcode="SERVFAIL")
    log.close()
    log.close()
    clock.wait(1000)
    assert [one["count"] for one in errors_of(lines)] == [1]


def failure() -> Exception:
    with pytest.raises(KeyError) as caught:
        _ = dict[str, int]()["missing"]
    return caught.value


@pytest.mark.parametrize("stacktrace", [False, True])
def test_an_unexpected_failure(lines: Lines, stacktrace: bool) -> None:
    found = failure()
    log_failure(found, b"\x01\x02" * 400, Server("dns://:53", (), stacktrace))
    (line,) = lines
    assert line.pop("exc_info", None) == (found if stacktrace else None)
    assert line.pop("where").startswith("test_querylog.py:")
    assert line == {
        "event": "query failed unexpectedly",
        "log_level": "error",
        "source": "kdns.aio.querylog",
        "server": "dns://:53",
        "error": "KeyError: 'missing'",
        "packet": "0102" * 256,
    }
