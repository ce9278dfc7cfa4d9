"""Whom a question goes to, what becomes of answers and failures, and which upstreams there are."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator

import pytest
from dns_chain import server_of
from scripted_upstream import ForwardSetup, Script, answer, forward_of, says

from kdns.answers.chain import UNHANDLED
from kdns.answers.response import NEVER, Response
from kdns.dns.message import query
from kdns.dns.query import RA, TC, Query
from kdns.errors import CorefileError
from kdns.plugins.observers.log import Log, LogConfig, compiled
from kdns.plugins.observers.metadata import Metadata
from kdns.upstream.upstream import Transport, UpstreamError, UpstreamTimeoutError, UpstreamUnreachableError

A = "example.org. 5 IN A 192.0.2.99"
TIMEOUT = UpstreamTimeoutError("no response")
REFUSED = UpstreamUnreachableError("refused")


@pytest.fixture
def setup() -> Iterator[ForwardSetup]:
    made = ForwardSetup()
    yield made
    made.stop()


def always(said: Response | bytes | UpstreamError) -> Script:
    return lambda _query, _transport: said


def asked(setup: ForwardSetup) -> dict[str, list[Transport]]:
    """The protocols of the questions by the last octet of the upstream, without health checks."""
    return {
        name.removesuffix(":53").rpartition(".")[2]: transports
        for name, upstream in setup.scripted.items()
        if (transports := [transport for query, transport in upstream.asked if query.labels])
    }


def scripts(setup: ForwardSetup, **said: Response | bytes | UpstreamError) -> None:
    setup.scripts |= {f"192.0.2.{name.removeprefix('u')}:53": always(one) for name, one in said.items()}


# fmt: off
ATTEMPTS = [
    # options, what each upstream says, rcode, questions of each upstream, seconds
    ("", {"u1": says(A)}, 0, {"1": 1}, 0.001),
    ("", {"u1": TIMEOUT}, 2, {"1": 3}, 5.0),
    ("read_timeout 10s", {"u1": TIMEOUT}, 2, {"1": 1}, 5.0),
    ("", {"u1": REFUSED}, 2, {"1": 2}, 0.002),
    ("max_connect_attempts 5", {"u1": REFUSED}, 2, {"1": 5}, 0.005),
    ("max_connect_attempts 0", {"u1": REFUSED}, 2, {"1": 100}, 0.1),
    ("", {"u1": b"\0" * 11}, 2, {"1": 2}, 0.002),
    ("", {"u1": TIMEOUT, "u2": says(A)}, 0, {"1": 1, "2": 1}, 2.001),
    ("", {"u1": REFUSED, "u2": TIMEOUT, "u3": says(A)}, 0, {"1": 1, "2": 1, "3": 1}, 2.002),
    ("", {"u1": says(rcode=2), "u2": says(A)}, 2, {"1": 1}, 0.001),
    ("failover SERVFAIL", {"u1": says(rcode=2), "u2": says(A)}, 0, {"1": 1, "2": 1}, 0.002),
    ("failover SERVFAIL", {"u1": says(rcode=2), "u2": TIMEOUT}, 2, {"1": 2, "2": 1}, 2.002),
    ("failover NXDOMAIN", {"u1": says(rcode=3), "u2": REFUSED}, 3, {"1": 2, "2": 1}, 0.003),
]
# fmt: on


@pytest.mark.parametrize(("options", "said", "rcode", "questions", "took_s"), ATTEMPTS)
async def test_attempts(
    setup: ForwardSetup,
    options: str,
    said: dict[str, Response | bytes | UpstreamError],
    rcode: int,
    questions: dict[str, int],
    took_s: float,
) -> None:
    scripts(setup, **said)
    upstreams = " ".join(f"192.0.2.{name.removeprefix('u')}" for name in said)
    plugin = forward_of(f"forward . {upstreams} {{\npolicy sequential\nmax_fails 0\n{options}\n}}", setup)
    response = await answer(plugin)
    assert (response.rcode, response.plugin, response.reuse) == (rcode, "forward", NEVER)
    assert {name: len(transports) for name, transports in asked(setup).items()} == questions
    assert setup.clock_s == pytest.approx(took_s)


@pytest.mark.parametrize(
    ("said", "reason"),
    [(TIMEOUT, "read udp 192.0.2.1:53: i/o timeout"), (REFUSED, "udp 192.0.2.1:53: refused"), (says(rcode=2), "")],
)
async def test_what_a_failure_says(setup: ForwardSetup, said: Response | UpstreamError, reason: str) -> None:
    scripts(setup, u1=said)
    response = await answer(forward_of("forward . 192.0.2.1", setup))
    assert response.error == reason
    assert response.options == (() if isinstance(said, Response) else ((15, b"\0\x17"),))


async def test_metadata_has_the_upstream_that_was_asked_last(setup: ForwardSetup) -> None:
    scripts(setup, u1=REFUSED, u2=says(A))
    plugin = forward_of("forward . 192.0.2.1 192.0.2.2 {\npolicy sequential\n}", setup)
    log = Log((LogConfig((".",), compiled("{/forward/upstream}")),), setup)
    setup.built = (Metadata((".",), setup), log, plugin)
    server = server_of(*setup.built)
    outcome = server.respond(query("example.org.", 1), server.table.partition("udp", 4), ("192.0.2.9", 5))
    assert isinstance(outcome, Coroutine)
    (await outcome).sent(0.0)
    assert [line["line"] for line in setup.lines] == ["192.0.2.2:53"]


TRANSPORTS = [("", "udp", "tcp"), ("force_tcp", "tcp", "tcp"), ("prefer_udp", "udp", "udp")]


@pytest.mark.parametrize(("option", "for_udp", "for_tcp"), TRANSPORTS)
async def test_the_protocol(setup: ForwardSetup, option: str, for_udp: str, for_tcp: str) -> None:
    plugin = forward_of(f"forward . 192.0.2.1 {{\n{option}\n}}", setup)
    for transport in ("udp", "tcp", "tls", "https", "quic"):
        await answer(plugin, transport=transport)
    assert asked(setup) == {"1": [for_udp, *[for_tcp] * 4]}


@pytest.mark.parametrize("transport", ["udp", "tcp"])
async def test_what_udp_truncates_is_asked_for_over_tcp(setup: ForwardSetup, transport: str) -> None:
    whole: dict[Transport, Response] = {"udp": says(flags=TC), "tcp": says(A)}
    setup.script = lambda _query, over: whole[over]
    response = await answer(forward_of("forward . 192.0.2.1 {\nprefer_udp\n}", setup), transport=transport)
    assert response.wire[6:8] == b"\0\1"
    assert asked(setup) == {"1": ["udp", "tcp"]}


@pytest.mark.parametrize(("transport", "is_truncated"), [("udp", True), ("tcp", False)])
async def test_a_truncated_answer_is_better_than_none_over_udp(
    setup: ForwardSetup, transport: str, *, is_truncated: bool
) -> None:
    said: dict[Transport, Response | UpstreamError] = {"udp": says(flags=TC | RA), "tcp": REFUSED}
    setup.script = lambda _query, over: said[over]
    response = await answer(forward_of("forward . 192.0.2.1 {\nprefer_udp\n}", setup), transport=transport)
    assert (bool(response.wire) and bool(response.wire[2] & 2), response.rcode) == (
        is_truncated,
        0 if is_truncated else 2,
    )


NAMES = [
    ("example.org lab.example.org", "example.org.", True),
    ("example.org lab.example.org", "a.b.EXAMPLE.org.", True),
    ("example.org lab.example.org", "lab.example.org.", False),
    ("example.org lab.example.org", "x.lab.example.org.", False),
    ("example.org lab.example.org", "org.", False),
    ("example.org lab.example.org", "xexample.org.", False),
    ("example.org org", "example.org.", True),
    ("example.org org", "www.example.org.", False),
    (". lab.example.org 10.0.0.0/8", ".", True),
    (". lab.example.org 10.0.0.0/8", "org.", True),
    (". lab.example.org 10.0.0.0/8", "1.2.3.10.in-addr.arpa.", False),
]


@pytest.mark.parametrize(("zones", "name", "is_forwarded"), NAMES)
async def test_which_names(setup: ForwardSetup, zones: str, name: str, *, is_forwarded: bool) -> None:
    source, *excluded = zones.split()
    plugin = forward_of(f"forward {source} 192.0.2.1 {{\nexcept {' '.join(excluded)}\n}}", setup)
    assert (await answer(plugin, name) is not UNHANDLED) == is_forwarded


async def test_a_network_is_all_of_its_reverse_zones(setup: ForwardSetup) -> None:
    plugin = forward_of("forward 10.0.0.0/15 192.0.2.1", setup)
    rcodes = [(await answer(plugin, f"1.2.{part}.10.in-addr.arpa.", "PTR")) is UNHANDLED for part in (0, 1, 2)]
    assert rcodes == [False, False, True]


async def test_zone_transfers_are_not_forwarded(setup: ForwardSetup) -> None:
    assert (await answer(forward_of("forward . 192.0.2.1", setup), qtype="AXFR")).rcode == 5
    assert asked(setup) == {}


NEXT = [
    ("next NXDOMAIN", says(rcode=3), {"1": 1, "2": 1}, 0),
    ("next NXDOMAIN", says(rcode=2), {"1": 1}, 2),
    ("next SERVFAIL", TIMEOUT, {"1": 3}, 2),
    ("next_on_nodata", says(), {"1": 1, "2": 1}, 0),
    ("next_on_nodata", says(A), {"1": 1}, 0),
    ("", says(rcode=3), {"1": 1}, 3),
]


@pytest.mark.parametrize(("option", "said", "questions", "rcode"), NEXT)
async def test_the_next_stanza(
    setup: ForwardSetup, option: str, said: Response | UpstreamError, questions: dict[str, int], rcode: int
) -> None:
    scripts(setup, u1=said, u2=says(A), u3=says(A))
    stanzas = f"forward . 192.0.2.1 {{\n{option}\n}}\nforward other.example 192.0.2.3\nforward org 192.0.2.2"
    assert (await answer(forward_of(stanzas, setup))).rcode == rcode
    assert {name: len(transports) for name, transports in asked(setup).items()} == questions


async def test_next_counts_only_where_a_later_stanza_takes_the_name(setup: ForwardSetup) -> None:
    scripts(setup, u1=says(rcode=3))
    plugin = forward_of("forward . 192.0.2.1 {\nnext NXDOMAIN\n}\nforward net 192.0.2.2", setup)
    assert (await answer(plugin)).rcode == 3


async def test_policies(setup: ForwardSetup) -> None:
    for policy, expected in (("sequential", [30, 0, 0]), ("round_robin", [10, 10, 10])):
        setup.scripted.clear()
        plugin = forward_of(f"forward . 192.0.2.1 192.0.2.2 192.0.2.3 {{\npolicy {policy}\n}}", setup)
        for _ in range(30):
            await answer(plugin)
        assert [len(asked(setup).get(name, [])) for name in "123"] == expected
    firsts: Counter[str] = Counter()
    plugin = forward_of("forward . 192.0.2.1 192.0.2.2 192.0.2.3", setup)
    for _ in range(300):
        await answer(plugin)
    firsts.update({name: len(transports) for name, transports in asked(setup).items()})
    assert min(firsts[name] for name in "123") > 70


async def test_an_upstream_is_down_after_more_than_max_fails_checks(setup: ForwardSetup) -> None:
    scripts(setup, u1=TIMEOUT, u2=says(A))
    plugin = forward_of("forward . 192.0.2.1 192.0.2.2 {\npolicy sequential\nmax_fails 3\n}", setup)
    first, _ = plugin.forwarders[0].group.members
    await answer(plugin)
    checks = [first.is_down]
    while not checks[-1]:
        await setup.pass_time(0.5, 1)
        checks.append(first.is_down)
    assert len(checks) == 5


async def test_upstreams_that_are_down_are_left_out_until_they_answer(setup: ForwardSetup) -> None:
    scripts(setup, u1=TIMEOUT, u2=says(A))
    plugin = forward_of("forward . 192.0.2.1 192.0.2.2 {\npolicy sequential\n}", setup)
    first, _ = plugin.forwarders[0].group.members
    await answer(plugin)
    await setup.pass_time(10.0, 20)
    assert first.is_down
    before = len(asked(setup)["1"])
    await answer(plugin)
    assert len(asked(setup)["1"]) == before
    setup.scripted["192.0.2.1:53"].script = always(says(rcode=5))
    await setup.pass_time(1.0)
    assert [member.is_down for member in plugin.forwarders[0].group.members] == [False, False]
    checks = len(setup.scripted["192.0.2.1:53"].asked)
    await setup.pass_time(10.0)
    assert len(setup.scripted["192.0.2.1:53"].asked) == checks
    failures = setup.counted["coredns_proxy_healthcheck_failures"].samples()
    assert [(sample.labels, sample.value >= 3) for sample in failures if sample.value] == [
        (("forward", "192.0.2.1:53"), True)
    ]


@pytest.mark.parametrize(("option", "attempts"), [("", 1), ("failfast_all_unhealthy_upstreams", 0)])
async def test_all_upstreams_are_down(setup: ForwardSetup, option: str, attempts: int) -> None:
    scripts(setup, u1=TIMEOUT, u2=TIMEOUT)
    plugin = forward_of(f"forward . 192.0.2.1 192.0.2.2 {{\nmax_fails 1\n{option}\n}}", setup)
    await answer(plugin)
    await setup.pass_time(10.0, 20)
    before = sum(map(len, asked(setup).values()))
    broken = setup.counted["coredns_forward_healthcheck_broken"].tally()
    count = broken.count
    assert (await answer(plugin)).rcode == 2
    assert sum(map(len, asked(setup).values())) - before == attempts
    assert broken.count == count + 1


async def test_failover_asks_again_an_upstream_that_failed_once(setup: ForwardSetup) -> None:
    """The other one does not answer; as many answers as there are upstreams are tried."""
    first = iter((says(rcode=2), says(A)))
    setup.scripts = {"192.0.2.1:53": lambda _query, _transport: next(first), "192.0.2.2:53": lambda *_: TIMEOUT}
    plugin = forward_of("forward . 192.0.2.1 192.0.2.2 {\npolicy sequential\nfailover SERVFAIL\n}", setup)
    assert (await answer(plugin)).rcode == 0


@pytest.mark.parametrize(
    ("limit", "clients", "rcodes"),
    [
        (1, "aab", [0, 5, 5]),
        (2, "aab", [0, 5, 0]),
        (4, "aaaaab", [0, 0, 5, 5, 5, 0]),
        (4, "abcdefghi", [0, 0, 0, 0, 5, 5, 5, 5, 5]),
        (0, "a" * 9, [0] * 9),
    ],
)
async def test_max_concurrent_is_for_all_clients(
    setup: ForwardSetup, limit: int, clients: str, rcodes: list[int]
) -> None:
    """A client alone has half of the places, rounded up; what it leaves is for others."""
    plugin = forward_of(f"forward . 192.0.2.1 {{\nmax_concurrent {limit}\n}}", setup)
    sources = [f"192.0.2.{200 + ord(client) - ord('a')}" for client in clients]
    for _ in range(2):
        responses = await asyncio.gather(*(answer(plugin, client=source) for source in sources))
        assert [response.rcode for response in responses] == rcodes, "and all places are free again afterwards"
    rejects = setup.counted["coredns_forward_max_concurrent_rejects"].tally().count
    assert rejects == 2 * rcodes.count(5)
    upstream = setup.scripted["192.0.2.1:53"]
    assert len(upstream.clients) == 2 * rcodes.count(0)


async def test_durations_by_rcode(setup: ForwardSetup) -> None:
    scripts(setup, u1=says(rcode=3))
    await answer(forward_of("forward . 192.0.2.1", setup))
    ((labels, histogram),) = setup.measured["coredns_proxy_request_duration_seconds"].samples()
    assert labels == ("forward", "192.0.2.1:53", "NXDOMAIN")
    assert sum(histogram.counts) == 1
    assert histogram.sum == pytest.approx(0.001)


async def test_a_file_of_upstreams_is_followed(setup: ForwardSetup) -> None:
    setup.files = {"/resolv.conf": "nameserver 192.0.2.1 # first\nsearch a\nnameserver fe80::1%eth0\nnameserver x\n"}
    plugin = forward_of("forward . /resolv.conf 192.0.2.9", setup)
    group = plugin.forwarders[0].group
    assert [member.name for member in group.members] == ["192.0.2.1:53", "[fe80::1%eth0]:53", "192.0.2.9:53"]
    assert [(line["event"], line["line"], line["got"]) for line in setup.lines] == [("nameserver line ignored", 4, "x")]
    kept = group.members[0]
    setup.readers["/resolv.conf"]("nameserver 192.0.2.2\nnameserver 192.0.2.1")
    assert [member.name for member in group.members] == ["192.0.2.2:53", "192.0.2.1:53", "192.0.2.9:53"]
    assert group.members[1] is kept
    with pytest.raises(CorefileError, match="expected a line `nameserver ADDRESS`"):
        setup.readers["/resolv.conf"]("")
    assert len(group.members) == 3
    setup.wait(60)
    assert setup.scripted["[fe80::1%eth0]:53"].is_closed


@pytest.mark.parametrize("words", ["/empty 192.0.2.9", "192.0.2.9 /empty"])
def test_a_file_without_upstreams_beside_others_adds_none(setup: ForwardSetup, words: str) -> None:
    setup.files = {"/empty": "# nothing\n"}
    (forwarder,) = forward_of(f"forward . {words}", setup).forwarders
    assert [member.name for member in forwarder.group.members] == ["192.0.2.9:53"]
    setup.readers["/empty"]("nameserver 192.0.2.1")
    assert len(forwarder.group.members) == 2


@pytest.mark.parametrize(
    ("files", "words", "message"),
    [
        ({"/a": "# nothing"}, "/a", "expected a line `nameserver ADDRESS` in one of the files"),
        (
            {"/a": "\n".join(f"nameserver 192.0.2.{last}" for last in range(1, 16))},
            "/a ::1",
            "expected at most 15 upstreams, got 16",
        ),
    ],
)
def test_files_that_are_of_no_use(setup: ForwardSetup, files: dict[str, str], words: str, message: str) -> None:
    setup.files = files
    with pytest.raises(CorefileError, match=message):
        forward_of(f"forward . {words}", setup)


async def test_host_names_are_resolved_and_looked_up_again(setup: ForwardSetup) -> None:
    known = ["dns.example. 60 IN A 192.0.2.7"]

    def resolver(query: Query, _transport: Transport) -> Response | UpstreamError:
        if not known:
            return TIMEOUT
        return (
            says(*known)
            if query.qtype == 1
            else says("dns.example. 30 IN CNAME a.example.", "a.example. 9 IN AAAA fd00::7")
        )

    setup.scripts["10.96.0.10:53"] = resolver
    plugin = forward_of("forward . tls://dns.example {\nresolver 10.96.0.10\n}", setup)
    group = plugin.forwarders[0].group
    assert (await answer(plugin)).rcode == 2
    await setup.pass_time(1.0)
    assert [str(member.upstream.spec.address) for member in group.members] == ["192.0.2.7:853", "[fd00::7]:853"]
    assert {member.upstream.spec.tls.server_name for member in group.members} == {"dns.example"}
    known[:] = ["dns.example. 60 IN A 192.0.2.8"]
    await setup.pass_time(10.0)
    assert [str(member.upstream.spec.address) for member in group.members] == ["192.0.2.8:853", "[fd00::7]:853"]
    known.clear()
    await setup.pass_time(100.0)
    assert len(group.members) == 2
    assert any(line["event"] == "upstream name not resolved" for line in setup.lines)


async def test_without_resolvers_those_of_the_machine_are_asked(setup: ForwardSetup) -> None:
    setup.files = {"/etc/resolv.conf": "nameserver 192.0.2.53"}
    setup.script = always(says("dns.example. 60 IN A 192.0.2.7"))
    plugin = forward_of("forward . dns.example:5353", setup)
    await setup.pass_time(1.0)
    assert [member.name for member in plugin.forwarders[0].group.members] == ["192.0.2.7:5353"]
