"""An event loop whose selector answers UDP queries from the answer table before asyncio begins an iteration.

Below saturation an iteration of asyncio costs more than everything else about a query. The selector, written in C,
receives packets in batches, looks them up in the table's own dict and sends the answers; it returns for misses, for
other events, and at the timeout. If it was not compiled, the listeners answer in Python, with the same bytes and
counts.
"""

from __future__ import annotations

import asyncio
import os
import select
import selectors
from typing import Any, Final, TypeAlias

from kdns import logs
from kdns.answers.table import Partition
from kdns.dnsserver.io.burst.sampling import Sampling
from kdns.dnsserver.io.request_metrics import Requests

try:
    from kdns.dnsserver.io.burst import _burst
except ImportError:  # no compiler, or no headers of Python, where kdns was installed
    _burst = None  # type: ignore[assignment]

log = logs.get(__name__)

BURST: Final = 512
"""The most packets in a burst: about 2 ms in a flood.

With fewer, more packets of a flood stay in the kernel's buffer, which then drops packets of all clients.
"""
INTERPRETED: Final = "KDNS_INTERPRETED"
"""The environment variable that selects the loop in Python, for tests and comparisons."""

Miss: TypeAlias = tuple[bytes, bytes, Any, float]
"""Packet, key, the client's address, and when it was received."""
Listener: TypeAlias = tuple[Partition, Requests, list[Miss], Sampling]
"""A socket's answers, its counters, the list for its misses, and the sample of its queries."""


class BurstSelector(selectors.EpollSelector):
    """The selector of one event loop, and the UDP sockets that it answers."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: dict[int, Listener] = {}
        self._keys = self.get_map()

    def follow(self, fd: int, partition: Partition, requests: Requests, sampling: Sampling) -> list[Miss]:
        """Answers a socket, which is also registered for reading; returns the list that gets its misses.

        The socket is reported as readable if the list is not empty.
        """
        misses: list[Miss] = []
        self._listeners[fd] = partition, requests, misses, sampling
        return misses

    def follows(self, fd: int) -> bool:
        return fd in self._listeners

    def leave(self, fd: int) -> None:
        self._listeners.pop(fd, None)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Answers while it waits. After a failure it stops answering all sockets."""
        if not self._listeners:
            return super().select(timeout)
        try:
            events = _burst.wait(self.fileno(), -1.0 if timeout is None else max(timeout, 0.0), self._listeners, BURST)
        except Exception:  # a defect must not end the loop
            log.exception("compiled code failed, Python answers UDP from now on")
            self._listeners.clear()
            return super().select(0)
        return [(key, _mask(flags) & key.events) for fd, flags in events if (key := self._keys.get(fd))]


class BurstEventLoop(asyncio.SelectorEventLoop):
    """asyncio's loop with a BurstSelector."""

    def __init__(self) -> None:
        self.bursts = BurstSelector()
        super().__init__(self.bursts)


def is_compiled() -> bool:
    return _burst is not None and not os.environ.get(INTERPRETED)


def new_event_loop() -> asyncio.AbstractEventLoop:
    return BurstEventLoop() if is_compiled() else asyncio.SelectorEventLoop()


def _mask(flags: int) -> int:
    """epoll(7) flags → asyncio's; errors are both events, as in the standard library."""
    reads = selectors.EVENT_READ if flags & ~select.EPOLLOUT else 0
    return reads | (selectors.EVENT_WRITE if flags & ~select.EPOLLIN else 0)
