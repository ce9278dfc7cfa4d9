"""For random questions, upstreams and times: the short way of forwarded questions changes no answer and no count."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest
from cache_world import Pause
from dns_chain import FakeSetup, held
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cache_table import CACHES, PACKETS, SHAPES, Shape, meaning

from kdns.corefile.parse import parse
from kdns.dns.encode import encode_opt
from kdns.dns.message import query
from kdns.dns.names import read_name, text_of
from kdns.dns.query import TC, Edns, Query, read_query
from kdns.dns.types import AAAA, ANY, HINFO, NXDOMAIN, A
from kdns.dnsserver.answers.answer import ResponseKind, compile_answer
from kdns.dnsserver.blocks import LATER, Exchange, PendingExchange, Server
from kdns.dnsserver.chain import Block, Chain
from kdns.dnsserver.forwarding import Forwarding, routes_of
from kdns.plugins.cache.plugin import Cache
from kdns.plugins.directives import configure
from kdns.upstream.message import in_random_case, question_of, response_to
from kdns.upstream.upstream import SentQuery, Transport, Upstream, UpstreamError, UpstreamSpec, UpstreamTimeoutError
from kdns.values import evolve

FORWARDS = (
    "forward . 192.0.2.53",
    "forward . 192.0.2.53 192.0.2.54 {\n policy sequential\n failover SERVFAIL\n max_concurrent 3\n}",
    "forward . 192.0.2.53 192.0.2.54 192.0.2.55 {\n policy round_robin\n except b\n}",
    "forward a 192.0.2.53",
)
FRONTS = ("errors", "loadbalance", "any", "nsid node", "bufsize 600", "minimal")
CASE = bytes(range(256))


@dataclass(frozen=True)
class Reply:
    """A message of the upstream: a response, with a flag of the header and an OPT.

    Or another end of the query: an error, or so many wrong messages that it is repeated over TCP.
    """

    shape: Shape = SHAPES[0]
    flags: int = 0
    upper_rcode: int | None = 0
    error: type[UpstreamError] | None = None
    is_wrong: bool = False

    def to(self, asked: Query) -> bytes | UpstreamError:
        """The message for a query as it was sent."""
        if self.error is not None:
            return self.error("no answer")
        if self.is_wrong:
            return b""
        response = self.shape.response(asked.name, asked.qtype)
        wire = bytearray(compile_answer(evolve(asked, edns=None), response, 65535, ".", once=True).wire(asked.packet))
        wire[2] |= self.flags >> 8
        if self.upper_rcode is not None:
            wire[11] += 1
            wire += encode_opt(Edns(1232, False, 0), self.upper_rcode, self.shape.options)
        return bytes(wire)


REPLIES = (
    *map(Reply, SHAPES),
    Reply(upper_rcode=None),
    Reply(upper_rcode=1),
    Reply(flags=TC),
    Reply(Shape(addresses=90), upper_rcode=None),
    Reply(Shape(NXDOMAIN, addresses=0, alias=True)),
    Reply(is_wrong=True),
    Reply(error=UpstreamTimeoutError),
    Reply(error=UpstreamError),
)


@dataclass(eq=False)
class Asked:
    """A query at an upstream."""

    upstream: str
    transport: Transport
    body: bytes
    question: bytes
    ended: Callable[[], object] | None = None
    reply: bytes | UpstreamError | None = None


@dataclass
class WaitingUpstream:
    """An upstream whose replies come when a test says so."""

    spec: UpstreamSpec
    asked: list[Asked]
    is_short: bool

    def send(
        self, body: bytes, question_end: int, timeout_s: float, client: str, ended: Callable[[], object]
    ) -> SentQuery | None:
        del timeout_s, client
        if not self.is_short:
            return None
        end = question_end - 2
        sent = Asked(str(self.spec.address), "udp", body, in_random_case(body[10:end], CASE[: end - 10]), ended)
        self.asked.append(sent)
        return sent

    async def exchange(
        self, asked: Query, transport: Transport, timeout_s: float, client: str = "", sent: SentQuery | None = None
    ) -> bytes:
        del timeout_s, client
        while sent is None or sent.reply == b"":
            transport = transport if sent is None else "tcp"
            question = in_random_case(question_of(asked), CASE[: len(question_of(asked))])
            sent = Asked(str(self.spec.address), transport, asked.packet[2:], question)
            self.asked.append(sent)
            while sent.reply is None:
                await Pause()
        if isinstance(sent.reply, bytes):
            return response_to(asked, sent.reply, question_of(asked), sent.question)
        assert sent.reply is not None
        raise sent.reply

    def close(self) -> None:
        pass


@dataclass
class WaitingSetup(FakeSetup):
    """Upstreams that answer later; `asked` are all queries, `waiting` those without a reply."""

    is_short: bool = True
    asked: list[Asked] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        future = self.future()
        self.call_later(seconds, lambda: future.set_result(None))
        await future

    def upstream(self, spec: UpstreamSpec) -> Upstream:
        return WaitingUpstream(spec, self.asked, self.is_short)


class World:
    """A server that forwards on the short way, or by the chain only."""

    def __init__(self, stanzas: list[str], *, is_short: bool) -> None:
        self.setup = WaitingSetup(is_short=is_short)
        (config,) = configure(parse(". {\n" + "\n".join(stanzas) + "\n}\n"))
        self.setup.built = tuple(config.build(self.setup))
        self.server = Server("dns://:53", (Block(".", Chain(self.setup.built)),))
        self.setup.servers.append(self.server)
        self.waiting: dict[int, Coroutine[Any, Any, Exchange]] = {}
        self.answers: dict[int, object] = {}
        self.forwarded_count = 0

    def ask(self, number: int, packet: bytes, transport: str) -> None:
        """Have a client ask, whose port is the number of its question."""
        partition = self.server.table.partition(transport, 6)
        if answer := held(partition, packet, self.setup.clock_s):
            self._end(number, Exchange(answer.wire(packet)))
            return
        delivery = self if transport == "udp" and self.setup.is_short else None
        client: Any = ("2001:db8::1", number, 0, 0)
        outcome = self.server.respond(packet, partition, client, self.setup.clock_s, delivery=delivery)
        self.forwarded_count += outcome is LATER
        if outcome is not LATER:
            self._end(number, outcome)
        self._run()

    def forwarded(self, forwarding: Forwarding) -> None:
        """See Delivery."""
        self._end(forwarding.arrival.client[1], self.server.forwarded(forwarding))

    def reply(self, reply: Reply) -> None:
        """End the oldest query at an upstream."""
        for asked in self.setup.asked:
            if asked.reply is None:
                query_sent = read_query(
                    b"\0\0" + asked.body[:10] + asked.question + asked.body[10 + len(asked.question) :]
                )
                assert isinstance(query_sent, Query)
                asked.reply = reply.to(query_sent)
                if asked.ended:
                    asked.ended()
                break
        self._run()

    def _end(self, number: int, outcome: PendingExchange) -> None:
        if isinstance(outcome, Exchange):
            self.answers[number] = meaning(outcome.wire)
        else:
            self.waiting[number] = outcome
            self._run()

    def _run(self) -> None:
        """Run everything until all that is left waits for an upstream."""
        before = None
        while before != (before := (len(self.waiting), len(self.setup.asked), self._runs())):
            pass

    def _runs(self) -> int:
        self.setup.advance()
        for number, one in tuple(self.waiting.items()):
            try:
                one.send(None)
            except StopIteration as stop:
                del self.waiting[number]
                self._end(number, stop.value)
        return len(self.answers)

    def responses(self) -> dict[tuple[str, ResponseKind], int]:
        """How many responses of each kind were sent over each transport."""
        partitions = self.server.table.partitions.values()
        return {(partition.transport, kind): times for partition in partitions for kind, times in partition.totals()}

    def counts(self) -> dict[tuple[str, tuple[str, ...]], object]:
        """The counters of the directives that are not 0, and their histograms."""
        counted = ((name, *one) for name, each in self.setup.counted.items() for one in each.samples())
        measured = ((name, *one) for name, each in self.setup.measured.items() for one in each.samples())
        found: dict[tuple[str, tuple[str, ...]], object] = {
            (name, labels): count for name, labels, count in counted if count
        }
        return found | {(name, labels): (one.counts, one.sum) for name, labels, one in measured}

    def kept(self) -> dict[bytes, object]:
        """What the cache has, and what the table has."""
        found: dict[bytes, object] = {}
        for cache in (plugin for plugin in self.setup.built if isinstance(plugin, Cache)):
            for store in (cache.success, cache.denial):
                for item in store._items.values():  # noqa: SLF001 - nothing else asks for all items
                    text = evolve(item.response, wire=item.response.wire.lower())
                    found[item.key] = item.kind, text, item.stored_s, item.ttl_s, item.uses.count, item.reused_until_s
        for (transport, _), partition in self.server.table.partitions.items():
            for key, answer in partition.answers.items():
                times = answer.until_s, answer.aged_from_s, answer.expires_s
                bodies = set(answer.bodies) if len(answer.bodies) < 16 else len(answer.bodies)
                found[transport.encode() + key] = answer.head, bodies, answer.kind, times, answer.subjects, answer.hits
        return found


Step: TypeAlias = tuple[bytes, str] | Reply | float
STEPS = st.lists(
    st.one_of(
        st.tuples(PACKETS, st.sampled_from(("udp", "udp", "udp", "tcp"))),
        st.sampled_from(REPLIES),
        st.sampled_from(REPLIES[:3]),
        st.floats(0.25, 12),
    ),
    max_size=40,
)


@settings(max_examples=400)
@given(st.sampled_from(("", *CACHES)), st.lists(st.sampled_from(FRONTS), unique=True), st.sampled_from(FORWARDS), STEPS)
def test_the_short_way_changes_no_answer_and_no_count(
    cache: str, fronts: list[str], forward: str, steps: list[Step]
) -> None:
    short, chain = worlds = [World([*fronts, cache, forward], is_short=is_short) for is_short in (True, False)]
    last_replies = [Reply(shape) for shape in SHAPES[:1]] * 2 * len(steps)
    for number, step in enumerate([*steps, *last_replies]):
        for world in worlds:
            if isinstance(step, Reply):
                world.reply(step)
            elif isinstance(step, float):
                world.setup.wait(step)
            else:
                world.ask(number, *step)
        asked = [
            [(one.upstream, one.transport, one.body[:10], one.question) for one in world.setup.asked]
            for world in worlds
        ]
        assert sorted(asked[0]) == sorted(asked[1])
        assert short.answers == chain.answers
    assert not chain.forwarded_count
    assert not short.waiting
    assert short.responses() == chain.responses()
    assert short.counts() == chain.counts()
    assert short.kept() == chain.kept()


def corefile(*stanzas: str) -> list[tuple[str, tuple[str, ...]]]:
    """The routes of a server block: zones with a short way, and what is not sent there."""
    world = World(list(stanzas), is_short=True)
    return [(text(route.zone), tuple(sorted(map(text, route.others)))) for route in routes_of(world.server.blocks)]


def text(name: bytes) -> str:
    return text_of(read_name(name, 0)[0])


KUBERNETES = "kubernetes cluster.local in-addr.arpa {\n fallthrough in-addr.arpa\n}"


def test_the_names_that_have_a_short_way() -> None:
    everything = [(".", ())]
    beside_the_cluster = [(".", ("cluster.local.", "in-addr.arpa."))]
    assert corefile("forward . 192.0.2.53") == everything
    assert (
        corefile("errors", "cache 30", "loop", "loadbalance", KUBERNETES, "forward . 192.0.2.53") == beside_the_cluster
    )
    assert corefile("cache {\n disable success cluster.local\n}", "forward . 192.0.2.53") == [
        (".", ("cluster.local.",))
    ]
    assert corefile("forward example.org 192.0.2.53 {\n except a.example.org b.\n}") == [
        ("example.org.", ("a.example.org.",))
    ]
    assert corefile("forward cluster.local 192.0.2.53", KUBERNETES) == []
    for seen in ("log", "bufsize 600", "cancel", "hosts", "cache example.org", "rewrite name a b", "minimal", "dns64"):
        assert corefile(seen, "forward . 192.0.2.53") == [], seen
    assert corefile("forward a. 192.0.2.53", "forward . 192.0.2.53") == []


def test_the_longest_zone_of_several_blocks_has_a_name() -> None:
    def block(zone: str, upstream: str) -> Block:
        (config,) = configure(parse(f"{zone} {{\nforward . {upstream}\n}}\n"))
        return Block(zone, Chain(config.build(WaitingSetup(zones=(zone,)))))

    blocks = block(".", "192.0.2.53"), block("example.org.", "192.0.2.54"), block("b.example.org.", "192.0.2.55")
    assert [(text(route.zone), set(map(text, route.others)), route.block) for route in routes_of(blocks)] == [
        ("b.example.org.", set(), blocks[2]),
        ("example.org.", {"b.example.org."}, blocks[1]),
        (".", {"b.example.org.", "example.org."}, blocks[0]),
    ]


def test_plain_questions_take_the_short_way_and_others_do_not() -> None:
    world = World(["cache", "forward . 192.0.2.53"], is_short=True)
    plain = bytes(query("a.", A, payload_bytes=1232))
    cookie = plain[:-2] + b"\0\x0c\0\x0a\0\x08" + bytes(8)
    for number, packet in enumerate((plain, query("b.", AAAA), query("c.", HINFO), query("d.", ANY), cookie)):
        world.ask(number, bytes(packet), "udp")
    world.ask(9, bytes(query("e.", A)), "tcp")
    assert world.forwarded_count == 2
    for _ in range(6):
        world.reply(Reply())
    assert len(world.answers) == 6
    world.ask(10, plain, "udp")
    assert world.forwarded_count == 2
    assert len(world.setup.asked) == 5, "the same question waits for the first one's answer"


@pytest.mark.parametrize(("stanza", "is_short"), [("cache 30", True), ("cache 30 {\n serve_stale\n}", False)])
def test_a_question_whose_answer_has_expired_takes_the_short_way(stanza: str, *, is_short: bool) -> None:
    """The chain decides where a stale answer may be sent."""
    world = World([stanza, "forward . 192.0.2.53"], is_short=True)
    for number in range(2):
        world.ask(number, bytes(query("a.", A)), "udp")
        world.reply(Reply())
        world.setup.wait(31)
    assert len(world.setup.asked) == 2
    assert world.forwarded_count == (2 if is_short else 1)


def test_a_defect_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(_: object) -> None:
        raise RuntimeError("a defect")

    world = World(["cache", FORWARDS[1]], is_short=True)
    with monkeypatch.context() as patch:
        patch.setattr(Forwarding, "answer", defect)
        for number in range(6):
            world.ask(number, bytes(query("a.", A)), "udp")
            with pytest.raises(RuntimeError):
                world.reply(Reply())
    world.ask(9, bytes(query("a.", A)), "udp")
    world.reply(Reply())
    assert list(world.answers) == [9]
    assert world.forwarded_count == 7
