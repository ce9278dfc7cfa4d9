"""The process of a worker: it answers UDP queries from copies of answers, and sends all other packets to the server.

`python -m kdns.dnsserver.io.workers.worker FD` runs it on its end of the pair of sockets. It ends when the pair is
closed, or the server's process ends.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, assert_never

from kdns import logs
from kdns.dnsserver.answers.table import Partition
from kdns.dnsserver.io.burst.event_loop import Miss as MissedPacket
from kdns.dnsserver.io.burst.event_loop import new_event_loop
from kdns.dnsserver.io.burst.reader import UdpReader
from kdns.dnsserver.io.burst.sampling import Look, Sampling
from kdns.dnsserver.io.request_metrics import DURATION_BUCKETS_S, Requests
from kdns.dnsserver.io.workers.copies import AnswerCopies
from kdns.dnsserver.io.workers.link import Link
from kdns.dnsserver.io.workers.messages import (
    ITEMS,
    MESSAGE_BYTES,
    Attach,
    AttachAck,
    Clear,
    Detach,
    DetachAck,
    Forget,
    Hello,
    Keep,
    ListenerCounts,
    LookAtNext,
    Miss,
    Report,
    ReportNow,
    Sample,
    Tail,
    ToWorker,
    framed,
)
from kdns.fair_queue import FairQueue
from kdns.runtime.metrics import Histogram
from kdns.runtime.process import die_with, exempt_from_gc, ignore_signals
from kdns.runtime.tasks import in_slices

MISSES: Final = 4096
"""The most misses that wait for the server's process, as in its own queue; those beyond a client's share are dropped.
"""
REPORT_S: Final = 1.0
"""The interval of reports: a worker that crashes loses the counts since the last one."""
SAMPLES: Final = 64
"""The most queries of a burst that are sent as samples."""


class ForwardingReader(UdpReader):
    """One UDP socket, whose misses go to the server's process."""

    def __init__(
        self,
        sock: socket.socket,
        partition: Partition,
        sampling: Sampling,
        number: int,
        forward: Callable[[Sequence[MissedPacket], ForwardingReader, Look | None], None],
    ) -> None:
        super().__init__(sock, partition, Requests(), sampling)
        self.number = number
        self._forward = forward

    def take(self, missed: Sequence[MissedPacket], look: Look | None = None) -> None:
        """See UdpReader."""
        self._forward(missed, self, look)


class Worker:
    """The sockets and copies of one process; `ended` is set when the server has closed the pair."""

    def __init__(self, pair: socket.socket) -> None:
        self.ended = asyncio.Event()
        self._link = Link(pair, self._receive, ended=self.ended.set, drained=self._forward_waiting)
        self._misses = FairQueue[bytes](MISSES)
        self._sampling = Sampling()
        self._samples = 0
        self._copies = AnswerCopies()
        self._readers: dict[int, ForwardingReader] = {}
        self._report_now = asyncio.Event()
        self._report_number = 0

    async def run(self) -> None:
        """Answers until the pair is closed."""
        reporting = asyncio.create_task(self._report_regularly())
        await self.ended.wait()
        reporting.cancel()

    def _receive(self, message: ToWorker, fd: int) -> None:
        match message:
            case Keep() | Forget() | Tail() | Clear():
                self._copies.apply(message)
            case Attach(number, server, family):
                self._follow(number, self._copies.partition(server, family), fd)
            case Detach(number):
                self._leave(number)
            case ReportNow(number):
                self._report_number = number
                self._report_now.set()
            case LookAtNext():
                self._samples = SAMPLES
                self._sampling.look_at_next(self._sample)
            case Hello(parent, level, log_format):
                die_with(parent)
                logs.configure(level, format=log_format)
            case _:
                assert_never(message)

    def _follow(self, number: int, partition: Partition, fd: int) -> None:
        sock = socket.socket(fileno=fd)
        sock.setblocking(False)
        reader = ForwardingReader(sock, partition, self._sampling, number, self._forward)
        self._readers[number] = reader
        reader.begin()
        self._link.send(AttachAck(number))

    def _leave(self, number: int) -> None:
        reader = self._readers.pop(number)
        reader.end()
        reader.socket.close()
        while self._misses.by_client:
            self._link.send_frame(self._misses.take())
        self._send_counts([reader])
        self._link.send(DetachAck(number))

    def _forward(self, missed: Sequence[MissedPacket], reader: ForwardingReader, look: Look | None) -> None:
        """Queues misses for the server's process; drops those beyond their client's share."""
        for packet, _, client, received_s in missed:
            frame = framed(Miss(reader.number, packet, client, received_s, is_sample=look is not None))
            if not self._misses.put(client[0], frame):
                reader.requests.shed += 1
        self._forward_waiting()

    def _forward_waiting(self) -> None:
        """Sends queued misses, each client's in turn, as long as the server's process reads them."""
        while self._misses.by_client and not self._link.is_blocked:
            for _ in range(ITEMS):
                if not self._misses.by_client:
                    break
                self._link.send_frame(self._misses.take())
            self._link.flush()

    def _sample(self, packet: bytes, client: str, wire: bytes) -> None:
        if self._samples and not self._link.is_blocked and len(packet) + len(wire) < MESSAGE_BYTES // 2:
            self._samples -= 1
            self._link.send(Sample(packet, client, wire))

    async def _report_regularly(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._report_now.wait(), REPORT_S)
            self._report_now.clear()
            number = self._report_number
            async for answer, partition in in_slices(self._copies.used()):
                partition.count(answer)
            if not self._link.is_full:
                self._send_counts(list(self._readers.values()), number)

    def _send_counts(self, readers: Sequence[ForwardingReader], number: int = 0) -> None:
        """Sends the counts since the last report, in as many messages as they need, and begins new ones."""
        for report in self._reports(readers):
            self._link.send(report)
        self._link.send(Report(number))

    def _reports(self, readers: Sequence[ForwardingReader]) -> Iterator[Report]:
        for reader in readers:
            requests, durations = reader.requests, reader.requests.durations
            requests.durations = Histogram(DURATION_BUCKETS_S)
            counts = ListenerCounts(
                reader.number, tuple(durations.counts), durations.sum, requests.unsent, requests.shed
            )
            requests.unsent = requests.shed = 0
            yield Report(listeners=(counts,))
        yield from self._copies.reports()


async def _run(pair: socket.socket) -> None:
    worker = Worker(pair)
    exempt_from_gc()
    await worker.run()


def main(argv: Sequence[str]) -> None:
    """Runs a worker on the pair of sockets whose descriptor is the first argument."""
    ignore_signals()  # the server's process acts on them
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_run(socket.socket(fileno=int(argv[0]))))


if __name__ == "__main__":
    main(sys.argv[1:])
