"""For random questions, upstreams and times: a compiled chain that forwards answers, asks and counts as the whole."""

from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from cache_world import Pause
from chain_world import ChainWorld, meaning
from configured import configured
from dns_chain import FakeWorld, held
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cache_table import CACHES, PACKETS, SHAPES, Shape

from kdns.answers.answer import compile_answer
from kdns.answers.chain import Block, Chain
from kdns.answers.response import Message
from kdns.dns.encode import encode_opt
from kdns.dns.message import query
from kdns.dns.names import text_of
from kdns.dns.query import TC, Edns, Query, read_query
from kdns.dns.types import NXDOMAIN, A
from kdns.dnsserver.blocks import Outcome, Server, WireResponse, unawaited
from kdns.plugins.changes.cache.plugin import Cache
from kdns.upstream.message import in_random_case, question_of
from kdns.upstream.upstream import Transport, Upstream, UpstreamError, UpstreamSpec, UpstreamTimeoutError
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
    upstream: str
    transport: Transport
    body: bytes
    question: bytes
    reply: bytes | UpstreamError | None = None


@dataclass
class WaitingUpstream:
    """An upstream whose replies come when a test says so."""

    spec: UpstreamSpec
    asked: list[Asked]

    async def exchange(self, asked: Query, transport: Transport, timeout_s: float, client: str = "") -> bytes:
        del timeout_s, client
        question = in_random_case(question_of(asked), CASE[: len(question_of(asked))])
        while True:
            sent = Asked(str(self.spec.address), transport, asked.packet[2:], question)
            self.asked.append(sent)
            while sent.reply is None:
                await Pause()
            if isinstance(sent.reply, UpstreamError):
                raise sent.reply
            if sent.reply:
                return sent.reply
            transport = "tcp"

    def close(self) -> None:
        pass


@dataclass
class WaitingSetup(FakeWorld):
    """Upstreams that answer later; `asked` are all queries."""

    asked: list[Asked] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        future = self.future()
        self.call_later(seconds, lambda: future.set_result(None))
        await future

    def upstream(self, spec: UpstreamSpec) -> Upstream:
        return WaitingUpstream(spec, self.asked)


class World(ChainWorld):
    """A server of these directives whose questions wait for its upstreams."""

    setup: WaitingSetup

    def __init__(self, *stanzas: str, is_compiled: bool = True) -> None:
        super().__init__("\n".join(stanzas), setup=WaitingSetup(), is_compiled=is_compiled)
        self.waiting: dict[int, Coroutine[Any, Any, WireResponse]] = {}
        self.answers: dict[int, object] = {}

    def begin(self, number: int, packet: bytes, transport: str) -> None:
        """Have a client ask, whose port is the number of its question."""
        partition = self.server.table.partition(transport, 6)
        if answer := held(partition, packet, self.setup.clock_s):
            self._end(number, WireResponse(answer.wire(packet)))
            return
        client: Any = ("2001:db8::1", number, 0, 0)
        self._end(number, self.server.respond(packet, partition, client, self.setup.clock_s))
        self._run()

    def reply(self, reply: Reply) -> None:
        """End the oldest query at an upstream."""
        for asked in self.setup.asked:
            if asked.reply is None:
                query_sent = read_query(
                    b"\0\0" + asked.body[:10] + asked.question + asked.body[10 + len(asked.question) :]
                )
                assert isinstance(query_sent, Query)
                asked.reply = reply.to(query_sent)
                break
        self._run()

    def _end(self, number: int, outcome: Outcome) -> None:
        if isinstance(outcome, WireResponse):
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

    def kept(self) -> dict[bytes, object]:
        """What the cache has, and what the table has."""
        found: dict[bytes, object] = {}
        for cache in (plugin for plugin in self.setup.built if isinstance(plugin, Cache)):
            for store in (cache.items.success, cache.items.denial):
                for item in store._items.values():  # noqa: SLF001 - nothing else asks for all items
                    text = evolve(item.response, body=Message(item.response.wire.lower()))
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


@settings(max_examples=4 * settings().max_examples)
@given(st.sampled_from(("", *CACHES)), st.lists(st.sampled_from(FRONTS), unique=True), st.sampled_from(FORWARDS), STEPS)
def test_a_compiled_chain_changes_no_answer_and_no_count(
    cache: str, fronts: list[str], forward: str, steps: list[Step]
) -> None:
    compiled, whole = worlds = [World(*fronts, cache, forward, is_compiled=one) for one in (True, False)]
    last_replies = [Reply(shape) for shape in SHAPES[:1]] * 2 * len(steps)
    for number, step in enumerate([*steps, *last_replies]):
        for world in worlds:
            if isinstance(step, Reply):
                world.reply(step)
            elif isinstance(step, float):
                world.setup.wait(step)
            else:
                world.begin(number, *step)
        asked = [
            [
                (request.upstream, request.transport, request.body[:10], request.question)
                for request in world.setup.asked
            ]
            for world in worlds
        ]
        assert asked[0] == asked[1]
        assert compiled.answers == whole.answers
    assert not compiled.waiting
    assert compiled.responses() == whole.responses()
    assert compiled.counts() == whole.counts()
    assert compiled.kept() == whole.kept()


KUBERNETES = "kubernetes cluster.local in-addr.arpa {\n fallthrough in-addr.arpa\n}"


def linked(*stanzas: str) -> dict[str, list[str]]:
    """The directives that see plain questions, by the zone for which a chain is compiled."""
    world = World(*stanzas)
    routes = world.server._routes.items()  # noqa: SLF001 - what a server never tells
    return {
        text_of(zone): [type(plugin).__name__.lower() for plugin in route.block.chain.concerned_by(zone)]
        for zone, route in routes
    }


def test_a_chain_is_compiled_for_each_zone_of_a_directive() -> None:
    assert linked("errors", "any", "nsid", "loop", "loadbalance", "forward . 192.0.2.53") == {".": ["forward"]}
    assert linked("cache 30", KUBERNETES, "forward . 192.0.2.53") == {
        ".": ["cache", "forward"],
        "cluster.local.": ["cache", "kubernetes", "forward"],
        "in-addr.arpa.": ["cache", "kubernetes", "forward"],
    }
    assert linked("cache example.org", "log", "forward a.example.org 192.0.2.53 {\n except b.a.example.org\n}") == {
        ".": ["log"],
        "example.org.": ["log", "cache"],
        "a.example.org.": ["log", "cache", "forward"],
        "b.a.example.org.": ["log", "cache", "forward"],
    }


def test_the_closest_zone_of_several_blocks_has_a_name() -> None:
    def block(zone: str, upstream: str) -> Block:
        (config,) = configured(f"{zone} {{\nforward . {upstream}\n}}\n")
        return Block(zone, Chain(config.build(WaitingSetup(zones=(zone,)))))

    blocks = block(".", "192.0.2.53"), block("example.org.", "192.0.2.54"), block("b.example.org.", "192.0.2.55")
    found = Server("dns://:53", blocks)._routes  # noqa: SLF001 - what a server never tells
    assert {text_of(zone): route.block for zone, route in found.items()} == dict(
        zip((".", "example.org.", "b.example.org."), blocks, strict=True)
    )


def test_a_client_that_left_has_the_next_one_ask() -> None:
    world = World("cache", "forward . 192.0.2.53")
    for number in range(3):
        world.begin(number, bytes(query("a.", A)), "udp")
    world.waiting.pop(0).close()
    world.reply(Reply())
    assert len(world.setup.asked) == 2
    world.reply(Reply())
    assert list(world.answers) == [1, 2]


def test_a_question_that_is_refused_before_it_is_asked_leaves_nothing() -> None:
    world = World("cache", "forward . 192.0.2.53")
    with unawaited():
        world.server.respond(bytes(query("a.", A)), world.server.table.partition("udp", 6))
    world.begin(1, bytes(query("a.", A)), "udp")
    world.reply(Reply())
    assert list(world.answers) == [1]
