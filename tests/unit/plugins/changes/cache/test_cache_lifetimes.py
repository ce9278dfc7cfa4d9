"""How long `cache` keeps a reply: TTLs, stale answers and early refreshes."""

from collections.abc import Coroutine
from functools import partial
from math import inf

import pytest
from cache_world import CLIENTS, FAILURE, NO_NAME, World, value
from decoded_message import decode
from dns_chain import read

from kdns.answers.answer import compile_answer
from kdns.answers.chain import UNANSWERED, UNHANDLED, Reply, Request
from kdns.answers.response import PRIVATE, Response, Reuse
from kdns.dns.message import query as packet_of
from kdns.dns.query import RA, TC
from kdns.dns.rrset import RRset, Soa
from kdns.dns.types import AAAA, NOERROR, NS, NXDOMAIN, REFUSED, SERVFAIL, SOA, A
from kdns.dns.zonefile import parse_record
from kdns.dnsserver.blocks import unawaited
from kdns.plugins.sources.forward.bailiwick import checked
from kdns.values import evolve

ADDRESS = RRset("a.", A, 60, (bytes(4),))
FUTURE = parse_record("a. 60 IN RRSIG A 8 1 60 20300101000000 20200101000000 1 . AAAA")


def of_upstream(response: Response) -> Response:
    """The same as an upstream's message."""
    asked = read(packet_of("a.", A))
    return checked(compile_answer(asked, response, 512, ".").wire(asked.packet), asked, "forward")


KEPT: dict[str, tuple[Reply, float, str]] = {
    # reply, how long it is kept, and where; with subjects it is in the table alone, until they change
    "denial": (NO_NAME, 30, "denial"),
    "failure": (FAILURE, 5, "denial"),
    "referral": (Response(NOERROR, authority=(RRset("a.", NS, 40, ("ns.b.",)),)), 40, "success"),
    "signature that is not valid yet": (Response(NOERROR, answer=(ADDRESS, FUTURE)), 0, ""),
    "cut": (Response(NOERROR, TC, (ADDRESS,)), 0, ""),
    "message": (of_upstream(Response(NOERROR, RA, (ADDRESS,))), 60, "success"),
    "cut message": (of_upstream(Response(NOERROR, RA | TC, (ADDRESS,))), 0, ""),
    "message of another type": (of_upstream(Response(NOERROR, RA, (RRset("a.", AAAA, 60, (bytes(16),)),))), 0, ""),
    "unhandled": (UNHANDLED, 0, ""),
    "unanswered": (UNANSWERED, 0, ""),
    "refused": (Response(REFUSED), 0, ""),
    "nothing": (Response(NOERROR), 0, ""),
    "with subjects": (Response(NOERROR, reuse=Reuse(("subject",))), inf, ""),
    "silence": (None, 0, ""),
}


@pytest.mark.parametrize("about", KEPT)
def test_what_is_kept_for_how_long(about: str) -> None:
    reply, lifetime_s, store = KEPT[about]
    world = World()
    world.upstream.reply = lambda: reply
    if reply is None:
        assert world.begin() is None
        with pytest.raises(StopIteration):
            world.waiting[0].send(None)
        return
    assert world.ask().rcode == world.ask().rcode
    assert len(world.upstream.asked) == (1 if lifetime_s else 2)
    if lifetime_s:
        for clock_s, asked in ((min(lifetime_s, 1e9) - 0.1, 1), (min(lifetime_s, 1e9), 1 if lifetime_s == inf else 2)):
            world.setup.clock_s = clock_s
            world.ask()
            assert len(world.upstream.asked) == asked
    items = {"success": world.cache.items.success, "denial": world.cache.items.denial}
    assert [name for name, kept in items.items() if len(kept)] == ([store] if store else [])


@pytest.mark.parametrize(
    ("options", "reply_ttl_s", "kept_s"),
    [
        ("", 60, 60),
        ("", 1, 5),
        ("", 5, 5),
        ("success 100 3600 20", 1, 20),
        ("success 100 3600 0", 1, 1),
        ("success 100 10 20", 1, 10),
        ("success 100 10", 60, 10),
    ],
)
def test_bounds_of_a_ttl(options: str, reply_ttl_s: int, kept_s: int) -> None:
    """The records of the first reply have the cache's TTL too."""
    world = World(f"cache {{\n{options}\n}}")
    world.upstream.ttl_s = reply_ttl_s
    assert value(world.ask()) == (1, kept_s)
    world.setup.clock_s = kept_s - 0.1
    assert value(world.ask()) == (1, 1)
    world.setup.clock_s = kept_s
    assert value(world.ask()) == (1, kept_s)
    assert len(world.upstream.asked) == 2


@pytest.mark.parametrize(
    ("options", "minimum_s", "kept_s"),
    [("", 1, 5), ("denial 100 1800 20", 1, 20), ("denial 100 10", 30, 10), ("success 100 3600 20", 1, 5)],
)
def test_bounds_of_a_denial_s_ttl(options: str, minimum_s: int, kept_s: int) -> None:
    world = World(f"cache {{\n{options}\n}}")
    soa = RRset(".", SOA, 600, (Soa("m.", "r.", 1, 2, 3, 4, minimum_s),))
    world.upstream.reply = lambda: Response(NXDOMAIN, RA, (), (soa,))
    assert world.ask().authority[0].ttl == kept_s
    world.setup.clock_s = kept_s - 0.1
    world.ask()
    assert len(world.upstream.asked) == 1
    world.setup.clock_s = kept_s
    world.ask()
    assert len(world.upstream.asked) == 2


def test_a_failure_of_kdns_s_own_is_asked_again() -> None:
    """SERVFAIL before the first list of a cluster, or of a zone without content, ends with its reason."""
    world = World()
    world.upstream.reply = lambda: Response(SERVFAIL, reuse=PRIVATE)
    assert world.ask().rcode == "SERVFAIL"
    world.upstream.reply = None
    assert value(world.ask()) == (1, 60)


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
    world.upstream.reply = lambda: evolve(response, reuse=Reuse(("zone",)))
    for _ in range(2):
        reply = world.ask()
        assert [record.ttl for record in (*reply.answer, *reply.authority)] == ttls
    assert len(world.upstream.asked) == 1


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
    values = [value(world.ask()) for _ in range(3)]
    assert values == [(2, 60) if "verify" in mode else (1, 30), (2, 60), (2, 60)]
    assert len(world.upstream.asked) == attempts + 2
    counts = world.counts()
    assert (counts["requests"], counts["misses"], counts["hits success"]) == (19, 1, 18)
    assert counts["served_stale"] == (15 if "verify" in mode else 16)
    world.setup.clock_s = 110.0 + 60 + 3600
    world.upstream.reply = lambda: FAILURE
    assert value(world.ask()) == "SERVFAIL"


@pytest.mark.parametrize("mode", ["immediate", "verify"])
def test_a_failure_replaces_no_stale_denial(mode: str) -> None:
    world = World(f"cache {{\nserve_stale 1h {mode}\n}}")
    for clock_s, reply in ((0.0, NO_NAME), (40.0, FAILURE), (41.0, FAILURE), (42.0, FAILURE)):
        world.setup.clock_s, world.upstream.reply = clock_s, partial(evolve, reply)
        assert world.ask().rcode == "NXDOMAIN"


def test_clients_that_wait_for_a_new_answer_get_none_that_is_another_client_s() -> None:
    world = World("cache {\nserve_stale 1h verify\n}")
    world.ask()
    world.setup.clock_s = 100.0
    world.upstream.reply = lambda: Response(
        NOERROR, answer=(RRset("a.", A, 60, (bytes((192, 0, 2, len(world.upstream.asked))),)),), reuse=PRIVATE
    )
    for client in CLIENTS:
        world.begin(client=client)
    values = list(map(value, world.end()))
    assert len(values) == len(CLIENTS)
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
    assert not len(world.cache.items.success)


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


@pytest.mark.parametrize(
    ("stanza", "at_s", "is_answered", "ttl_s"),
    [
        ("cache {\n prefetch 1 1m 90%\n}", 50, True, 10),
        ("cache", 60, False, 0),
        ("cache {\n serve_stale 1h\n}", 90, True, 30),
        ("cache {\n serve_stale 1h verify\n}", 90, False, 0),
    ],
)
def test_a_dry_run_changes_nothing(stanza: str, at_s: float, is_answered: bool, ttl_s: int) -> None:
    """`kdns explain` asks what the answer would be: nothing is counted, refreshed, kept or waited for."""
    world = World(stanza)
    query = read(packet_of("a.", A))
    world.ask()
    world.setup.clock_s = at_s
    asked, counts = len(world.upstream.asked), world.counts()
    reply = world.server.resolve(Request(query, received_s=at_s, is_dry_run=True))
    if is_answered:
        assert isinstance(reply, Response)
        answer = compile_answer(query, reply, 512, ".", now_s=at_s)
        assert value(decode(answer.wire(query.packet))) == (1, ttl_s)
    else:
        assert isinstance(reply, Coroutine)
        with unawaited():
            del reply
    assert len(world.upstream.asked) == asked + (not is_answered)
    assert (world.counts(), world.setup.works, world.cache.flights.by_key) == (counts, [], {})
