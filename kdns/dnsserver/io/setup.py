"""What a server block's directives are given of the world: Setup at work."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import Any, Final, NamedTuple, TypeVar

from kdns import logs
from kdns.cluster.io.clusters import Cluster, Clusters
from kdns.cluster.source import Scope, Source
from kdns.cluster.state import OnChange, State
from kdns.dnsserver.answers.response import Subject
from kdns.dnsserver.block_options import BlockOptions
from kdns.dnsserver.blocks import Block, Server
from kdns.dnsserver.chain import UNHANDLED, Chain, Plugin, Reply, Request
from kdns.dnsserver.config import WILDCARD, ServerConfig
from kdns.dnsserver.directive import Chance, FileReader, Level
from kdns.dnsserver.directive import Sample as PlainSample
from kdns.dnsserver.frame_streams import FrameSpec
from kdns.dnsserver.io.frame_stream import FrameStream
from kdns.dnsserver.io.interfaces import bound_addresses, own_addresses
from kdns.dnsserver.io.local_files import LocalFiles
from kdns.errors import CorefileError, InputError, KubeconfigError
from kdns.net import HostPort
from kdns.netlink.addresses import InterfaceAddress
from kdns.runtime.files.watched import WatchedFile
from kdns.runtime.metrics import Counters, Histograms, Sample
from kdns.runtime.process import gc_paused
from kdns.runtime.tasks import in_daemon_thread, observed
from kdns.tally import Tally
from kdns.upstream.io import peers
from kdns.upstream.io.upstreams import Lease, Upstreams
from kdns.upstream.upstream import Upstream, UpstreamSpec

log = logs.get("kdns.plugins")

UPSTREAMS_KEPT_S: Final = 10.0
"""How long a block that has ended may still send its pending queries to upstreams."""
T = TypeVar("T")

LOGGED_MISTAKES: Final = 10
"""Mistakes in one file that are logged; more are counted."""
LONG_WORK_S: Final = 0.25
"""Work in a thread that took longer made so many objects that a full collection would be noticed."""


_CHANCE: Final = SystemRandom()


class Family(NamedTuple):
    """A family of metrics, as kdns.runtime.metrics.Gauges takes it."""

    name: str
    text: str
    labels: tuple[str, ...]
    samples: Callable[[], Iterable[Sample]]
    counter: bool


@dataclass(slots=True)
class Process:
    """What the server blocks of one process share; counters and histograms of directives go on after a reload."""

    clusters: Clusters
    interfaces: tuple[InterfaceAddress, ...] = ()
    counters: dict[str, Counters] = field(default_factory=dict)
    histograms: dict[str, Histograms] = field(default_factory=dict)
    upstreams: Upstreams = field(default_factory=Upstreams)


@dataclass(slots=True)
class BlockSetup:
    """The Setup of one server block, and what came of it: the chain, where it listens, and what it adds to the process.

    `servers` are those that answer with this block, once there are any: their tables stand in front of the chain.
    It listens on `hosts`. `families` of metrics are served by the process while the block is in use.
    """

    config: ServerConfig
    process: Process
    chain: Chain = field(default_factory=Chain)
    servers: list[Server] = field(default_factory=list)
    options: BlockOptions = field(init=False)
    hosts: tuple[str, ...] = WILDCARD
    preparations: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    families: list[Family] = field(default_factory=list)
    readiness_checks: list[tuple[str, Callable[[], bool]]] = field(default_factory=list)
    _clusters: list[tuple[Cluster, OnChange]] = field(default_factory=list)
    _upstreams: list[Lease] = field(default_factory=list)
    _works: list[Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _is_started: bool = False
    _is_stopped: bool = False
    _at_stop: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.options = self.config.options

    def build(self) -> None:
        """Build the chain; CorefileError or InputError for what cannot be done."""
        if binds := self.options.binds:
            known = self.process.interfaces
            found = (host for bind in binds for host in bound_addresses(bind.hosts, bind.exclude, known))
            self.hosts = tuple(dict.fromkeys(found))
        if not self.hosts:
            raise self.config.error("bind: `except` leaves no address to listen on")
        self.chain = Chain(self.config.build(self))
        for event, facts in self.options.notes:
            self.log("info", event, **facts)

    async def prepare_all(self) -> None:
        """Wait until the directives can answer; InputError for what they cannot."""
        try:
            await asyncio.gather(*(work() for work in self.preparations))
        except InputError as error:
            raise self.located(error) from error

    def start(self) -> None:
        """Start the tasks that the directives asked for."""
        self._is_started = True
        for work in self._works:
            self.spawn(work)

    async def stop(self) -> None:
        """End the block: its tasks, and its subscriptions to clusters."""
        self._is_stopped = True
        for call in self._at_stop:
            call()
        self.release()
        for upstream in self._upstreams:
            asyncio.get_running_loop().call_later(UPSTREAMS_KEPT_S, upstream.close)
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def release(self) -> None:
        """Stop receiving changes of clusters."""
        for cluster, changed in self._clusters:
            cluster.listeners.remove(changed)
        self._clusters.clear()

    def abandon(self) -> None:
        """End a block that was not started."""
        self.release()
        for upstream in self._upstreams:
            upstream.close()

    @property
    def zones(self) -> tuple[str, ...]:
        """See Setup."""
        return self.config.zones

    @property
    def own_addresses(self) -> tuple[bytes, ...]:
        """See Setup."""
        return own_addresses(self.hosts, self.process.interfaces)

    @property
    def hostname(self) -> str:
        """See Setup."""
        return socket.gethostname()

    def path(self, name: str) -> str:
        """See Setup."""
        return self.options.path(name)

    def cluster(self, source: Source, scope: Scope, changed: OnChange, *, startup_timeout_s: float) -> State:
        """See Setup."""
        clusters = self.process.clusters
        clusters.startup_timeout_s = max(clusters.startup_timeout_s, startup_timeout_s)
        cluster = clusters.of(source, scope, self.located)
        cluster.listeners.append(changed)
        self._clusters.append((cluster, changed))
        return cluster.state

    def forget(self, subjects: Iterable[Subject]) -> None:
        """See Setup."""
        for server in self.servers:
            server.table.forget(subjects)

    def plugins(self) -> tuple[Plugin, ...]:
        """See Setup."""
        return self.chain.plugins

    def resolve(self, request: Request) -> Reply | Awaitable[Reply]:
        """See Setup."""
        if not self.servers:
            return UNHANDLED
        server = next((server for server in self.servers if server.label == request.server), self.servers[0])
        return server.resolve(request)

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
        """See Setup."""
        file = WatchedFile(kind, self.path(path), every_s, read, parse, is_optional)
        if parse:
            self.prepare(file.begin)
        if every_s:
            self.spawn(file.follow)

    async def in_thread(self, work: Callable[[FileReader], T]) -> T:
        """See Setup. What took long is large, and the collector of garbage need not look at it again and again."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        with gc_paused(lambda: loop.time() - started_s > LONG_WORK_S):
            return await in_daemon_thread(lambda: work(LocalFiles()))

    def prepare(self, work: Callable[[], Awaitable[None]]) -> None:
        """See Setup."""
        self.preparations.append(work)

    def datagram(self, address: HostPort, packet: bytes, timeout_s: float, source: str = "") -> Awaitable[bytes]:
        """See Setup."""
        return peers.datagram(address, packet, timeout_s, source)

    def messages(
        self, address: HostPort, packet: bytes, timeout_s: float, source: str = ""
    ) -> AsyncGenerator[bytes, None]:
        """See Setup."""
        return peers.messages(address, packet, timeout_s, source)

    def has_file(self, path: str) -> bool:
        """See Setup."""
        return Path(path).is_file()

    def expose(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        samples: Callable[[], Iterable[PlainSample]],
        *,
        counter: bool = False,
    ) -> None:
        """See Setup."""
        rows = lambda: [Sample(*sample) for sample in samples()]  # noqa: E731 - a scrape calls it
        self.families.append(Family(name, text, tuple(labels), rows, counter))

    def counters(self, name: str, text: str, labels: Sequence[str]) -> Counters:
        """See Setup."""
        return self.process.counters.setdefault(name, Counters(text, tuple(labels)))

    def histograms(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> Histograms:
        """See Setup."""
        return self.process.histograms.setdefault(name, Histograms(text, tuple(labels), tuple(bounds)))

    def readiness(self, name: str, is_ready: Callable[[], bool]) -> None:
        """See Setup."""
        self.readiness_checks.append((name, is_ready))

    def log(self, level: Level, event: str, **facts: object) -> None:
        """See Setup."""
        if level == "debug" and self.options.logs_debug:
            log.info(event, **facts, is_debug=True)
        else:
            getattr(log, level)(event, **facts)

    def report(self, event: str, errors: Sequence[CorefileError], **facts: object) -> None:
        """See Setup. A file may have a mistake in each line: more than a few are counted."""
        for error in errors[:LOGGED_MISTAKES]:
            log.warning(event, reason=str(error), **facts)
        if len(errors) > LOGGED_MISTAKES:
            log.warning(event, more=len(errors) - LOGGED_MISTAKES, see="kdns check", **facts)

    def print_line(self, level: Level, event: str, line: str, facts: Mapping[str, object]) -> None:
        """See Setup."""
        if level != "debug" or self.options.logs_debug or logs.form().level == "debug":
            logs.print_directive_line(level, event, line, facts)

    def upstream(self, spec: UpstreamSpec) -> Upstream:
        """See Setup."""
        upstream = self.process.upstreams.of(spec)
        self._upstreams = [lease for lease in self._upstreams if not lease.is_closed]
        self._upstreams.append(upstream)
        return upstream

    async def within(self, timeout_s: float, reply: Awaitable[Reply]) -> Reply:
        """See Setup. A query over UDP has no task, which a timeout needs."""
        return await asyncio.create_task(_within(timeout_s, reply))

    def frames(self, spec: FrameSpec, lost: Tally) -> Callable[[bytes], None]:
        """See Setup."""
        stream = FrameStream(spec, lost)
        self.spawn(stream.run)
        return stream.put

    def now_s(self) -> float:
        """See Setup. It is the clock of asyncio's loops, read without looking for the one that runs."""
        return time.monotonic()

    def unix_s(self) -> float:
        """See Setup."""
        return time.time()

    @property
    def chance(self) -> Chance:
        """See Setup."""
        return _CHANCE

    def call_later(self, delay_s: float, call: Callable[[], None]) -> object:
        """See Setup."""
        return asyncio.get_running_loop().call_later(delay_s, call)

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """See Setup."""
        if self._is_stopped:
            return
        if self._is_started:
            task = observed(work(), f"directives of {', '.join(self.zones)}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._works.append(work)

    async def sleep(self, seconds: float) -> None:
        """See Setup."""
        await asyncio.sleep(seconds)

    def future(self) -> asyncio.Future[Any]:
        """See Setup."""
        return asyncio.get_running_loop().create_future()

    def on_stop(self, call: Callable[[], None]) -> None:
        """See Setup."""
        self._at_stop.append(call)

    def block(self, zone: str) -> Block:
        """The server block under one of its zones."""
        return Block(zone, self.chain, self.options.logs_stacks, self.options.udp_bytes)

    def located(self, error: InputError) -> InputError:
        """The error with what led to it: the word that names a file of no use, else the directive or server block."""
        if isinstance(error, KubeconfigError):
            return self.config.file_error(error.path, str(error), "kubernetes")  # no other one has clusters
        if isinstance(error, CorefileError) and not error.line:
            return self.config.file_error(error.path, str(error))
        return error if isinstance(error, CorefileError) else self.config.error(str(error))


async def _within(timeout_s: float, reply: Awaitable[Reply]) -> Reply:
    async with asyncio.timeout(timeout_s):
        return await reply
