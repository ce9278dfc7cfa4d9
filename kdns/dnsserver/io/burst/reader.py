"""Reads one UDP socket in bursts, and answers packets that are in the answer table.

In a BurstEventLoop the selector answers, and the reader gets the misses.
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from kdns.answers.table import Partition, packet_key
from kdns.dns.query import HEADER_BYTES
from kdns.dnsserver.io.burst.event_loop import BURST, BurstEventLoop, Miss
from kdns.dnsserver.io.burst.sampling import Look, Sampling
from kdns.dnsserver.io.request_metrics import Requests

RECEIVE_BYTES: Final = 4096


class UdpReader(ABC):
    """One UDP socket, the partition with its answers, and the counters of its queries."""

    def __init__(self, sock: socket.socket, partition: Partition, requests: Requests, sampling: Sampling) -> None:
        self.socket = sock
        self.partition = partition
        self.requests = requests
        self._sampling = sampling
        self._loop = asyncio.get_running_loop()
        self._missed: list[Miss] = []
        self.is_reading = False

    @abstractmethod
    def take(self, missed: Sequence[Miss], look: Look | None = None) -> None:
        """Handles packets that the table does not answer; `look` gets them and their responses."""

    def begin(self) -> None:
        """Reads the socket from now on."""
        if self.is_reading:
            return
        self.is_reading = True
        if isinstance(self._loop, BurstEventLoop):
            self._missed = self._loop.bursts.follow(self.socket.fileno(), self.partition, self.requests, self._sampling)
            self._loop.add_reader(self.socket, self._take_missed)
        else:
            self._loop.add_reader(self.socket, self.drain)

    def end(self) -> None:
        """Stops reading the socket, after the misses were handled."""
        if not self.is_reading:
            return
        self.is_reading = False
        self._loop.remove_reader(self.socket)
        if isinstance(self._loop, BurstEventLoop):
            self._take_missed()
            self._loop.bursts.leave(self.socket.fileno())

    def drain(self) -> None:
        """Answers the received packets, up to a burst."""
        receive, send = self.socket.recvfrom, self.socket.sendto
        held = self.partition.answers.get
        started_s = self._loop.time()
        hits, look = 0, self._sampling.look
        missed: list[Miss] = []
        for _ in range(BURST):
            try:
                packet, client = receive(RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                continue
            if len(packet) > HEADER_BYTES:
                key = packet_key(packet)
                answer = held(key)
            else:
                key, answer = b"", None
            if answer is None or (answer.until_s <= started_s and not answer.renew(started_s)):
                missed.append((packet, key, client, started_s))
                continue
            hits += 1
            wire = answer.wire(packet)
            try:
                send(wire, client)
            except OSError:
                self.requests.unsent += 1
            if look:
                look(packet, client[0], wire)
        if hits:
            self.requests.observe(hits, self._loop.time() - started_s)
        if missed:
            self.take(missed, look)

    def _take_missed(self) -> None:
        """Takes the packets that the selector did not answer; all of them, if it answers none any more."""
        missed = self._missed[:]
        self._missed.clear()
        if missed:
            self.take(missed, self._sampling.look)
        if isinstance(self._loop, BurstEventLoop) and not self._loop.bursts.follows(self.socket.fileno()):
            self.drain()
