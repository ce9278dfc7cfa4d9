"""One running server block, from its build to its end: its chain, and the World of its directives."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from errno import EFBIG, EILSEQ
from functools import partial
from itertools import islice
from pathlib import Path
from random import SystemRandom
from typing import Any, Final, TypeVar

from kdns import logs
from kdns.answers.chain import UNHANDLED, Block, Chain, Plugin, Reply, Request, ServeResult, awaited
from kdns.answers.response import Subject
from kdns.cluster.io.cluster import Cluster, Listener
from kdns.cluster.io.clusters import Clusters
from kdns.cluster.source import ClusterSpec
from kdns.cluster.state import OnChange, State
from kdns.dnsserver.blocks import Server
from kdns.dnsserver.io.frame_streams import FrameListener, FrameStream
from kdns.dnsserver.io.interfaces import bound_addresses, own_addresses
from kdns.errors import CorefileError, InputError, KubeconfigError
from kdns.netlink.addresses import InterfaceAddress
from kdns.runtime.files.bounded import bounded_text
from kdns.runtime.files.folders import files_below
from kdns.runtime.files.watched import WatchedFile
from kdns.runtime.metrics import Counters, Histograms, Metric
from kdns.runtime.process import gc_paused
from kdns.runtime.tasks import in_daemon_thread, observed
from kdns.serverblocks.config import WILDCARD, ServerConfig
from kdns.serverblocks.directive import FrameSpec, Level, Sample, UnreadableFileError
from kdns.tally import Tally
from kdns.upstream.io import peers
from kdns.upstream.io.upstreams import Lease, Upstreams
from kdns.upstream.upstream import Upstream, UpstreamSpec
from kdns.watch import watch

LOG: Final = logs.get("kdns.plugins")

T = TypeVar("T")

UPSTREAMS_KEPT_S: Final = 10.0
"""How long an old block may finish its pending queries to upstreams."""
LOGGED_MISTAKES: Final = 10
"""The most mistakes of one file that are logged; further ones are counted."""
MAX_FILE_CHARACTERS: Final = 256 << 20
"""The largest file that is read in a thread: a few million records."""
MAX_FILES: Final = 10_000
"""The most files of one directory."""
LONG_WORK_S: Final = 0.25
"""Work in a thread that takes longer makes so many objects that a full garbage collection would be noticed."""


@dataclass(slots=True)
class SharedResources:
    """Shared by all server blocks of a process; counters and histograms continue across reloads."""

    clusters: Clusters
    interfaces: tuple[InterfaceAddress, ...] = ()
    counters: dict[str, Counters] = field(default_factory=dict)
    histograms: dict[str, Histograms] = field(default_factory=dict)
    upstreams: Upstreams = field(default_factory=Upstreams)

    def metrics(self) -> list[Metric]:
        families: Iterable[Counters | Histograms] = (*self.counters.values(), *self.histograms.values())
        return [family.metric for family in families]


class BlockWorld:
    """The World of a server block's directives: see kdns.serverblocks.directive.

    `hosts` are the addresses that the block listens on, `servers` those that use the block once it listens.
    `metrics` are exposed while the block is in use.
    """

    random: Final = SystemRandom()
    now_s = staticmethod(time.monotonic)  # the clock of asyncio's loops, without a lookup of the running loop
    unix_s = staticmethod(time.time)
    sleep = staticmethod(asyncio.sleep)
    datagram = staticmethod(peers.datagram)
    messages = staticmethod(peers.messages)

    def __init__(self, config: ServerConfig, shared: SharedResources) -> None:
        self.config = config
        self.options = config.options
        self.chain = Chain()
        self.hosts: tuple[str, ...] = WILDCARD
        self.servers: list[Server] = []
        self.metrics: list[Metric] = []
        self.preparations: list[Callable[[], Awaitable[None]]] = []
        self.readiness_checks: list[tuple[str, Callable[[], bool]]] = []
        self._shared = shared
        self._works: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._running: set[asyncio.Task[None]] = set()
        self._at_stop: list[Callable[[], None]] = []
        self._clusters: list[tuple[Cluster, Listener]] = []
        self._upstreams: list[Lease] = []
        self._is_started = self._is_stopped = False

    # the life of the block, for the server

    def build(self) -> None:
        if binds := self.options.binds:
            interfaces = self._shared.interfaces
            hosts = (host for bind in binds for host in bound_addresses(bind.hosts, bind.exclude, interfaces))
            self.hosts = tuple(dict.fromkeys(hosts))
        if not self.hosts:
            raise self.config.error("`except` leaves no address to listen on").of("bind")
        self.chain = Chain(self.config.build(self))

    async def prepare_all(self) -> None:
        try:
            await asyncio.gather(*(work() for work in self.preparations))
        except InputError as error:
            raise self.located(error) from error

    def start(self) -> None:
        self._is_started = True
        for work in self._works:
            self.spawn(work)

    def release(self) -> None:
        for cluster, listener in self._clusters:
            cluster.listeners.remove(listener)
        self._clusters.clear()

    async def stop(self) -> None:
        self._is_stopped = True
        for call in self._at_stop:
            call()
        self.release()
        for upstream in self._upstreams:
            self.call_later(UPSTREAMS_KEPT_S, upstream.close)
        tasks = tuple(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._free()

    def abandon(self) -> None:
        self.release()
        for upstream in self._upstreams:
            upstream.close()
        self._free()

    def _free(self) -> None:
        """Breaks the reference cycle of block and directives, which is exempt from garbage collection."""
        self.chain = Chain()
        for calls in (self.preparations, self._works, self._at_stop, self.metrics, self.readiness_checks):
            calls.clear()

    def block(self, zone: str) -> Block:
        return Block(zone, self.chain, self.options.logs_stacks, self.options.udp_bytes)

    def located(self, error: InputError) -> InputError:
        """The error at the word that names the unusable file, or at the directive or server block."""
        if isinstance(error, KubeconfigError):
            return self.config.file_error(error.path, str(error), "kubernetes")  # only this directive has clusters
        if isinstance(error, CorefileError) and not error.line:
            return self.config.file_error(error.path, str(error))
        return error if isinstance(error, CorefileError) else self.config.error(str(error))

    # the block and its answers

    @property
    def zones(self) -> tuple[str, ...]:
        return self.config.zones

    @property
    def own_addresses(self) -> tuple[bytes, ...]:
        return own_addresses(self.hosts, self._shared.interfaces)

    @property
    def hostname(self) -> str:
        return socket.gethostname()

    def plugins(self) -> tuple[Plugin, ...]:
        return self.chain.plugins

    def resolve(self, request: Request) -> ServeResult:
        if not self.servers:
            return UNHANDLED
        server = next((server for server in self.servers if server.label == request.server), self.servers[0])
        return server.resolve(request)

    def forget(self, subjects: Iterable[Subject]) -> None:
        for server in self.servers:
            server.table.forget(subjects)

    def settle(self, subject: Subject) -> None:
        for server in self.servers:
            server.table.settle(subject)

    def readiness(self, name: str, is_ready: Callable[[], bool]) -> None:
        self.readiness_checks.append((name, is_ready))

    # tasks

    def prepare(self, work: Callable[[], Awaitable[None]]) -> None:
        self.preparations.append(work)

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._is_stopped:
            return
        if self._is_started:
            task = observed(work(), f"directives of {', '.join(self.zones)}")
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        else:
            self._works.append(work)

    def on_stop(self, call: Callable[[], None]) -> None:
        self._at_stop.append(call)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> object:
        return asyncio.get_running_loop().call_later(delay_s, call)

    def future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    async def with_timeout(self, timeout_s: float, reply: Awaitable[Reply]) -> Reply:
        """Makes a task, because queries run without one: see PendingQuery."""
        task = asyncio.ensure_future(awaited(reply))
        try:
            await asyncio.wait((task,), timeout=timeout_s)
            if not task.done():
                raise TimeoutError
            return task.result()
        finally:
            task.cancel()

    # files

    def path(self, name: str) -> str:
        return self.options.path(name)

    def has_file(self, path: str) -> bool:
        return Path(path).is_file()

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
        file = WatchedFile(kind, self.path(path), read, parse, is_optional)
        if parse:
            self.prepare(file.begin)
        if every_s:
            self.spawn(partial(watch, asyncio.sleep, every_s, file.renew, file.report))

    async def in_thread(self, work: Callable[[], T]) -> T:
        """A result that took long is large, so it is made exempt from garbage collection."""
        started_s = self.now_s()
        with gc_paused(lambda: self.now_s() - started_s > LONG_WORK_S):
            return await in_daemon_thread(work)

    def read_text(self, path: str) -> str:
        try:
            if not Path(path).is_file() and Path(path).exists():
                raise UnreadableFileError(path, 0, "", "cannot be read: it is not a regular file")
            return bounded_text(path, MAX_FILE_CHARACTERS, newline="")
        except OSError as error:
            kind = CorefileError if error.errno in {EFBIG, EILSEQ} else UnreadableFileError
            raise kind(path, 0, "", f"cannot be read: {error.strerror}") from error

    def files_below(self, directory: str) -> tuple[str, ...]:
        def failed(error: OSError) -> None:
            raise UnreadableFileError(directory, 0, "", f"cannot be read: {error.strerror or error}") from error

        paths = list(islice(files_below(Path(directory), failed), MAX_FILES + 1))
        if len(paths) > MAX_FILES:
            raise CorefileError(directory, 0, "", f"has more than {MAX_FILES:,} files")
        return tuple(sorted(str(path) for path in paths if path.is_file()))

    # metrics

    def counters(self, name: str, text: str, labels: Sequence[str]) -> Counters:
        return self._shared.counters.setdefault(name, Counters(name, text, tuple(labels)))

    def histograms(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> Histograms:
        return self._shared.histograms.setdefault(name, Histograms(name, text, tuple(labels), tuple(bounds)))

    def expose(self, name: str, text: str, labels: Sequence[str], samples: Callable[[], Iterable[Sample]]) -> None:
        self.metrics.append(Metric(name, text, tuple(labels), samples))

    # the log

    def log(self, level: Level, event: str, **facts: object) -> None:
        if level == "debug" and self.options.logs_debug:
            LOG.info(event, **facts, is_debug=True)
        else:
            getattr(LOG, level)(event, **facts)

    def report(self, event: str, errors: Sequence[CorefileError], **facts: object) -> None:
        """Only the first ones: a file may have a mistake in each line."""
        for error in errors[:LOGGED_MISTAKES]:
            LOG.warning(event, reason=str(error), **facts)
        if len(errors) > LOGGED_MISTAKES:
            LOG.warning(event, more=len(errors) - LOGGED_MISTAKES, see="kdns check", **facts)

    def print_line(self, level: Level, event: str, line: str, facts: Mapping[str, object]) -> None:
        if level != "debug" or self.options.logs_debug or logs.form().level == "debug":
            logs.print_directive_line(level, event, line, facts)

    # other servers

    def upstream(self, spec: UpstreamSpec) -> Upstream:
        upstream = self._shared.upstreams.of(spec)
        self._upstreams = [lease for lease in self._upstreams if not lease.is_closed]
        self._upstreams.append(upstream)
        return upstream

    def cluster(self, spec: ClusterSpec, changed: OnChange, *, startup_timeout_s: float) -> State:
        cluster = self._shared.clusters.of(spec)
        listener = Listener(changed, self.located, startup_timeout_s)
        cluster.listeners.append(listener)
        self._clusters.append((cluster, listener))
        return cluster.state

    def frames(self, spec: FrameSpec, lost: Tally) -> Callable[[bytes], None]:
        stream = FrameListener(spec, lost) if spec.listens else FrameStream(spec, lost)
        self.spawn(stream.run)
        return stream.put
