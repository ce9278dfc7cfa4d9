"""The capabilities of a server block's directives: a class for each protocol of kdns.serverblocks.directive."""

from __future__ import annotations

import asyncio
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from errno import EFBIG, EILSEQ
from functools import partial
from itertools import islice
from pathlib import Path
from random import SystemRandom
from typing import Any, Final, TypeVar

from kdns import logs
from kdns.answers.chain import UNHANDLED, Chain, Plugin, Reply, Request, awaited
from kdns.answers.response import Subject
from kdns.cluster.io.clusters import Cluster, Clusters, Listener
from kdns.cluster.source import ClusterSpec
from kdns.cluster.state import OnChange, State
from kdns.dnsserver.blocks import Server
from kdns.dnsserver.frame_streams.io import FrameListener, FrameStream
from kdns.dnsserver.io.interfaces import own_addresses
from kdns.errors import CorefileError, InputError
from kdns.net import HostPort
from kdns.netlink.addresses import InterfaceAddress
from kdns.runtime.files.bounded import bounded_text
from kdns.runtime.files.folders import files_below
from kdns.runtime.files.watched import WatchedFile
from kdns.runtime.metrics import COUNTER, GAUGE, Counters, Histograms, Metric
from kdns.runtime.process import gc_paused
from kdns.runtime.tasks import in_daemon_thread, observed, with_timeout
from kdns.serverblocks.block_options import BlockOptions
from kdns.serverblocks.config import WILDCARD, ServerConfig
from kdns.serverblocks.directive import FileReader, FrameSpec, Level, RandomNumbers, Sample, UnreadableFileError
from kdns.tally import Tally
from kdns.upstream.io import peers
from kdns.upstream.io.upstreams import Lease, Upstreams
from kdns.upstream.upstream import Upstream, UpstreamSpec
from kdns.watch import watch

LOG: Final = logs.get("kdns.plugins")

T = TypeVar("T")

LOGGED_MISTAKES: Final = 10
"""The most mistakes in one file that are logged; more are counted."""
MAX_FILE_CHARACTERS: Final = 256 << 20
"""The largest file that is read in a thread: a few million records."""
MAX_FILES: Final = 10_000
"""Files of one directory."""
LONG_WORK_S: Final = 0.25
"""Work in a thread that took longer made so many objects that a full collection would be noticed."""


_RANDOM: Final = SystemRandom()


@dataclass(slots=True)
class Process:
    """The shared state of a process's server blocks; counters and histograms continue after a reload."""

    clusters: Clusters
    interfaces: tuple[InterfaceAddress, ...] = ()
    counters: dict[str, Counters] = field(default_factory=dict)
    histograms: dict[str, Histograms] = field(default_factory=dict)
    upstreams: Upstreams = field(default_factory=Upstreams)

    def metrics(self) -> list[Metric]:
        """The metrics of directives that go on after a reload."""
        families: Iterable[Counters | Histograms] = (*self.counters.values(), *self.histograms.values())
        return [family.metric for family in families]


class SystemClock:
    """The clocks of this machine."""

    now_s = staticmethod(time.monotonic)  # the clock of asyncio's loops, without looking for the one that runs
    unix_s = staticmethod(time.time)


class BlockTasks:
    """The coroutines of one server block: they wait for its start, and are cancelled at its end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.preparations: list[Callable[[], Awaitable[None]]] = []
        self._works: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._running: set[asyncio.Task[None]] = set()
        self._at_stop: list[Callable[[], None]] = []
        self._is_started = self._is_stopped = False

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """See Tasks."""
        if self._is_stopped:
            return
        if self._is_started:
            task = observed(work(), self._name)
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        else:
            self._works.append(work)

    def prepare(self, work: Callable[[], Awaitable[None]]) -> None:
        """See Tasks."""
        self.preparations.append(work)

    async def sleep(self, seconds: float) -> None:
        """See Tasks."""
        await asyncio.sleep(seconds)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> object:
        """See Tasks."""
        return asyncio.get_running_loop().call_later(delay_s, call)

    def future(self) -> asyncio.Future[Any]:
        """See Tasks."""
        return asyncio.get_running_loop().create_future()

    def with_timeout(self, timeout_s: float, reply: Awaitable[Reply]) -> Awaitable[Reply]:
        """See Tasks."""
        return with_timeout(timeout_s, awaited(reply))

    def on_stop(self, call: Callable[[], None]) -> None:
        """See Tasks."""
        self._at_stop.append(call)

    def start(self) -> None:
        """Starts the coroutines of the directives."""
        self._is_started = True
        for work in self._works:
            self.spawn(work)

    def end(self) -> None:
        """Starts no more coroutines, and calls the functions for the end."""
        self._is_stopped = True
        for call in self._at_stop:
            call()

    async def cancel(self) -> None:
        """Cancels the running coroutines."""
        tasks = tuple(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class LocalFiles:
    """The files of this machine: see kdns.serverblocks.directive.FileReader."""

    def text(self, path: str) -> str:
        """See FileReader."""
        try:
            if not Path(path).is_file() and Path(path).exists():
                raise UnreadableFileError(path, 0, "", "cannot be read: it is not a regular file")
            return bounded_text(path, MAX_FILE_CHARACTERS, newline="")
        except OSError as error:
            kind = CorefileError if error.errno in {EFBIG, EILSEQ} else UnreadableFileError
            raise kind(path, 0, "", f"cannot be read: {error.strerror}") from error

    def names(self, directory: str) -> tuple[str, ...]:
        """See FileReader."""

        def failed(error: OSError) -> None:
            raise UnreadableFileError(directory, 0, "", f"cannot be read: {error.strerror or error}") from error

        paths = list(islice(files_below(Path(directory), failed), MAX_FILES + 1))
        if len(paths) > MAX_FILES:
            raise CorefileError(directory, 0, "", f"has more than {MAX_FILES:,} files")
        return tuple(sorted(str(path) for path in paths if path.is_file()))


class BlockFiles(BlockTasks):
    """Files in the block's folder; its tasks watch them."""

    options: BlockOptions

    def path(self, name: str) -> str:
        """See Files."""
        return self.options.path(name)

    def has_file(self, path: str) -> bool:
        """See Files."""
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
        """See Files."""
        file = WatchedFile(kind, self.path(path), read, parse, is_optional)
        if parse:
            self.prepare(file.begin)
        if every_s:
            self.spawn(partial(watch, asyncio.sleep, every_s, file.renew, file.report))

    async def in_thread(self, work: Callable[[FileReader], T]) -> T:
        """See Files. A result that took long is large, so it is exempted from garbage collection."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        with gc_paused(lambda: loop.time() - started_s > LONG_WORK_S):
            return await in_daemon_thread(lambda: work(LocalFiles()))


class BlockMetrics:
    """Counters and histograms of the process; `metrics` are those that are served while the block is in use."""

    def __init__(self, process: Process) -> None:
        self._shared = process
        self.metrics: list[Metric] = []

    def expose(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        samples: Callable[[], Iterable[Sample]],
        *,
        counter: bool = False,
    ) -> None:
        """See Metrics."""
        self.metrics.append(Metric(name, text, tuple(labels), samples, COUNTER if counter else GAUGE))

    def counters(self, name: str, text: str, labels: Sequence[str]) -> Counters:
        """See Metrics."""
        return self._shared.counters.setdefault(name, Counters(name, text, tuple(labels)))

    def histograms(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> Histograms:
        """See Metrics."""
        family = Histograms(name, text, tuple(labels), tuple(bounds))
        return self._shared.histograms.setdefault(name, family)


class BlockLog:
    """The log of the process."""

    def __init__(self, *, logs_debug: bool) -> None:
        self._logs_debug = logs_debug

    def log(self, level: Level, event: str, **facts: object) -> None:
        """See EventLog."""
        if level == "debug" and self._logs_debug:
            LOG.info(event, **facts, is_debug=True)
        else:
            getattr(LOG, level)(event, **facts)

    def report(self, event: str, errors: Sequence[CorefileError], **facts: object) -> None:
        """See EventLog. A file may have a mistake in each line: only the first ones are logged."""
        for error in errors[:LOGGED_MISTAKES]:
            LOG.warning(event, reason=str(error), **facts)
        if len(errors) > LOGGED_MISTAKES:
            LOG.warning(event, more=len(errors) - LOGGED_MISTAKES, see="kdns check", **facts)

    def print_line(self, level: Level, event: str, line: str, facts: Mapping[str, object]) -> None:
        """See EventLog."""
        if level != "debug" or self._logs_debug or logs.form().level == "debug":
            logs.print_directive_line(level, event, line, facts)


class BlockPeers(BlockTasks, ABC):
    """Upstreams, clusters and other servers, until the block ends."""

    def __init__(self, process: Process) -> None:
        self._shared = process
        self._clusters: list[tuple[Cluster, Listener]] = []
        self._upstreams: list[Lease] = []

    @abstractmethod
    def located(self, error: InputError) -> InputError:
        """Returns the error with its place in the block's configuration."""

    def upstream(self, spec: UpstreamSpec) -> Upstream:
        """See Peers."""
        upstream = self._shared.upstreams.of(spec)
        self._upstreams = [lease for lease in self._upstreams if not lease.is_closed]
        self._upstreams.append(upstream)
        return upstream

    def datagram(self, address: HostPort, packet: bytes, timeout_s: float, source: str = "") -> Awaitable[bytes]:
        """See Peers."""
        return peers.datagram(address, packet, timeout_s, source)

    def messages(
        self, address: HostPort, packet: bytes, timeout_s: float, source: str = ""
    ) -> AsyncGenerator[bytes, None]:
        """See Peers."""
        return peers.messages(address, packet, timeout_s, source)

    def cluster(self, spec: ClusterSpec, changed: OnChange, *, startup_timeout_s: float) -> State:
        """See Peers."""
        cluster = self._shared.clusters.of(spec)
        listener = Listener(changed, self.located, startup_timeout_s)
        cluster.listeners.append(listener)
        self._clusters.append((cluster, listener))
        return cluster.state

    def frames(self, spec: FrameSpec, lost: Tally) -> Callable[[bytes], None]:
        """See Peers."""
        stream = FrameListener(spec, lost) if spec.listens else FrameStream(spec, lost)
        self.spawn(stream.run)
        return stream.put

    @property
    def random(self) -> RandomNumbers:
        """See Peers."""
        return _RANDOM

    def release(self) -> None:
        """Stops receiving changes of clusters."""
        for cluster, listener in self._clusters:
            cluster.listeners.remove(listener)
        self._clusters.clear()

    def leave(self, after_s: float = 0.0) -> None:
        """Releases the upstreams after so many seconds, in which pending queries end."""
        for upstream in self._upstreams:
            if after_s:
                asyncio.get_running_loop().call_later(after_s, upstream.close)
            else:
                upstream.close()


class BlockAnswers:
    """The chain of the block, `hosts` that it listens on, and `servers` that answer with it, once there are any."""

    def __init__(self, config: ServerConfig, process: Process) -> None:
        self.config = config
        self._shared = process
        self.chain = Chain()
        self.hosts: tuple[str, ...] = WILDCARD
        self.servers: list[Server] = []
        self.readiness_checks: list[tuple[str, Callable[[], bool]]] = []

    @property
    def zones(self) -> tuple[str, ...]:
        """See Answers."""
        return self.config.zones

    @property
    def own_addresses(self) -> tuple[bytes, ...]:
        """See Answers."""
        return own_addresses(self.hosts, self._shared.interfaces)

    @property
    def hostname(self) -> str:
        """See Answers."""
        return socket.gethostname()

    def plugins(self) -> tuple[Plugin, ...]:
        """See Answers."""
        return self.chain.plugins

    def resolve(self, request: Request) -> Reply | Awaitable[Reply]:
        """See Answers."""
        if not self.servers:
            return UNHANDLED
        server = next((server for server in self.servers if server.label == request.server), self.servers[0])
        return server.resolve(request)

    def forget(self, subjects: Iterable[Subject]) -> None:
        """See Answers."""
        for server in self.servers:
            server.table.forget(subjects)

    def settle(self, subject: Subject) -> None:
        """See Answers."""
        for server in self.servers:
            server.table.settle(subject)

    def readiness(self, name: str, is_ready: Callable[[], bool]) -> None:
        """See Answers."""
        self.readiness_checks.append((name, is_ready))
