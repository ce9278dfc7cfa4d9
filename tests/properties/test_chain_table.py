"""For random chains, packets and changes: the table in front of a chain changes no answer."""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from cache_world import Pause
from chain_world import meaning, sent
from decoded_message import decode
from dns_chain import FakeWorld, plugin_of
from hypothesis import given, settings
from hypothesis import strategies as st

from kdns.answers.chain import Block, Chain, Plugin, Reply, Request, Sees, Serve, ServeResult, follow, then
from kdns.answers.response import EVERYTHING, NEVER, Response, Reuse
from kdns.dns.message import query
from kdns.dns.query import AA, AD
from kdns.dns.rrset import RRset
from kdns.dns.types import CNAME, NOERROR, NXDOMAIN, SERVFAIL, A
from kdns.dnsserver.blocks import Client, Server
from kdns.plugins.changes.cache import plugin as cache
from kdns.values import evolve

NAMES = ("a.", "b.", "c.")
CLIENTS: tuple[Client, ...] = (("192.0.2.1", 1), ("192.0.2.2", 2))
PERIOD_S = 10.0
PAUSES = 12
"""More than there are in one chain."""

Change: TypeAlias = tuple[str, int]


async def paused(reply: Reply) -> Reply:
    await Pause()
    return reply


def address(name: str, value: int, ttl: int = 5) -> RRset:
    return RRset(name, A, ttl, (bytes((10, 0, 0, value & 255)), bytes((10, 0, 1, value & 255))))


class Part(Plugin):
    """A plugin that changes make different; `touch` forgets what depends on what changed."""

    def __init__(self, setup: FakeWorld) -> None:
        self.setup = setup
        self.values: dict[str, int] = {}

    def change(self, name: str, value: int) -> None:
        self.values[name] = value
        self.setup.forget(((type(self).__name__, name),))

    def subject(self, name: str) -> tuple[str, str]:
        return type(self).__name__, name


class Records(Part):
    """Answers for names with a value above 1; 1 is a CNAME to c.; the others do not exist or go on."""

    sees = Sees.PACKET

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        name = request.query.name
        value, reuse = self.values.get(name, 0), Reuse((self.subject(name),))
        if value == 1:
            return follow(request, Response(NOERROR, AA, (RRset(name, CNAME, 5, ("c.",)),), reuse=reuse), next)
        if value > 1:
            return Response(NOERROR, AA, (address(name, value),), reuse=reuse)
        absent = Response(NXDOMAIN, AA, reuse=reuse)
        return absent if value else then(next(request), lambda reply: self.depends(reply, reuse))

    def depends(self, reply: Reply, reuse: Reuse) -> Reply:
        return reply and evolve(reply, reuse=reply.reuse.and_then(reuse))


class Waiting(Records):
    """The same after a while."""

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        reply = super().serve(request, next)
        return paused(reply) if reply is None or isinstance(reply, Response) else reply


class Expiring(Part):
    """Answers with the time, in periods."""

    sees = Sees.PACKET

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        if request.query.name != "b.":
            return next(request)
        period = int(request.received_s // PERIOD_S)
        return Response(NOERROR, 0, (address("b.", period),), reuse=Reuse((), (period + 1) * PERIOD_S))


class Flags(Part):
    """Changes each reply as its own value says, which is a subject of each."""

    sees = Sees.PACKET

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        return then(next(request), self.flagged)

    def flagged(self, reply: Reply) -> Reply:
        flags, reuse = (AD if self.values.get("a.", 0) % 2 else 0), Reuse((self.subject("a."),))
        return reply and evolve(reply, flags=reply.flags | flags, reuse=reply.reuse.and_then(reuse))


class Cached(Part):
    """`cache` with stale answers, and records for one query only behind it: its own value's, with a TTL of that."""

    sees = Sees.PACKET
    stanza = "cache {\n success 9 60 0\n serve_stale 20s\n}"

    def __init__(self, setup: FakeWorld) -> None:
        super().__init__(setup)
        self.cache = plugin_of(cache.Cache, self.stanza, setup)

    def change(self, name: str, value: int) -> None:
        self.values[name] = value  # nothing is forgotten: the cache does not know

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        """What the cache says, without AA, which only the first of equal replies has."""
        reply = self.cache.serve(request, partial(self.behind, next=next))
        return then(reply, lambda reply: reply and evolve(reply, flags=reply.flags & ~AA))

    def behind(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        name = request.query.name
        value = self.values.get(name, 0)
        if value > 3:
            return paused(Response(SERVFAIL))
        if value > 0:
            return Response(NOERROR, AD, (address(name, value, 4 * value), address("c.", value, 9)))
        return then(next(request), lambda reply: reply and evolve(reply, reuse=NEVER) if value else reply)


class Verified(Cached):
    """The same, but stale answers are verified."""

    stanza = "cache {\n success 9 60 0\n serve_stale 20s verify 0 9s 3s\n keepttl\n}"


class OfClient(Part):
    """Depends on the client; says nothing of what it sees, so that it sees every query."""

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        if request.client[1] == self.values.get("a."):
            return None
        return next(request)


class Whoami(Part):
    """Answers with the client, for this query only; the table may stand in front of it."""

    sees = Sees.PACKET

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        if request.query.name != "a.":
            return next(request)
        return Response(NOERROR, 0, (address("a.", request.client[1]),), reuse=NEVER)  # a cache takes AA off


PARTS: tuple[type[Part], ...] = (Records, Waiting, Expiring, Flags, Cached, Verified, OfClient, Whoami)
chains = st.lists(st.sampled_from(PARTS), max_size=5)
changes = st.tuples(st.sampled_from(NAMES), st.integers(-1, 5))
questions = st.tuples(st.sampled_from(("a.", "b.", "c.", "B.")), st.sampled_from((0, 1232)), st.sampled_from(CLIENTS))
steps = st.lists(
    st.one_of(
        questions,
        questions,
        st.tuples(st.just("change"), st.integers(0, 4), changes),
        st.tuples(st.just("meanwhile"), questions, st.integers(0, 4), changes),
        st.tuples(st.just("pass"), st.floats(0, 25)),
        st.just(("everything",)),
    ),
    max_size=40,
)


class World:
    """The same plugins behind a table and behind none."""

    def __init__(self, parts: list[type[Part]], table_bytes: int = 64 << 20) -> None:
        self.setup = FakeWorld()
        self.parts = [part(self.setup) for part in parts]
        chain, bare = Chain(self.parts), Chain(self.parts)
        bare.is_cacheable = False
        self.kept, self.anew = (Server("dns://:53", (Block(".", one),)) for one in (chain, bare))
        self.setup.servers += [self.kept, self.anew]
        self.kept.table.generations.max_bytes = table_bytes

    def change(self, number: int, change: Change) -> None:
        if self.parts:
            self.parts[number % len(self.parts)].change(*change)

    def ask(self, server: Server, packet: bytes, client: Client, meanwhile: Callable[[], None] = lambda: None) -> bytes:
        return sent(server, packet, self.setup, client=client, meanwhile=meanwhile)


@settings(max_examples=4 * settings().max_examples)
@given(chains, steps, st.sampled_from([64 << 20, 2000]))
def test_the_table_changes_no_answer(
    parts: list[type[Part]], happening: list[tuple[object, ...]], table_bytes: int
) -> None:
    world = World(parts, table_bytes)
    for step in happening:
        match step:
            case ("change", int(number), change):
                world.change(number, change)  # type: ignore[arg-type] # as the strategy makes them
            case ("pass", float(seconds)):
                world.setup.clock_s += seconds
            case ("everything",):
                world.setup.forget((EVERYTHING,))
            case ("meanwhile", (str(name), int(payload_bytes), client), int(number), change):
                packet = query(name, A, payload_bytes=payload_bytes)
                world.ask(world.kept, packet, client, lambda: world.change(number, change))  # type: ignore[arg-type]
            case (str(name), int(payload_bytes), client):
                packet = query(name, A, payload_bytes=payload_bytes)
                found = [world.ask(server, packet, client) for server in (world.kept, world.anew)]  # type: ignore[arg-type]
                assert meaning(found[0]) == meaning(found[1]), (name, client, decode(found[0]), decode(found[1]))
        for _ in range(PAUSES):
            world.setup.advance()
    assert len(world.anew.table) == 0
    assert not any(isinstance(part, OfClient) for part in world.parts) or len(world.kept.table) == 0


def test_the_table_is_used() -> None:
    """A property of a table that is always empty would prove nothing."""
    world = World([Flags, Records])
    world.change(1, ("a.", 5))
    for _ in range(3):
        world.ask(world.kept, query("a.", A), CLIENTS[0])
    assert len(world.kept.table) == 1


def test_the_table_is_used_with_a_cache() -> None:
    world = World([Cached])
    world.change(0, ("a.", 3))
    for second in range(4):
        world.setup.clock_s = float(second)
        world.ask(world.kept, query("a.", A), CLIENTS[0])
    (answer,) = world.kept.table.partition("udp", 6).answers.values()
    assert answer.hits == 3
