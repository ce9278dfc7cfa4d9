"""The workers of a server: starts them, feeds them, adds up their counts, and replaces those that end.

Each worker has a slot with UDP sockets of its own, which stay open in this process too: it reads them whenever the
worker does not, so no packet is lost while a worker starts or after it has ended. Its replies to a worker's misses go
through the same sockets.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, assert_never

from kdns import logs
from kdns.dns.query import HEADER_BYTES
from kdns.dnsserver.answers.response import Subject
from kdns.dnsserver.answers.table import AnswerTable, packet_key
from kdns.dnsserver.blocks import Server
from kdns.dnsserver.io.burst.event_loop import Miss as MissedPacket
from kdns.dnsserver.io.burst.sampling import Look, Sampling
from kdns.dnsserver.io.request_metrics import DURATION_BUCKETS_S
from kdns.dnsserver.io.udp import CLOSE_S, UdpListener
from kdns.dnsserver.io.workers.feed import Feed
from kdns.dnsserver.io.workers.link import Link
from kdns.dnsserver.io.workers.messages import (
    Attach,
    AttachAck,
    Detach,
    DetachAck,
    FromWorker,
    Hello,
    LookAtNext,
    Miss,
    Report,
    ReportNow,
    Sample,
)
from kdns.runtime.metrics import COUNTER, Histogram, Metric
from kdns.runtime.metrics import Sample as MetricSample
from kdns.runtime.process import signals_blocked
from kdns.runtime.tasks import observed
from kdns.tally import Tally

log = logs.get(__name__)

PROGRAM: Final = "kdns.dnsserver.io.workers.worker"
BACKOFF_S: Final = 0.1
BACKOFF_MAX_S: Final = 10.0
"""The delay before a worker is started again doubles up to this; one that has lived longer begins at BACKOFF_S."""
REPORT_S: Final = 0.5
"""The time for which a scrape waits for the counts of workers."""
CHECK_S: Final = 2.0
CHECKS: Final = 3
"""A worker that sends nothing for so many checks, one every CHECK_S, is killed; it reports every second."""
STOP_S: Final = 2.0
"""The time that a worker has to end before it is killed."""


@dataclass(slots=True, eq=False)
class Assignment:
    """A listener of a slot, with its number and its server's; `detached` ends when the worker does not read it."""

    number: int
    server: int
    listener: UdpListener
    look: Look
    detached: asyncio.Future[None] | None = None


class Slot:
    """One worker after the other, on the same sockets."""

    def __init__(self, pool: WorkerPool, index: int) -> None:
        self.index = index
        self.link: Link | None = None
        self.feed: Feed | None = None
        """Those of the running worker."""
        self.assignments: dict[int, Assignment] = {}
        self._pool = pool
        self._missed: dict[Assignment, list[MissedPacket]] = {}
        self._messages = 0
        self._reported: dict[int, asyncio.Future[None]] = {}
        self._task = observed(self._run(), f"worker {index}")

    @property
    def is_reading(self) -> bool:
        """Whether the worker reads all sockets of the slot."""
        return not any(assignment.listener.is_reading for assignment in self.assignments.values())

    def follow(self, assignment: Assignment) -> None:
        """Has the worker read a listener's socket."""
        self.assignments[assignment.number] = assignment
        if self.link:
            self._send_attach(self.link, assignment)

    async def leave(self, assignment: Assignment) -> None:
        """Waits until the worker does not read a listener's socket any more, and all its misses have come."""
        if self.link is None:
            del self.assignments[assignment.number]
            return
        assignment.detached = asyncio.get_running_loop().create_future()
        self.link.send(Detach(assignment.number))
        await asyncio.wait((assignment.detached,), timeout=CLOSE_S)
        self.assignments.pop(assignment.number, None)

    async def report(self, number: int) -> None:
        """Waits until the worker's counts have come, at most REPORT_S."""
        if self.link is None:
            return
        self._reported[number] = future = asyncio.get_running_loop().create_future()
        self.link.send(ReportNow(number))
        await asyncio.wait((future,), timeout=REPORT_S)
        self._reported.pop(number, None)

    async def stop(self) -> None:
        """Ends the worker."""
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _run(self) -> None:
        loop, delay_s = asyncio.get_running_loop(), BACKOFF_S
        while True:
            started_s = loop.time()
            try:
                status: object = await self._run_one()
            except OSError as error:
                status = str(error)
            if loop.time() - started_s > BACKOFF_MAX_S:
                delay_s = BACKOFF_S
            self._pool.restarts.count += 1
            log.warning("worker ended", worker=self.index, status=status, restart_in_s=delay_s)
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, BACKOFF_MAX_S)

    async def _run_one(self) -> int:
        """Runs one worker until it ends; returns the status of its process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            process = await self._pool.start_process(theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ended = asyncio.Event()
        self._messages = 0
        link = Link(ours, self._receive, ended=ended.set, received=self._take_missed, drained=self._drained)
        self.link, self.feed = link, Feed(link)
        form = logs.form()
        link.send(Hello(os.getpid(), form.level, form.format))
        for assignment in self.assignments.values():
            self._send_attach(link, assignment)
        checking = observed(self._check(process), f"check of worker {self.index}")
        try:
            await ended.wait()
        finally:
            checking.cancel()
            link.close()
            self._read_again()
            status = await _end(process)
        return status

    def _read_again(self) -> None:
        """Reads the sockets here, since the worker does not."""
        self.link = self.feed = None
        for assignment in tuple(self.assignments.values()):
            if assignment.detached is None:
                assignment.listener.begin()
            elif not assignment.detached.done():
                assignment.detached.set_result(None)
        for future in self._reported.values():
            if not future.done():
                future.set_result(None)

    async def _check(self, process: asyncio.subprocess.Process) -> None:
        """Kills the worker when it does not send its reports any more."""
        while not self._messages:  # noqa: ASYNC110 - it has not begun
            await asyncio.sleep(CHECK_S)
        silent = 0
        while silent < CHECKS:
            self._messages = 0
            await asyncio.sleep(CHECK_S)
            silent = 0 if self._messages else silent + 1
        log.error("worker does not respond", worker=self.index, silent_s=CHECKS * CHECK_S)
        if process.returncode is None:
            process.kill()

    def _drained(self) -> None:
        if self.feed:
            self.feed.drained()

    def _send_attach(self, link: Link, assignment: Assignment) -> None:
        listener = assignment.listener
        link.send(Attach(assignment.number, assignment.server, listener.partition.family), listener.socket.fileno())

    def _receive(self, message: FromWorker, _fd: int) -> None:
        self._messages += 1
        match message:
            case Miss(number, packet, client, received_s, is_sample):
                assignment = self.assignments.get(number)
                if assignment:
                    self._miss(assignment, packet, client, received_s, is_sample=is_sample)
            case Report():
                self._add(message)
            case AttachAck(number):
                assignment = self.assignments.get(number)
                if assignment and assignment.detached is None:
                    assignment.listener.end()
            case DetachAck(number):
                assignment = self.assignments.get(number)
                if assignment and assignment.detached and not assignment.detached.done():
                    assignment.detached.set_result(None)
            case Sample(packet, client, wire):
                self._pool.look(packet, client, wire)
            case _:
                assert_never(message)

    def _miss(self, assignment: Assignment, packet: bytes, client: Any, received_s: float, *, is_sample: bool) -> None:
        key = packet_key(packet) if len(packet) > HEADER_BYTES else b""
        if not is_sample:
            self._missed.setdefault(assignment, []).append((packet, key, client, received_s))
            return

        def look(packet: bytes, client: str, wire: bytes) -> None:
            assignment.look(packet, client, wire)
            self._pool.look(packet, client, wire)

        assignment.listener.take([(packet, key, client, received_s)], look)

    def _take_missed(self) -> None:
        """Answers the misses of a burst."""
        if self._missed:
            missed, self._missed = self._missed, {}
            for assignment, packets in missed.items():
                assignment.listener.take(packets, assignment.look)
        if self.link:
            self.link.flush()

    def _add(self, report: Report) -> None:
        """Adds a worker's counts to those of this process."""
        for number, counts, sum_s, unsent, shed in report.listeners:
            if assignment := self.assignments.get(number):
                requests = assignment.listener.requests
                durations = Histogram(DURATION_BUCKETS_S)
                durations.counts, durations.sum = list(counts), sum_s
                requests.durations.merge(durations)
                requests.unsent += unsent
                requests.shed += shed
        for server, family, kind, times in report.kinds:
            self._pool.tables[server].partition("udp", family).counts.add(kind, times)
        if self.feed:
            self.feed.add_uses(report)
        for number, future in self._reported.items():
            if number <= report.number and not future.done():
                future.set_result(None)


class WorkerPool:
    """The slots of a server by their index. `look` gets the queries that workers were told to show."""

    def __init__(self, sampling: Sampling) -> None:
        self.restarts = Tally()
        self.tables: dict[int, AnswerTable] = {}
        self.look: Look = _ignored
        self._numbers: dict[AnswerTable, int] = {}
        self._slots: dict[int, Slot] = {}
        self._places: dict[UdpListener, tuple[Slot, Assignment]] = {}
        self._last_number = 0
        self._starting = asyncio.Lock()
        sampling.others = self._look_at_next

    def follow(self, index: int, listener: UdpListener) -> None:
        """Has the worker of a slot read a listener's socket, as soon as it runs."""
        if listener in self._places:
            return
        if index not in self._slots:
            self._slots[index] = Slot(self, index)
        slot, server = self._slots[index], self._server(listener.server)
        self._last_number += 1
        assignment = Assignment(self._last_number, server, listener, partial(self._keep, slot, server, listener))
        self._places[listener] = slot, assignment
        slot.follow(assignment)

    async def leave(self, listener: UdpListener) -> bool:
        """Reads a listener's socket in this process again, and ends a worker without any; False if no worker had it."""
        place = self._places.pop(listener, None)
        if place is None:
            return False
        slot, assignment = place
        await slot.leave(assignment)
        listener.begin()
        if not slot.assignments and self._slots.get(slot.index) is slot:
            del self._slots[slot.index]
            await self._report((slot,))
            await slot.stop()
        return True

    async def report(self) -> None:
        """Waits until the counts of all workers have come, but not longer than REPORT_S."""
        await self._report(self._slots.values())

    async def _report(self, slots: Iterable[Slot]) -> None:
        self._last_number += 1
        await asyncio.gather(*(slot.report(self._last_number) for slot in slots))

    async def start_process(self, pair: socket.socket) -> asyncio.subprocess.Process:
        """Starts a process at its end of a pair of sockets; raises OSError."""
        async with self._starting:  # two at once would leave the signals blocked
            with signals_blocked():
                return await asyncio.create_subprocess_exec(
                    sys.executable,
                    *("-P", "-m", PROGRAM, str(pair.fileno())),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(pair.fileno(),),
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                )

    def metrics(self) -> Iterator[Metric]:
        """Yields the metrics of workers, if there are any."""
        if self._slots:
            running = sum(slot.is_reading for slot in self._slots.values())
            yield from worker_metrics(running, self.restarts.count)

    def feeds(self) -> list[Feed]:
        """Returns the feeds of all running workers."""
        return [slot.feed for slot in self._slots.values() if slot.feed]

    def _server(self, server: Server) -> int:
        """Returns the number of a server, whose table has copies from now on."""
        number = self._numbers.get(server.table)
        if number is None:
            self._numbers[server.table] = number = len(self._numbers) + 1
            self.tables[number] = server.table
            server.table.copies = TableCopies(self, number)
        return number

    def _keep(self, slot: Slot, server: int, listener: UdpListener, packet: bytes, _client: str, _wire: bytes) -> None:
        """Copies the answer to a miss to the worker that had it, if the table of this process keeps the answer."""
        key = packet_key(packet) if len(packet) > HEADER_BYTES else b""
        answer = listener.partition.answers.get(key)
        if answer is not None and slot.feed:
            slot.feed.keep(server, listener.partition.family, answer)

    def _look_at_next(self, look: Look) -> None:
        self.look = look
        for slot in self._slots.values():
            if slot.link and not slot.link.is_blocked:
                slot.link.send(LookAtNext())


class TableCopies:
    """The copies of one table in all workers: see kdns.dnsserver.answers.table.Copies."""

    def __init__(self, pool: WorkerPool, server: int) -> None:
        self._pool = pool
        self._server = server

    def forget(self, subjects: Collection[Subject]) -> None:
        """See Copies."""
        for feed in self._pool.feeds():
            feed.forget(self._server, subjects)

    def clear(self) -> None:
        """See Copies."""
        for feed in self._pool.feeds():
            feed.clear(self._server)


def worker_metrics(running: int, restarts: int) -> Iterator[Metric]:
    """Yields the metrics of workers."""
    name, text = "kdns_dns_workers", "Worker processes that answer UDP queries."
    yield Metric(name, text, (), lambda: [MetricSample((), running)])
    name, text = "kdns_dns_worker_restarts", "Workers that ended and were started again."
    yield Metric(name, text, (), lambda: [MetricSample((), restarts)], COUNTER)


async def _end(process: asyncio.subprocess.Process) -> int:
    """Returns the status of a process that is to end; kills it after STOP_S."""
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
    return await process.wait()


def _ignored(_packet: bytes, _client: str, _wire: bytes) -> None:
    """Ignores a query."""
