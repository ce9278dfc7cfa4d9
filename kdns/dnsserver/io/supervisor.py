"""N workers, each a whole server: its own watch, chains, answers, and sockets at the same addresses (SO_REUSEPORT).

The kernel distributes clients over the workers. The supervisor answers no query: it starts the workers, replaces those
that exit or hang, forwards reloads and SIGTERM, and serves their HTTP pages as those of one server.
"""

from __future__ import annotations

import asyncio
import copy
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from kdns import logs
from kdns.dnsserver.io.interfaces import Sharing
from kdns.dnsserver.io.metrics import probe_metrics, registry
from kdns.dnsserver.io.server import (
    HEALTH_PATH,
    MAX_RELOADS,
    METRICS_PATH,
    READY_PATH,
    RETIRING,
    DnsServer,
    Reload,
    number_of_processes,
    pages_of,
    reload_every_s,
)
from kdns.errors import KdnsError
from kdns.net import HostPort
from kdns.runtime.http.relayed import OK, STATE, Relay
from kdns.runtime.http.server import Handler
from kdns.runtime.http.sites import HealthProbe, Sites, plain_page, scraped
from kdns.runtime.metric_sums import MetricSums
from kdns.runtime.metrics import COUNTER, Counters, Metric, MetricFamilies, Sample
from kdns.runtime.process import RELOAD_SIGNALS, ending
from kdns.runtime.tasks import observed
from kdns.serverblocks.block_options import HealthPage, MetricsPage, Page, ReadyPage
from kdns.serverblocks.config import ServerConfig

log = logs.get(__name__)

CHECK_S: Final = 1.0
"""The interval of requests for a worker's state."""
START_CHECK_S: Final = 0.05
HANG_S: Final = 6.0
"""A worker that does not answer for this long is killed."""
START_S: Final = 60.0
"""HANG_S for the first answer of a process."""
STEADY_S: Final = 10.0
"""A worker that ran at least this long is replaced at once, others with backoff."""
PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 30.0
SCRAPE_S: Final = 2.0
"""A worker that does not answer a scrape in time counts with its last exposition."""
PAGE_S: Final = 30.0


class WorkerError(KdnsError):
    """The first worker exited before it listened; it has printed the reason."""

    def __init__(self, status: int) -> None:
        self.exit_code = status if status > 0 else 1
        super().__init__(f"the first of several processes ended with {ending(status)} before it listened")


@dataclass(frozen=True, slots=True)
class State:
    """A worker's state; `listened` are its addresses as (scheme, host, port)."""

    is_listening: bool
    is_synced: bool
    listened: tuple[tuple[str, str, int], ...]
    sha512: str


def state_page(server: DnsServer) -> Handler:
    def state() -> tuple[int, str]:
        state = State(server.is_listening, server.is_synced, tuple(server.listened), server.sha512)
        return OK, msgspec.json.encode(state).decode()

    return plain_page(state)


class Worker:
    """A process, and a relay to its pages that outlives it; `checked` is called after each answer for STATE.

    `state` is its last answer, None until it handles signals. `last_metrics` is the last exposition of each metrics
    page, `sha512_sent` the hash of the Corefile of the last signal.
    """

    def __init__(self, argv: Sequence[str], number: int, probe: HealthProbe, checked: Callable[[Worker], None]) -> None:
        self.relay = Relay()
        self.number = number
        self.state: State | None = None
        self.has_listened = asyncio.Event()
        self.last_metrics: dict[HostPort, str] = {}
        self.sha512_sent = ""
        self._argv, self._probe, self._checked = argv, probe, checked
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, sharing: Sharing) -> int:
        fd = self.relay.socket.fileno()
        self._process = process = await asyncio.create_subprocess_exec(
            *self._argv,
            *("--worker", str(os.getpid()), str(fd), sharing.name.lower()),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(fd,),
            process_group=0,  # Ctrl-C is for the supervisor, which forwards it once
        )
        watching = observed(self._watch(process), f"watch of worker {self.number}")
        try:
            return await process.wait()
        finally:
            watching.cancel()
            self.state, self._process = None, None
            if process.returncode is None:
                process.kill()

    def signal(self, number: int) -> None:
        """A process that does not handle signals yet is killed instead."""
        if self._process:
            self._process.send_signal(number if self.state else signal.SIGKILL)

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        while True:
            started_s = time.perf_counter()
            page = await self.relay.get(STATE, timeout_s=HANG_S if self.state else START_S)
            if self.state:
                self._probe.durations.add(time.perf_counter() - started_s)
            if page is None or page.status != OK:
                self._probe.failures += 1
                log.error("worker does not respond: killed", worker=self.number, pid=process.pid)
                process.kill()
                return
            self.state = msgspec.json.decode(page.text or "", type=State)
            if self.state.is_listening:
                self.has_listened.set()
            self._checked(self)
            await asyncio.sleep(CHECK_S if self.state.is_synced else START_CHECK_S)


class Supervisor:
    """The workers of a configuration, instead of a DnsServer: `start`, then `stop`.

    `argv` is the command of a worker. `status_pages` are the paths of the directive `status`.
    """

    clusters = ()
    lameduck_s = 0.0  # the workers continue to answer by themselves

    def __init__(
        self,
        configs: tuple[ServerConfig, ...],
        number: int,
        argv: Sequence[str],
        *,
        sha512: str,
        status_pages: tuple[str, ...],
    ) -> None:
        self.sha512 = sha512
        self.failed_reloads = self.restarts = 0
        self.reloads: deque[Reload] = deque(maxlen=MAX_RELOADS)
        self._configs, self._status_pages = configs, status_pages
        self._probe = HealthProbe()
        self._workers = [Worker(argv, index, self._probe, self._forward_reload) for index in range(1, number + 1)]
        self._running: list[asyncio.Task[int]] = []
        self._sites = Sites()
        self._ended: dict[HostPort, MetricSums] = {}
        """Counts of exited workers, by page."""
        self._counters: dict[str, Counters] = {}
        self._has_started = False
        self._stopping = asyncio.Event()

    def counters(self, name: str, text: str, labels: tuple[str, ...]) -> Counters:
        """A family of counters of this process; called before the start."""
        return self._counters.setdefault(name, Counters(name, text, labels))

    @property
    def listened(self) -> list[tuple[str, str, int]]:
        return list(next((worker.state.listened for worker in self._workers if worker.state), ()))

    @property
    def site_addresses(self) -> dict[str, tuple[str, int]]:
        return self._sites.addresses

    @property
    def is_synced(self) -> bool:
        return all(worker.state and worker.state.is_synced for worker in self._workers)

    @property
    def reload_every_s(self) -> tuple[float, float]:
        return reload_every_s(config.options for config in self._configs)

    async def start(self) -> None:
        """Starts the first worker, and once it listens the others.

        Raises ListenError for a page whose address cannot be bound, WorkerError if the first worker does not listen.
        """
        pages = pages_of((config.options for config in self._configs), self._handlers)
        self._sites.use(pages, await self._sites.bind(pages))
        first, *others = self._workers
        starting = self._keep_running(first, Sharing.FIRST)
        waiting = asyncio.create_task(first.has_listened.wait())
        try:
            await asyncio.wait((starting, waiting), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            starting.cancel()
            raise
        finally:
            waiting.cancel()
        if starting.done():
            raise WorkerError(starting.result())
        for worker in others:
            self._keep_running(worker, Sharing.FURTHER)
        with suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                await asyncio.gather(*(worker.has_listened.wait() for worker in others))
        self._has_started = True

    async def swap(self, configs: tuple[ServerConfig, ...], sha512: str = "") -> None:
        """Binds the pages of another configuration, and signals the workers to reload the Corefile.

        Raises ListenError for a page whose address cannot be bound; then nothing changes.
        """
        pages = pages_of((config.options for config in configs), self._handlers)
        left = self._sites.use(pages, await self._sites.bind(pages))
        self._configs, self.sha512 = configs, sha512
        for worker in self._workers:
            self._forward_reload(worker)
        await asyncio.gather(*(site.close() for site in left))
        number = number_of_processes(configs, len(self._workers))
        if number != len(self._workers):
            log.warning("another number of processes needs a restart", running=len(self._workers), configured=number)

    def retire(self) -> None:
        """Makes /ready 503 until the workers have exited; see DnsServer."""
        self._stopping.set()

    async def stop(self) -> None:
        """Terminates the workers, which answer what they received, then closes the pages."""
        self.retire()
        for worker in self._workers:
            worker.signal(signal.SIGTERM)
        if self._running:
            await asyncio.wait(self._running)
        await self._sites.close()
        await asyncio.gather(*(worker.relay.close() for worker in self._workers))

    def _keep_running(self, worker: Worker, sharing: Sharing) -> asyncio.Task[int]:
        running = observed(self._replaced(worker, sharing), f"worker {worker.number}")
        self._running.append(running)
        return running

    async def _replaced(self, worker: Worker, sharing: Sharing) -> int:
        """Replaces a worker's process whenever it exits; returns the exit status of the last one."""
        pause_s = 0.0
        while True:
            started_s = time.monotonic()
            status = await worker.run(sharing)
            if self._stopping.is_set() or not self._workers[0].has_listened.is_set():
                return status
            sharing = Sharing.FURTHER
            self.restarts += 1
            for page, text in worker.last_metrics.items():
                self._ended.setdefault(page, MetricSums()).add(text, has_ended=True)
            worker.last_metrics.clear()
            was_steady = time.monotonic() >= started_s + STEADY_S
            pause_s = 0.0 if was_steady else min(max(2 * pause_s, PAUSE_S), LONGEST_PAUSE_S)
            log.error("worker ended", worker=worker.number, ended_with=ending(status), restarted_in_s=pause_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
                return status

    def _forward_reload(self, worker: Worker) -> None:
        """Signals a worker with an outdated Corefile, once for each change."""
        if worker.state and self.sha512 not in (worker.state.sha512, worker.sha512_sent):
            worker.sha512_sent = self.sha512
            worker.signal(RELOAD_SIGNALS[0])

    def _handlers(self, page: Page) -> dict[str, Handler]:
        match page:
            case HealthPage():
                return {HEALTH_PATH: plain_page(lambda: (200, "OK"))}
            case ReadyPage():
                return {READY_PATH: partial(self._ready, page.address)}
            case MetricsPage():
                return {METRICS_PATH: partial(self._metrics, page.address)}
            case _:
                return dict.fromkeys(self._status_pages, partial(self._relayed, page.address))

    async def _ready(self, page: HostPort, _request: web.BaseRequest) -> web.Response:
        """200 if every worker is ready; after the start, one that is being replaced does not count."""
        if self._stopping.is_set():
            return web.Response(status=503, text=RETIRING)
        listening = (worker for worker in self._workers if worker.state and worker.state.is_listening)
        requests = (worker.relay.get(READY_PATH, page, timeout_s=SCRAPE_S) for worker in listening)
        responses = [response for response in await asyncio.gather(*requests) if response]
        unready = {response.text or "" for response in responses if response.status != OK}
        if responses and not unready and self._has_started:
            return responses[0]
        return web.Response(status=503, text="\n".join(sorted(unready)) or "workers")

    async def _metrics(self, page: HostPort, request: web.BaseRequest) -> web.Response:
        requests = (worker.relay.get(METRICS_PATH, page, timeout_s=SCRAPE_S) for worker in self._workers)
        responses = await asyncio.gather(*requests)
        sums = copy.deepcopy(self._ended.get(page) or MetricSums())
        for worker, response in zip(self._workers, responses, strict=True):
            if response and response.status == OK:  # 404 until it has the page
                worker.last_metrics[page] = response.text or ""
            sums.add(worker.last_metrics.get(page, ""))
        sums.add(generate_latest(registry(MetricFamilies(self._own_metrics), runtime_metrics=False)).decode())
        exposed = CollectorRegistry()
        exposed.register(sums)
        return scraped(exposed, request.headers.get("Accept", ""))

    def _own_metrics(self) -> Iterable[Metric]:
        yield from worker_metrics(sum(bool(worker.state) for worker in self._workers), self.restarts)
        name, text = "coredns_reload_failed", "Reloads of the Corefile that failed."
        yield Metric(name, text, (), lambda: [Sample((), self.failed_reloads)], COUNTER)
        yield from (counters.metric for counters in self._counters.values())
        if any(isinstance(page, HealthPage) for config in self._configs for page in config.options.pages):
            yield from probe_metrics(self._probe)

    async def _relayed(self, page: HostPort, request: web.BaseRequest) -> web.Response:
        headers = dict(request.headers)
        for worker in self._workers:
            if worker.state and (
                response := await worker.relay.get(request.path_qs, page, timeout_s=PAGE_S, headers=headers)
            ):
                return response
        raise web.HTTPServiceUnavailable


def worker_metrics(running: int, restarts: int) -> Iterator[Metric]:
    name, text = "kdns_dns_workers", "Worker processes that answer queries."
    yield Metric(name, text, (), lambda: [Sample((), running)])
    name, text = "kdns_dns_worker_restarts", "Workers that ended and were started again."
    yield Metric(name, text, (), lambda: [Sample((), restarts)], COUNTER)
