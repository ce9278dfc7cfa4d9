"""Chains without sockets: a double of the World of directives, servers of some plugins, and questions to them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NoReturn, TypeVar

from configured import configured
from decoded_message import Decoded, decode

from kdns.answers.answer import Answer
from kdns.answers.chain import UNHANDLED, Block, Chain, Plugin, Reply, Request, Sees, Serve, ServeResult
from kdns.answers.order import Order
from kdns.answers.response import Subject
from kdns.answers.table import Partition, packet_key
from kdns.cluster.source import ClusterSpec
from kdns.cluster.state import OnChange, State
from kdns.dns.message import query
from kdns.dns.query import Query, read_query
from kdns.dns.types import type_number
from kdns.dnsserver.blocks import Client, Outcome, Server, WireResponse
from kdns.errors import CorefileError
from kdns.net import HostPort
from kdns.plugins.sources.kubernetes.options import Options
from kdns.plugins.sources.kubernetes.plugin import Kubernetes
from kdns.runtime.metrics import Counters, Histograms
from kdns.serverblocks.config import ServerConfig
from kdns.serverblocks.directive import Config, Directive, FrameSpec, Level, Sample, UnreadableFileError
from kdns.tally import Tally
from kdns.upstream.upstream import Upstream, UpstreamSpec, UpstreamUnreachableError

T = TypeVar("T")
AnyPlugin = TypeVar("AnyPlugin", bound=Plugin)


def nobody(address: HostPort, packet: bytes) -> NoReturn:
    """Nobody answers."""
    raise UpstreamUnreachableError(f"nobody at {address} for {packet!r}")


class FakeFuture:
    """A value that is waited for step by step, with an event loop or by hand."""

    def __init__(self) -> None:
        self.results: list[Any] = []

    def done(self) -> bool:
        return bool(self.results)

    def set_result(self, result: Any, /) -> None:
        assert not self.results
        self.results.append(result)

    def __await__(self) -> Generator[None, None, Any]:
        while not self.results:
            yield
        return self.results[0]


@dataclass
class FakeWorld:
    """A World without clocks, files, log and sockets: all of it is what a test sets, or reads.

    Spawned coroutines run by `advance`, calls come due by `wait`. `readers` are called by a test that changed one of
    the `files`. Peers answer as a test says, and nobody by default. `servers` are those in front of the chain that was
    `built`.
    """

    clock_s: float = 0.0
    zones: tuple[str, ...] = (".",)
    own_addresses: tuple[bytes, ...] = ()
    hostname: str = "node-1"
    servers: list[Server] = field(default_factory=list)
    built: tuple[Plugin, ...] = ()
    random: Random = field(default_factory=lambda: Random(0))

    preparations: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    works: list[Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=list)
    running: list[Coroutine[Any, Any, None]] = field(default_factory=list)
    at_stop: list[Callable[[], None]] = field(default_factory=list)
    _due: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    files: dict[str, str] = field(default_factory=dict)
    readers: dict[str, Callable[[str], None]] = field(default_factory=dict)

    exposed: dict[str, Callable[[], Iterable[Sample]]] = field(default_factory=dict)
    counted: dict[str, Counters] = field(default_factory=dict)
    measured: dict[str, Histograms] = field(default_factory=dict)
    lines: list[dict[str, object]] = field(default_factory=list)

    state: State = field(default_factory=State)
    changed: list[OnChange] = field(default_factory=list)
    upstreams: dict[HostPort, Upstream] = field(default_factory=dict)
    framed: dict[str, list[bytes]] = field(default_factory=dict)
    sent: list[tuple[HostPort, bytes]] = field(default_factory=list)
    responder: Callable[[HostPort, bytes], bytes] = nobody
    streamer: Callable[[HostPort, bytes], Iterable[bytes]] = nobody

    def now_s(self) -> float:
        return self.clock_s

    def unix_s(self) -> float:
        return self.clock_s

    def plugins(self) -> tuple[Plugin, ...]:
        return self.built

    def resolve(self, request: Request) -> ServeResult:
        return self.servers[0].resolve(request) if self.servers else UNHANDLED

    def forget(self, subjects: Iterable[Subject]) -> None:
        for server in self.servers:
            server.table.forget(subjects)

    def settle(self, subject: Subject) -> None:
        for server in self.servers:
            server.table.settle(subject)

    def readiness(self, name: str, is_ready: Callable[[], bool]) -> None:
        pass

    def prepare(self, work: Callable[[], Awaitable[None]]) -> None:
        self.preparations.append(work)

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.works.append(work)

    def on_stop(self, call: Callable[[], None]) -> None:
        self.at_stop.append(call)

    async def sleep(self, seconds: float) -> None:
        awake = asyncio.get_running_loop().create_future()
        self.call_later(seconds, lambda: None if awake.done() else awake.set_result(None))
        await awake

    def call_later(self, delay_s: float, call: Callable[[], None]) -> object:
        self._due.append((self.clock_s + delay_s, call))
        return None

    def future(self) -> FakeFuture:
        return FakeFuture()

    async def with_timeout(self, timeout_s: float, reply: Awaitable[Reply]) -> Reply:
        async with asyncio.timeout(timeout_s):
            return await reply

    async def prepared(self) -> None:
        """Have everything read that is answered from."""
        for work in self.preparations:
            await work()

    def advance(self) -> None:
        """Run each spawned coroutine until it waits."""
        self.running += [work() for work in self.works]
        self.works.clear()
        for coroutine in tuple(self.running):
            try:
                coroutine.send(None)
            except StopIteration:
                self.running.remove(coroutine)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock_s += seconds
        for at_s, call in [due for due in self._due if due[0] <= self.clock_s]:
            self._due.remove((at_s, call))
            call()

    def path(self, name: str) -> str:
        return name

    def has_file(self, path: str) -> bool:
        return path in self.files

    def watch_file(
        self,
        kind: str,
        path: str,
        every_s: float,
        read: Callable[[Any], None],
        *,
        parse: Callable[[str], Any] | None = None,
        is_optional: bool = False,
    ) -> None:
        del kind, every_s
        self.readers[path] = lambda text: read(parse(text) if parse else text)
        self.readers[path](self.files.get(path, "") if is_optional else self.files[path])

    async def in_thread(self, work: Callable[[], T]) -> T:
        return work()

    def read_text(self, path: str) -> str:
        if path not in self.files:
            raise UnreadableFileError(path, 0, "", "cannot be read: No such file or directory")
        return self.files[path]

    def files_below(self, directory: str) -> tuple[str, ...]:
        return tuple(sorted(path for path in self.files if path.startswith(f"{directory}/")))

    def counters(self, name: str, text: str, labels: Sequence[str]) -> Counters:
        return self.counted.setdefault(name, Counters(name, text, tuple(labels)))

    def histograms(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> Histograms:
        return self.measured.setdefault(name, Histograms(name, text, tuple(labels), tuple(bounds)))

    def expose(self, name: str, text: str, labels: Sequence[str], samples: Callable[[], Iterable[Sample]]) -> None:
        del text, labels
        self.exposed[name] = samples

    def log(self, level: Level, event: str, **facts: object) -> None:
        self.lines.append({"log_level": level, "event": event} | facts)

    def report(self, event: str, errors: Sequence[CorefileError], **facts: object) -> None:
        self.lines += [{"log_level": "warning", "event": event, "reason": str(error)} | facts for error in errors]

    def print_line(self, level: Level, event: str, line: str, facts: Mapping[str, object]) -> None:
        self.lines.append({"log_level": level, "event": event, "line": line} | dict(facts))

    def upstream(self, spec: UpstreamSpec) -> Upstream:
        return self.upstreams[spec.address]

    def cluster(self, spec: ClusterSpec, changed: OnChange, *, startup_timeout_s: float) -> State:
        del spec, startup_timeout_s
        self.changed.append(changed)
        return self.state

    async def datagram(self, address: HostPort, packet: bytes, timeout_s: float, source: str = "") -> bytes:
        del timeout_s, source
        self.sent.append((address, packet))
        return self.responder(address, packet)

    async def messages(
        self, address: HostPort, packet: bytes, timeout_s: float, source: str = ""
    ) -> AsyncGenerator[bytes, None]:
        del timeout_s, source
        self.sent.append((address, packet))
        for message in self.streamer(address, packet):
            yield message

    def frames(self, spec: FrameSpec, lost: Tally) -> Callable[[bytes], None]:
        del lost
        return self.framed.setdefault(str(spec), []).append


@dataclass
class Behind(Plugin):
    """What is behind the directives under test: remembers each request, and replies as `reply` says."""

    reply: Callable[[Request], ServeResult]
    sees: Sees = Sees.EVERY
    requests: list[Request] = field(default_factory=list)

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        del next
        self.requests.append(request)
        return self.reply(request)


class Ordered(Plugin):
    """Every answer takes this order: `loadbalance` without a file."""

    sees = Sees.PACKET

    def __init__(self, order: Order) -> None:
        self.order = order


def plugin_of(kind: type[AnyPlugin], stanzas: str, world: FakeWorld, zone: str = ".") -> AnyPlugin:
    """The plugin of this class that a server block of these stanzas has."""
    (config,) = configured(f"{zone} {{\n{stanzas}\n}}\n")
    (plugin,) = (plugin for plugin in config.build(world) if isinstance(plugin, kind))
    return plugin


def only(config: ServerConfig, directive: Directive[Config, Any]) -> Config:
    """The one configuration that a server block has of a directive."""
    (found,) = config.configs(directive)
    return found


def server_of(*plugins: Plugin, zone: str = ".") -> Server:
    """A server with one block of these plugins."""
    return Server("dns://:53", (Block(zone, Chain(plugins)),))


def server_of_blocks(configs: Iterable[ServerConfig], world_of: Callable[[], FakeWorld] = FakeWorld) -> Server:
    """A server of these blocks as a listener has them, each in a world of its own."""
    server = Server("dns://:53", (), "127.0.0.1", port=53)
    blocks: list[Block] = []
    for config in configs:
        world, options = world_of(), config.options
        world.zones = config.zones
        world.servers.append(server)
        chain = Chain(config.build(world))
        world.built = chain.plugins
        blocks += [Block(zone, chain, options.logs_stacks, options.udp_bytes) for zone in config.zones]
    server.swap(blocks)
    return server


def cluster_server(
    state: State, options: Options, *behind: Plugin, order: Order | None = None, fallthrough: Iterable[str] = ()
) -> tuple[Server, Kubernetes]:
    """A server with one block: `kubernetes`, in this order if any, and what is behind it."""
    setup = FakeWorld(state=state)
    plugin = Kubernetes(state, options, setup, fallthrough)
    server = server_of(*([Ordered(order)] if order else []), plugin, *behind)
    setup.servers.append(server)
    return server, plugin


def respond(server: Server, packet: bytes, transport: str = "udp", family: int = 4) -> bytes:
    """The response to a packet as a listener gives it: from the table first; b"" for silence. Nobody may wait."""
    partition = server.table.partition(transport, family)
    if len(packet) > 12 and (answer := held(partition, packet)):
        return answer.wire(packet)
    return response_at_once(server, packet, transport=transport, family=family).wire


def response_at_once(
    server: Server, packet: bytes, client: Client = ("", 0), *, transport: str = "udp", family: int = 4
) -> WireResponse:
    """The response of the chain, which must not wait; the table is not looked at."""
    outcome = server.respond(packet, server.table.partition(transport, family), client)
    assert isinstance(outcome, WireResponse)
    return outcome


def held(partition: Partition, packet: bytes, now_s: float = 0.0) -> Answer | None:
    """What the table has for a packet at this time, as listeners look it up."""
    answer = partition.answers.get(packet_key(packet))
    return answer if answer and (answer.until_s > now_s or answer.renew(now_s)) else None


def read(packet: bytes) -> Query:
    """A packet as a query, which it must be."""
    question = read_query(packet)
    assert isinstance(question, Query)
    return question


async def response_to(outcome: Outcome) -> WireResponse:
    """What `Server.respond` gives at once, or after it has waited."""
    return outcome if isinstance(outcome, WireResponse) else await outcome


async def wire(server: Server, packet: bytes, client: Client = ("", 0)) -> bytes:
    """The response to a packet over UDP, from the table first, b"" for silence."""
    partition = server.table.partition("udp", 4)
    if answer := held(partition, packet):
        return answer.wire(packet)
    return (await response_to(server.respond(packet, partition, client))).wire


async def ask(server: Server, name: str, qtype: str = "A", *, qclass: int = 1, client: str = "") -> Decoded:
    """The server's response to one question over UDP with a large buffer; ValueError for silence."""
    packet = bytearray(query(name, type_number(qtype), payload_bytes=4096))
    packet[-13:-11] = qclass.to_bytes(2, "big")
    return decode(await wire(server, bytes(packet), (client, 40212)))
