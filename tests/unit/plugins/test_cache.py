"""`cache` beyond recorded cases: who waits for whom, what the table is told, what goes, and what is counted."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from dns_chain import FakeSetup, held, only, read

from kdns.corefile.parse import parse
from kdns.dns.message import Decoded, decode, query
from kdns.dns.query import AA, AD, CD, RA, RD, Edns, Query, read_query
from kdns.dns.rrset import Mx, RRset, Soa
from kdns.dns.types import AXFR, MX, NOERROR, NXDOMAIN, REFUSED, SERVFAIL, SOA, TXT, A
from kdns.dnsserver.answers.answer import compile_answer
from kdns.dnsserver.answers.decode import from_wire
from kdns.dnsserver.answers.response import PRIVATE, Response, Reuse
from kdns.dnsserver.blocks import Block, Exchange, Server
from kdns.dnsserver.chain import UNANSWERED, UNHANDLED, Chain, Plugin, Reply, Request, Sees, Serve, then
from kdns.plugins import loadbalance
from kdns.plugins.cache import plugin as cache
from kdns.plugins.cache import store
from kdns.plugins.cache.kinds import AnswerKind
from kdns.plugins.cache.plugin import MAX_WAITERS
from kdns.plugins.directives import configure
from kdns.plugins.rewrite import plugin as rewrite

NO_NAME = Response(NXDOMAIN, RA, (), (RRset(".", SOA, 600, (Soa("m.", "r.", 1, 2, 3, 4, 30),)),))
FAILURE = Response(SERVFAIL)


class Pause:
    """Waits once for whoever drives the coroutine."""

    def __await__(self) -> Generator[None, None, None]:
        yield


@dataclass
class Upstream(Plugin):
    """Answers with the bytes of `value`, or with `reply`; nothing comes while it `is_silent`."""

    sees = Sees.PACKET
    value: int = 1
    ttl_s: int = 60
    is_silent: bool = False
    reply: Callable[[], Reply] | None = None
    asked: list[Request] = field(default_factory=list)

    def serve(self, request: Request, next: Serve) -> Reply | Awaitable[Reply]:  # noqa: A002 - as in Plugin
        del next
        self.asked.append(request)
        return self.later(request.query)

    async def later(self, asked: Query) -> Reply:
        await Pause()
        while self.is_silent:
            await Pause()
        if self.reply:
            return self.reply()
        address = RRset(asked.name, A, self.ttl_s, (bytes((192, 0, 2, self.value)),))
        made = compile_answer(asked._replace(edns=None), Response(NOERROR, AA | RA | AD, (address,)), 65535, ".")
        return Response(NOERROR, wire=made.wire(asked.packet))


class World:
    """A cache in front of an upstream, with a table, a clock, and no event loop."""

    def __init__(self, stanza: str = "cache", *before: Plugin, behind: Sequence[Plugin] = ()) -> None:
        self.setup = FakeSetup()
        self.upstream = Upstream()
        (config,) = configure(parse(f". {{\n{stanza}\n}}\n"))
        self.cache = cache.build(only(config, cache.DIRECTIVE), self.setup)
        self.server = Server("dns://:53", (Block(".", Chain((*before, self.cache, *behind, self.upstream))),))
        self.setup.servers.append(self.server)
        self.waiting: list[Coroutine[Any, Any, Exchange]] = []

    def begin(
        self, name: str = "a.", flags: int = RD, transport: str = "udp", qtype: int = A, client: str = "192.0.2.1"
    ) -> Decoded | None:
        """Ask; the response if it is there at once, else the query is put to `waiting`."""
        packet = bytearray(query(name, qtype))
        packet[2:4] = flags.to_bytes(2, "big")
        lane = self.server.table.lane(transport, 4)
        if answer := held(lane, bytes(packet), self.setup.clock_s):
            return decode(answer.wire(bytes(packet)))
        outcome = self.server.respond(bytes(packet), lane, (client, 1), self.setup.clock_s)
        if isinstance(outcome, Exchange):
            return decode(outcome.wire)
        self.waiting.append(outcome)
        return None

    def end(self) -> list[Decoded]:
        """The responses to all waiting queries, in the order in which they come; nobody may wait for ever."""
        responses = []
        for _ in range(20):
            self.setup.advance()
            for one in tuple(self.waiting):
                try:
                    one.send(None)
                except StopIteration as stop:
                    self.waiting.remove(one)
                    responses.append(decode(stop.value.wire))
        return responses

    def ask(self, name: str = "a.", flags: int = RD, transport: str = "udp", qtype: int = A) -> Decoded:
        found = self.begin(name, flags, transport, qtype)
        if found is None:
            (found,) = self.end()
        self.end()
        return found

    def counts(self) -> dict[str, int]:
        """The counters that are not 0, by name and type, as a scrape has them."""
        for lane in self.server.table.lanes.values():
            lane.totals()
        return {
            f"{name.removeprefix('coredns_cache_')}{' ' + sample.labels[1] if len(sample.labels) == 4 else ''}": int(
                sample.value
            )
            for name, family in self.setup.counted.items()
            for sample in family.samples()
            if sample.value
        }


def value(response: Decoded) -> object:
    """The last octet of the first address, and its TTL; the rcode of a response without one."""
    if not response.answer:
        return response.rcode
    (rdata,) = response.answer[0].rdata
    assert isinstance(rdata, bytes)
    return rdata[-1], response.answer[0].ttl


def test_a_hit_comes_from_the_table_and_counts_down_and_is_counted() -> None:
    world = World()
    assert value(world.ask()) == (1, 60)
    for second in range(1, 60):
        world.setup.clock_s = second + 0.5
        assert value(world.ask("A.")) == (1, 60 - second)
    assert len(world.server.table) == 1
    assert world.counts() == {"requests": 60, "misses": 1, "hits success": 59}
    world.setup.clock_s = 60.0
    world.upstream.value = 2
    assert value(world.ask()) == (2, 60)
    assert len(world.upstream.asked) == 2
    assert [*world.setup.exposed["coredns_cache_entries"]()] == [
        (("dns://:53", "success", ".", ""), 1),
        (("dns://:53", "denial", ".", ""), 0),
    ]


class Reader(Plugin):
    """Takes each reply apart, as directives do that change it."""

    sees = Sees.PACKET

    def serve(self, request: Request, next: Serve) -> Reply | Awaitable[Reply]:  # noqa: A002 - as in Plugin
        return then(next(request), lambda reply: from_wire(reply) if reply and reply.wire else reply)


def test_names_are_in_the_spelling_of_who_asks() -> None:
    world = World("cache", Reader())
    world.begin("WWW.")
    world.end()
    answered = world.begin("www.")
    assert answered
    assert [rrset.owner for rrset in answered.answer] == ["www."]


@pytest.mark.parametrize(
    ("flags", "transport", "expected"),
    [
        (RD, "udp", {"qr", "rd", "ra"}),
        (RD, "tcp", {"qr", "rd", "ra"}),
        (RD | AD, "udp", {"qr", "rd", "ra", "ad"}),
    ],
)
def test_flags_of_a_hit(flags: int, transport: str, expected: set[str]) -> None:
    world = World()
    assert world.ask().flags == {"qr", "aa", "rd", "ra"}
    assert world.ask(flags=flags, transport=transport).flags == expected
    assert world.ask("A.", flags, transport).answer[0].owner == "A."
    assert len(world.upstream.asked) == 1


@pytest.mark.parametrize(("first", "second"), [(0, RD), (RD, RD | CD)])
def test_rd_and_cd_are_part_of_the_question(first: int, second: int) -> None:
    world = World()
    world.ask(flags=first)
    world.ask(flags=second)
    assert [one.query.flags & (RD | CD) for one in world.upstream.asked] == [first, second]


@pytest.mark.parametrize("stanza", ["cache", "cache {\nserve_stale\n}"])
def test_a_question_without_rd_is_answered_by_what_is_there(stanza: str) -> None:
    """It is asked for where nothing fresh is: the answer may be a referral, which is for this question only."""
    world = World(stanza)
    world.ask()
    world.setup.clock_s += 10
    found = world.ask(flags=0)
    assert (value(found), "rd" in found.flags) == ((1, 50), False)
    assert len(world.upstream.asked) == 1
    world.setup.clock_s += 50
    world.ask(flags=0)
    assert len(world.upstream.asked) == 2


def test_options_of_one_client_say_nothing_about_the_answer_for_all() -> None:
    """The subnet of a client (RFC 7871), or an option that makes upstreams say FORMERR."""
    world = World()
    edns = Edns(1232, True, 0, ((8, b"\0\1\x18\0\xc0\0\2"),))
    found = read_query(query("A.example.", A))
    assert isinstance(found, Query)
    asked = found.changed(edns=edns)
    lane = world.server.table.lane("udp", 4)
    outcome = world.server.respond(asked.packet, lane, ("192.0.2.1", 1), world.setup.clock_s)
    assert not isinstance(outcome, Exchange)
    world.waiting.append(outcome)
    world.end()
    (request,) = world.upstream.asked
    assert request.query == read_query(request.query.packet)
    assert request.query.edns == Edns(1232, True, 0)
    assert (request.query.spelled_name, request.query.flags) == ("A.example.", RD | AD)


def test_the_same_question_is_asked_once_at_a_time() -> None:
    world = World()
    for _ in range(5):
        assert world.begin() is None
    assert world.begin("b.") is None
    responses = world.end()
    assert sorted(map(str, map(value, responses))) == ["(1, 60)"] * 6
    assert [one.query.name for one in world.upstream.asked] == ["a.", "b."]
    assert world.counts() == {"requests": 6, "misses": 6}


CLIENTS = tuple(f"192.0.2.{number}" for number in range(1, 6))


@pytest.mark.parametrize("at_once", [False, True], ids=["one after the other", "at once"])
@pytest.mark.parametrize(
    "rule",
    [
        "edns0 local set 65001 {client_ip}",
        "edns0 local set 65001 {client_port}",
        "edns0 local set 65001 {protocol}",
        "edns0 local set 65001 {server_ip}",
        "edns0 local set 65001 {kubernetes/client-namespace}",
        "edns0 subnet set 32 128",
    ],
)
def test_what_is_asked_for_one_client_is_for_that_client(rule: str, *, at_once: bool) -> None:
    """A query that a directive behind the cache puts a fact about the client into has an answer of its own."""
    (config,) = configure(parse(f". {{\nrewrite {rule}\n}}\n"))
    setup = FakeSetup()
    world = World(behind=[rewrite.build(config.configs(rewrite.DIRECTIVE), setup)])
    for client in CLIENTS:
        assert world.begin(client=client) is None, "it is asked for, not kept"
        if not at_once:
            assert len(world.end()) == 1
    if at_once:
        assert len(world.end()) == len(CLIENTS)
    assert [request.client[0] for request in world.upstream.asked] == [*CLIENTS]
    assert not len(world.cache.success)


def test_those_who_wait_for_another_client_s_answer_are_then_asked_for_together() -> None:
    (config,) = configure(parse(". {\nrewrite edns0 subnet set 32 128\n}\n"))
    world = World(behind=[rewrite.build(config.configs(rewrite.DIRECTIVE), FakeSetup())])
    for client in CLIENTS:
        world.begin(client=client)
    world.waiting[0].send(None)
    with pytest.raises(StopIteration):
        world.waiting.pop(0).send(None)
    for each in world.waiting:
        each.send(None)
    assert len(world.upstream.asked) == len(CLIENTS)
    assert len(world.end()) == len(CLIENTS) - 1


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("started", [False, True], ids=["before it began", "while it waits"])
def test_who_asked_first_may_go_away(*, started: bool) -> None:
    world = World()
    world.upstream.is_silent = True
    for _ in range(3):
        world.begin()
    if started:
        world.end()
    first = world.waiting.pop(0)
    first.close()
    del first
    world.upstream.is_silent = False
    assert list(map(value, world.end())) == [(1, 60), (1, 60)]
    assert len(world.upstream.asked) == 2


def test_who_waits_may_go_away() -> None:
    world = World()
    world.upstream.is_silent = True
    for _ in range(3):
        world.begin()
    assert world.end() == []
    world.waiting.pop().close()
    world.upstream.is_silent = False
    assert list(map(value, world.end())) == [(1, 60), (1, 60)]


def test_a_defect_concerns_those_who_meet_it() -> None:
    def fail() -> Reply:
        raise ZeroDivisionError

    world = World()
    world.upstream.reply = fail
    world.begin()
    world.begin()
    with pytest.raises(ZeroDivisionError):
        world.end()
    del world.waiting[0]
    world.upstream.reply = None
    assert list(map(value, world.end())) == [(1, 60)]


def test_so_many_may_wait() -> None:
    world = World()
    world.upstream.is_silent = True
    at_once = [world.begin() for _ in range(MAX_WAITERS + 3)]
    assert [one.rcode for one in at_once if one] == ["SERVFAIL"] * 2
    assert not world.end()
    world.upstream.is_silent = False
    assert len(world.end()) == MAX_WAITERS + 1


@pytest.mark.parametrize(
    ("reply", "lifetimes_s"),
    [
        (NO_NAME, (30,)),
        (FAILURE, (5,)),
        (UNHANDLED, ()),
        (UNANSWERED, ()),
        (Response(REFUSED), ()),
        (Response(NOERROR), ()),
        (Response(NOERROR, reuse=Reuse(("subject",))), (1e9,)),
        (None, ()),
    ],
    ids=["denial", "failure", "unhandled", "unanswered", "refused", "nothing", "with subjects", "silence"],
)
def test_what_is_kept_for_how_long(reply: Reply, lifetimes_s: tuple[float, ...]) -> None:
    world = World()
    world.upstream.reply = lambda: reply
    if reply is None:
        assert world.begin() is None
        world.waiting[0].send(None)
        with pytest.raises(StopIteration):
            world.waiting[0].send(None)
        return
    assert world.ask().rcode == world.ask().rcode
    assert len(world.upstream.asked) == (1 if lifetimes_s else 2)
    for lifetime_s in lifetimes_s:
        world.setup.clock_s = lifetime_s - 0.1
        world.ask()
        assert len(world.upstream.asked) == 1
        world.setup.clock_s = lifetime_s
        world.ask()
        assert len(world.upstream.asked) == (1 if lifetime_s == 1e9 else 2)
    has_subjects = bool(lifetimes_s) and lifetimes_s[0] == 1e9
    assert (len(world.cache.success), len(world.cache.denial)) == (0, 1 if lifetimes_s and not has_subjects else 0)


def test_what_has_subjects_is_counted_as_missed() -> None:
    world = World()
    world.upstream.reply = lambda: Response(NOERROR, reuse=Reuse(("subject",)))
    for _ in range(4):
        world.ask()
    world.server.table.forget(("subject",))
    world.ask()
    assert len(world.upstream.asked) == 2
    assert world.counts() == {"requests": 5, "misses": 5}


def test_a_failure_of_kdns_s_own_is_asked_again() -> None:
    """SERVFAIL before the first list of a cluster, or of a zone without content, ends with its reason."""
    world = World()
    world.upstream.reply = lambda: Response(SERVFAIL, reuse=PRIVATE)
    assert world.ask().rcode == "SERVFAIL"
    world.upstream.reply = None
    assert value(world.ask()) == (1, 60)


WEIGHTS = "a.\n192.0.2.1 3\n192.0.2.2 1\n"


@pytest.mark.parametrize(
    ("stanza", "rrset", "firsts"),
    [
        ("loadbalance", RRset("a.", A, 60, tuple(bytes((192, 0, 2, last)) for last in (1, 2, 3))), [10, 10, 10]),
        ("loadbalance", RRset("a.", MX, 60, (Mx(10, "x."), Mx(10, "y."))), [15, 15]),
        ("loadbalance weighted /weights", RRset("a.", A, 60, (b"\xc0\0\2\1", b"\xc0\0\2\2")), [8, 22]),
    ],
    ids=["addresses", "MX", "weighted"],
)
def test_each_answer_that_is_kept_has_an_order_of_its_own(stanza: str, rrset: RRset, firsts: list[int]) -> None:
    (config,) = configure(parse(f". {{\n{stanza}\n}}\n"))
    setup = FakeSetup(files={"/weights": WEIGHTS})
    world = World("cache", loadbalance.build(only(config, loadbalance.DIRECTIVE), setup))
    made = compile_answer(asked_for(rrset), Response(NOERROR, RA, (rrset,)), 65535, ".")
    world.upstream.reply = lambda: Response(NOERROR, wire=made.wire(query("a.", rrset.rtype)))
    seen = Counter(str(world.ask(qtype=rrset.rtype).answer[0].rdata[0]) for _ in range(31))
    assert len(world.upstream.asked) == 1
    assert sorted(seen.values()) in ([*firsts[:-1], firsts[-1] + 1], sorted([firsts[0] + 1, *firsts[1:]]))


@pytest.mark.parametrize(
    ("stanza", "response", "ttls"),
    [
        ("cache 100", Response(answer=(RRset("a.", A, 500, (b"\xc0\0\2\1",)),)), [100]),
        ("cache 1000", Response(answer=(RRset("a.", A, 500, (b"\xc0\0\2\1",)),)), [500]),
        (
            "cache {\ndenial 1000 20\n}",
            Response(NXDOMAIN, authority=(RRset(".", SOA, 600, (Soa("m.", "r.", 1, 2, 3, 4, 30),)),)),
            [20],
        ),
    ],
)
def test_ttls_of_answers_that_pass_are_capped(stanza: str, response: Response, ttls: list[int]) -> None:
    """Those of a zone or a template, which the table keeps, too."""
    world = World(stanza)
    world.upstream.reply = lambda: response._replace(reuse=Reuse(("zone",)))
    for _ in range(2):
        found = world.ask()
        assert [record.ttl for record in (*found.answer, *found.authority)] == ttls
    assert len(world.upstream.asked) == 1


def asked_for(rrset: RRset) -> Query:
    found = read_query(query(rrset.owner, rrset.rtype))
    assert isinstance(found, Query)
    return found


def test_other_zones_and_transfers_go_on() -> None:
    world = World("cache b")
    world.ask()
    world.ask()
    world.ask("b.", qtype=AXFR)
    assert (len(world.upstream.asked), world.counts()) == (3, {})


@pytest.mark.parametrize("mode", ["immediate", "verify", "verify 1s"])
def test_a_stale_answer_lives_until_there_is_a_new_one(mode: str) -> None:
    world = World(f"cache {{\nserve_stale 1h {mode}\n}}")
    world.ask()
    world.upstream.reply = lambda: FAILURE
    for second in range(5):
        world.setup.clock_s = 60.0 + second
        for _ in range(3):
            assert value(world.ask()) == (1, 30)
    assert world.upstream.asked[-1].transport == "tcp"
    attempts = len(world.upstream.asked) - 1
    assert attempts == (15 if "verify" in mode else 5)
    world.upstream.reply, world.upstream.value = None, 2
    world.setup.clock_s = 110.0
    found = [value(world.ask()) for _ in range(3)]
    assert found == [(2, 60) if "verify" in mode else (1, 30), (2, 60), (2, 60)]
    assert len(world.upstream.asked) == attempts + 2
    counts = world.counts()
    assert (counts["requests"], counts["misses"], counts["hits success"]) == (19, 1, 18)
    assert counts["served_stale"] == (15 if "verify" in mode else 16)
    world.setup.clock_s = 110.0 + 60 + 3600
    world.upstream.reply = lambda: FAILURE
    assert value(world.ask()) == "SERVFAIL"


def test_clients_that_wait_for_a_new_answer_get_none_that_is_another_client_s() -> None:
    world = World("cache {\nserve_stale 1h verify\n}")
    world.ask()
    world.setup.clock_s = 100.0
    world.upstream.reply = lambda: Response(
        NOERROR, answer=(RRset("a.", A, 60, (bytes((192, 0, 2, len(world.upstream.asked))),)),), reuse=PRIVATE
    )
    for client in CLIENTS:
        world.begin(client=client)
    found = list(map(value, world.end()))
    assert len(found) == len(CLIENTS)
    assert [request.client[0] for request in world.upstream.asked[-len(CLIENTS) :]] == [*CLIENTS]


@pytest.mark.parametrize("reuse", [Reuse(("service",)), PRIVATE])
@pytest.mark.parametrize("mode", ["immediate", "verify"])
def test_a_stale_answer_ends_when_a_directive_answers_that_is_not_kept(mode: str, reuse: Reuse) -> None:
    """Such as `kubernetes`, for a Service that was created since an upstream was asked."""
    world = World(f"cache {{\nserve_stale 1h {mode}\n}}")
    world.ask()
    world.setup.clock_s = 100.0
    world.upstream.reply = lambda: Response(
        NOERROR, answer=(RRset("a.", A, 5, (bytes((192, 0, 2, 9)),)),), reuse=reuse, plugin="kubernetes"
    )
    assert value(world.ask()) == ((9, 5) if mode == "verify" else (1, 30))
    assert [value(world.ask()) for _ in range(2)] == [(9, 5), (9, 5)]
    assert not len(world.cache.success)


def test_verify_does_not_wait_longer_than_its_timeout() -> None:
    world = World("cache {\nserve_stale 1h verify 50ms\n}")
    world.ask()
    world.setup.clock_s, world.upstream.is_silent, world.upstream.value = 100.0, True, 2
    assert world.begin() is None
    assert world.begin() is None
    assert world.end() == []
    world.setup.wait(0.05)
    assert list(map(value, world.end())) == [(1, 30), (1, 30)]
    world.upstream.is_silent = False
    world.end()
    assert value(world.ask()) == (2, 60)
    assert len(world.upstream.asked) == 2


def test_a_block_that_ends_leaves_nobody_waiting() -> None:
    world = World("cache {\nserve_stale 1h verify\n}")
    world.ask()
    world.setup.clock_s, world.upstream.is_silent = 100.0, True
    world.begin()
    world.end()
    for call in world.setup.at_stop:
        call()
    assert list(map(value, world.end())) == [(1, 30)]
    assert value(world.ask()) == (1, 30)


def test_a_popular_answer_is_asked_for_early() -> None:
    world = World("cache {\nprefetch 5 10s 20%\n}")
    world.ask()
    for second in (40, 45, 47):
        world.setup.clock_s = float(second)
        world.ask()
        world.ask()
    assert len(world.upstream.asked) == 1
    world.upstream.value = 2
    world.setup.clock_s = 48.0
    assert value(world.ask()) == (1, 12)
    world.end()
    assert value(world.ask()) == (2, 60)
    assert world.counts()["prefetch"] == 1
    assert len(world.upstream.asked) == 2


def test_an_unpopular_answer_is_not() -> None:
    world = World("cache {\nprefetch 3 10s\n}")
    for second in (0, 20, 40, 55, 59):
        world.setup.clock_s = float(second)
        world.ask()
    assert len(world.upstream.asked) == 1


def test_capacity_evicts_the_oldest_that_was_not_used() -> None:
    world = World("cache {\nsuccess 3\n}")
    for name in ("a.", "b.", "c.", "a.", "d."):
        world.ask(name)
    assert len(world.cache.success) == 3
    assert world.counts()["evictions success"] == 1
    world.server.table.clear()
    for name in ("a.", "c.", "d."):
        world.ask(name)
    assert [one.query.name for one in world.upstream.asked] == ["a.", "b.", "c.", "d."]


def test_bytes_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_BYTES", 4000)
    world = World()
    for number in range(50):
        world.ask(f"n{number}.")
    assert 0 < world.cache.success.size_bytes <= 4000
    assert world.counts()["evictions success"] == 50 - len(world.cache.success)


def test_records_that_a_message_was_taken_apart_to_weigh_what_they_hold() -> None:
    """9984 texts of 60 KB would take 600 MB."""
    text, options = RRset("a.", TXT, 60, (b"x" * 60000,)), ((15, b"x" * 5000),)
    item = store.Item(b"a", AnswerKind.SUCCESS, Response(NOERROR, 0, (text,), options=options), 0.0, 60.0)
    assert 65000 < item.size_bytes < 67000


def test_a_reply_about_another_question_is_dropped() -> None:
    world = World()
    made = compile_answer(Query(query("b.", A), RD, (b"b",), A, 1, 19, None, True), Response(), 512, ".")
    world.upstream.reply = lambda: Response(NOERROR, wire=made.wire(query("b.", A)))
    world.ask()
    assert (len(world.cache.success), world.counts()["drops"]) == (0, 1)


@pytest.mark.parametrize("count", [1, 20])
def test_what_the_table_keeps_of_it_weighs_what_it_says(count: int) -> None:
    addresses = tuple(bytes((10, 0, 0, number)) for number in range(count))
    world = World("cache {\nsuccess 1000\n}")
    lane = world.server.table.lane("udp", 4)
    packets = [query(f"{number:016x}.example.org.", A, payload_bytes=1232) for number in range(1000)]
    for packet in packets:
        asked = read(packet)
        response = Response(NOERROR, RA, (RRset(asked.name, A, 6000, addresses),))
        wire = compile_answer(asked._replace(edns=None), response, 65535, ".", once=True).wire(packet)
        item = store.Item(
            store.question_key(asked), AnswerKind.SUCCESS, Response(wire=wire, aged_from_s=0.0), 0.0, 6000
        )
        world.cache.success.put(item)
    gc.collect()
    tracemalloc.start()
    try:
        before_bytes = tracemalloc.get_traced_memory()[0]
        for packet in packets:
            assert isinstance(world.server.respond(packet, lane), Exchange)
        taken_bytes = tracemalloc.get_traced_memory()[0] - before_bytes
    finally:
        tracemalloc.stop()
    assert len(world.server.table) == len(packets)
    assert world.server.table.generations.size_bytes == pytest.approx(taken_bytes, rel=0.2)


def test_flags_that_header_sets_are_kept() -> None:
    """`header` stands behind `cache`: its rules hold for an answer whether it was asked for or kept."""
    world = World()
    address = RRset("a.", A, 60, (b"\xc0\0\2\1",))
    world.upstream.reply = lambda: Response(NOERROR, 0, (address,), header=(RA, RD))
    flags = [world.ask(transport=transport).flags & {"ra", "rd"} for transport in ("udp", "tcp", "udp")]
    assert flags == [{"ra"}, {"ra"}, {"ra"}]
    assert len(world.upstream.asked) == 1
