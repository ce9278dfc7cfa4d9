"""For random upstreams, clients and times: the table in front of `cache` changes no answer and no count.

The first reply of an upstream fills the table, so the second question of a name is already answered from there.
"""

from dataclasses import dataclass

from chain_world import ChainWorld, meaning
from decoded_message import decode
from hypothesis import given, settings
from hypothesis import strategies as st

from kdns.answers.answer import compile_answer
from kdns.answers.chain import Plugin, Request, Sees, Serve
from kdns.answers.response import Message, Response
from kdns.dns.message import query
from kdns.dns.query import AA, AD, CD, RA, RD, extended_error
from kdns.dns.rrset import RRset, Soa
from kdns.dns.types import AAAA, CNAME, NOERROR, NXDOMAIN, SERVFAIL, SOA, TXT, A
from kdns.values import evolve

CACHES = (
    "cache",
    "cache 30 {\n success 9 20 7\n denial 9 9 3\n servfail 2s\n}",
    "cache {\n keepttl\n}",
    "cache {\n serve_stale 40s\n}",
    "cache {\n serve_stale 40s verify 0 9s 3s\n serve_stale_policy prefer_positive\n}",
    "cache {\n prefetch 2 60s 50%\n}",
    "cache {\n disable success b\n}",
)
FRONTS = ("errors", "loadbalance", "dns64", "acl {\n block type HINFO\n}", "nsid node", "bufsize 600", "local", "any")
OWNERS = ("a.", "b.", "A.")
MANY = tuple(bytes((192, 0, 2, last)) for last in range(60))
DENIED = (RRset(".", SOA, 50, (Soa("m.", "r.", 1, 2, 3, 4, 15),)),)


@dataclass(frozen=True)
class Shape:
    """A response of the upstream: so many addresses with a TTL in seconds, or another kind of response."""

    rcode: int = NOERROR
    flags: int = RA
    addresses: int = 1
    ttl_s: int = 25
    alias: bool = False
    options: tuple[tuple[int, bytes], ...] = ()

    def response(self, name: str, qtype: int) -> Response:
        size = 16 if qtype == AAAA else 4
        owner = "c." if self.alias else name
        rdata = tuple(one.rjust(size, b"\0") for one in MANY[: self.addresses]) if qtype in {A, AAAA} else (b"\1x",)
        records = (RRset(owner, qtype, self.ttl_s, rdata),) if self.addresses else ()
        alias = (RRset(name, CNAME, self.ttl_s + 3, ("c.",)),) if self.alias else ()
        is_denial = self.rcode in {NOERROR, NXDOMAIN} and not records
        return Response(self.rcode, self.flags, (*alias, *records), DENIED if is_denial else ())


SHAPES = (
    Shape(),
    Shape(flags=RA | AA),
    Shape(flags=RA | AD, addresses=3, ttl_s=7),
    Shape(addresses=2, alias=True, ttl_s=12),
    Shape(addresses=60),
    Shape(ttl_s=0),
    Shape(NXDOMAIN, addresses=0, flags=RA | AA),
    Shape(addresses=0),
    Shape(SERVFAIL, addresses=0, options=(extended_error(22),)),
    Shape(options=(extended_error(3),)),
    Shape(options=((3, b"other"),)),
)


class Upstream(Plugin):
    """Answers in the way that was chosen last, with a message and at once, as the clock of a test stands still."""

    sees = Sees.PACKET

    def __init__(self) -> None:
        self.shape = SHAPES[0]

    async def serve(self, request: Request, next: Serve) -> Response:  # noqa: A002 - as in Plugin
        del next
        question = request.query
        made = self.shape.response(question.name, question.qtype)
        wire = compile_answer(evolve(question, edns=None), made, 65535, ".", once=True).wire(question.packet)
        return Response(self.shape.rcode, body=Message(wire), options=self.shape.options, plugin="forward")


def world_of(*stanzas: str, has_table: bool) -> tuple[ChainWorld, Upstream]:
    """These directives in front of an upstream."""
    upstream = Upstream()
    world = ChainWorld("\n".join(stanzas), upstream, has_table=has_table)
    assert world.server.blocks[0].chain.is_cacheable == has_table
    return world, upstream


def packet_of(name: str, qtype: int, flags: int, payload_bytes: int, *, do: bool) -> bytes:
    packet = bytearray(query(name, qtype, payload_bytes=payload_bytes))
    packet[2:4] = flags.to_bytes(2, "big")
    if payload_bytes and do:
        packet[-4] |= 0x80
    return bytes(packet)


PACKETS = st.builds(
    packet_of,
    st.sampled_from(OWNERS),
    st.sampled_from((A, A, AAAA, TXT)),
    st.sampled_from((RD, RD, RD | AD, RD | CD, 0)),
    st.sampled_from((0, 1232)),
    do=st.booleans(),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(PACKETS, st.sampled_from(("udp", "udp", "tcp"))),
        st.tuples(PACKETS, st.sampled_from(("udp", "udp", "tcp"))),
        st.sampled_from(SHAPES),
        st.floats(0.25, 12),
    ),
    max_size=40,
)


@settings(max_examples=16 * settings().max_examples)
@given(st.sampled_from(CACHES), st.lists(st.sampled_from(FRONTS), unique=True), STEPS)
def test_the_table_changes_no_answer_and_no_count(
    stanza: str, fronts: list[str], steps: list[tuple[bytes, str] | Shape | float]
) -> None:
    (kept, one), (bare, other) = (world_of(*fronts, stanza, has_table=has_table) for has_table in (True, False))
    worlds = kept, bare
    for step in steps:
        if isinstance(step, Shape):
            one.shape = other.shape = step
        elif isinstance(step, float):
            for world in worlds:
                world.setup.clock_s += step
        else:
            answers = [meaning(world.ask(*step)) for world in worlds]
            assert answers[0] == answers[1], (stanza, fronts, step)
            for world in worlds:  # the table hides what `prefetch` counts for a second
                world.setup.clock_s += 1.0 if "prefetch" in stanza else 0.0
    assert not len(bare.server.table)
    assert kept.responses() == bare.responses()
    assert kept.counts() == bare.counts()


def test_the_second_question_is_answered_from_the_table() -> None:
    """As the cache answers it: without AA, and counted as a hit of the cache."""
    for fronts in ((), FRONTS):
        world, upstream = world_of(*fronts, "cache", has_table=True)
        upstream.shape = SHAPES[1]
        packet = packet_of("a.", A, RD, 1232, do=False)
        assert "aa" in decode(world.ask(packet, "udp")).flags
        (answer,) = world.server.table.partition("udp", 6).answers.values()
        world.setup.clock_s = 5.0
        second = decode(world.ask(packet, "udp"))
        assert answer.hits == 2
        assert "aa" not in second.flags
        assert [record.ttl for record in second.answer] == [20]
        assert {kind.plugin: times for (_, kind), times in world.responses().items()} == {"forward": 1, "cache": 1}
        counted = {name.removeprefix("coredns_cache_"): count for (name, _), count in world.counts().items()}
        assert (counted["requests"], counted["misses"], counted["hits"]) == (2, 1, 1)
