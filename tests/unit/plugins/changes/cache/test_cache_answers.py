"""Answers of `cache`: where they come from, their flags, spelling and order, and what is counted."""

from collections import Counter
from functools import partial

import pytest
from cache_world import World, asked_for, value
from dns_chain import FakeWorld, plugin_of, read

from kdns.answers.answer import compile_answer
from kdns.answers.chain import Plugin, Request, Sees, Serve, ServeResult, awaited, then, unhandled
from kdns.answers.decode import from_wire
from kdns.answers.response import NEVER, Message, Response, Reuse
from kdns.dns.message import query
from kdns.dns.query import AA, AD, CD, RA, RD, Edns, Query, read_query
from kdns.dns.rrset import Mx, RRset
from kdns.dns.types import AXFR, MX, NOERROR, A
from kdns.dnsserver.blocks import WireResponse
from kdns.plugins.changes.loadbalance import Loadbalance


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

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
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
    [(RD, "udp", {"qr", "rd", "ra"}), (RD, "tcp", {"qr", "rd", "ra"}), (RD | AD, "udp", {"qr", "rd", "ra", "ad"})],
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
    assert [request.query.flags & (RD | CD) for request in world.upstream.asked] == [first, second]


@pytest.mark.parametrize("stanza", ["cache", "cache {\nserve_stale\n}"])
def test_a_question_without_rd_is_answered_by_what_is_there(stanza: str) -> None:
    """It is asked for where nothing fresh is: the answer may be a referral, which is for this question only."""
    world = World(stanza)
    world.ask()
    world.setup.clock_s += 10
    reply = world.ask(flags=0)
    assert (value(reply), "rd" in reply.flags) == ((1, 50), False)
    assert len(world.upstream.asked) == 1
    world.setup.clock_s += 50
    world.ask(flags=0)
    assert len(world.upstream.asked) == 2


def test_options_of_one_client_say_nothing_about_the_answer_for_all() -> None:
    """The subnet of a client (RFC 7871), or an option that makes upstreams say FORMERR."""
    world = World()
    edns = Edns(1232, True, 0, ((8, b"\0\1\x18\0\xc0\0\2"),))
    question = read(query("A.example.", A)).changed(edns=edns)
    partition = world.server.table.partition("udp", 4)
    outcome = world.server.respond(question.packet, partition, ("192.0.2.1", 1), world.setup.clock_s)
    assert not isinstance(outcome, WireResponse)
    world.waiting.append(outcome)
    world.end()
    (request,) = world.upstream.asked
    assert request.query == read_query(request.query.packet)
    assert request.query.edns == Edns(1232, True, 0)
    assert (request.query.spelled_name, request.query.flags) == ("A.example.", RD | AD)


def test_what_has_subjects_is_counted_as_missed() -> None:
    world = World()
    world.upstream.reply = lambda: Response(NOERROR, reuse=Reuse(("subject",)))
    for _ in range(4):
        world.ask()
    world.server.table.forget(("subject",))
    world.ask()
    assert len(world.upstream.asked) == 2
    assert world.counts() == {"requests": 5, "misses": 5}


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
    world = World("cache", plugin_of(Loadbalance, stanza, FakeWorld(files={"/weights": WEIGHTS})))
    compiled = compile_answer(asked_for(rrset), Response(NOERROR, RA, (rrset,)), 65535, ".")
    world.upstream.reply = lambda: Response(NOERROR, body=Message(compiled.wire(query("a.", rrset.rtype))))
    seen = Counter(str(world.ask(qtype=rrset.rtype).answer[0].rdata[0]) for _ in range(31))
    assert len(world.upstream.asked) == 1
    assert sorted(seen.values()) in ([*firsts[:-1], firsts[-1] + 1], sorted([firsts[0] + 1, *firsts[1:]]))


def test_other_zones_and_transfers_go_on() -> None:
    world = World("cache b")
    world.ask()
    world.ask()
    world.ask("b.", qtype=AXFR)
    assert (len(world.upstream.asked), world.counts()) == (3, {})


def test_a_reply_about_another_question_is_dropped() -> None:
    world = World()
    compiled = compile_answer(Query(query("b.", A), RD, (b"b",), A, 1, 19, None, True), Response(), 512, ".")
    world.upstream.reply = lambda: Response(NOERROR, body=Message(compiled.wire(query("b.", A))))
    world.ask()
    assert (len(world.cache.items.success), world.counts()["drops"]) == (0, 1)


@pytest.mark.parametrize(
    ("header", "later"), [((0, 0), {"ra"}), ((AA, RD), {"aa", "ra"}), ((0, RA), {"rd"})], ids=["none", "aa", "no ra"]
)
def test_an_answer_that_the_first_reply_put_into_the_table_has_no_aa(header: tuple[int, int], later: set[str]) -> None:
    """Unless `header` sets it."""
    world = World()
    compiled = compile_answer(read(query("a.", A)), Response(NOERROR, AA | RA, (address_of("a."),)), 65535, ".")
    world.upstream.reply = lambda: Response(NOERROR, body=Message(compiled.wire(query("a.", A))), header=header)
    first, second = world.ask().flags, world.ask().flags
    (answer,) = world.server.table.partition("udp", 4).answers.values()
    assert answer.hits == 2
    assert first - {"rd"} == {"qr", "aa", "ra"} - ({"ra"} if header[1] & RA else set())
    assert second & {"aa", "ra"} == later & {"aa", "ra"}


@pytest.mark.parametrize(
    ("stanza", "options"),
    [("cache", ((3, b"an upstream"),)), ("cache {\nprefetch 2\n}", ())],
    ids=["options", "prefetch"],
)
def test_a_first_reply_that_says_more_than_the_next_one_is_not_in_the_table(
    stanza: str, options: tuple[tuple[int, bytes], ...]
) -> None:
    """Nor one whose uses `prefetch` has to see."""
    world = World(stanza)
    compiled = compile_answer(read(query("a.", A)), Response(NOERROR, RA, (address_of("a."),)), 65535, ".")
    world.upstream.reply = lambda: Response(NOERROR, body=Message(compiled.wire(query("a.", A))), options=options)
    sizes = []
    for _ in range(2):
        world.ask()
        sizes.append(len(world.server.table))
    assert sizes == [0, 1]


async def test_a_question_of_the_server_s_own_fills_no_table() -> None:
    """Its reply becomes a part of another one, which counts it as a miss."""
    world = World()
    for depth, has_repeat in ((1, False), (0, True)):
        request = Request(read(query(f"{depth}.", A)), depth=depth)
        reply = await awaited(world.cache.serve(request, partial(world.upstream.serve, next=unhandled)))
        assert reply is not None
        assert (reply.reuse is NEVER, bool(reply.reuse.repeat)) == (not has_repeat, has_repeat)


def address_of(name: str) -> RRset:
    return RRset(name, A, 60, (b"\xc0\0\2\1",))


def test_flags_that_header_sets_are_kept() -> None:
    """`header` stands behind `cache`: its rules hold for an answer whether it was asked for or kept."""
    world = World()
    address = RRset("a.", A, 60, (b"\xc0\0\2\1",))
    world.upstream.reply = lambda: Response(NOERROR, 0, (address,), header=(RA, RD))
    flags = [world.ask(transport=transport).flags & {"ra", "rd"} for transport in ("udp", "tcp", "udp")]
    assert flags == [{"ra"}, {"ra"}, {"ra"}]
    assert len(world.upstream.asked) == 1
