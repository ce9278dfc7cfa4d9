"""Schedules work of clients in slices of time; sockets are read between two slices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from kdns.fair_queue import FairQueue
from kdns.runtime.tasks import SLICE_S

T = TypeVar("T")


class FairScheduler(Generic[T]):
    """A fair queue of up to `max_items`; `work` is called with each item in its client's turn.

    `put` is that of the queue.
    """

    def __init__(self, max_items: int, work: Callable[[T], object]) -> None:
        self._queue = FairQueue[T](max_items)
        self.put = self._queue.put
        self._work = work
        self._slice_end_s = 0.0
        self._is_scheduled = False

    @property
    def has_time(self) -> bool:
        """Whether nothing waits and the last slice is not over."""
        return not self._queue.by_client and asyncio.get_running_loop().time() < self._slice_end_s

    @property
    def is_idle(self) -> bool:
        return not (self._is_scheduled or self._queue.by_client)

    def run_soon(self) -> None:
        """Begins a slice in the next iteration of the loop, if none is scheduled."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._continue)

    def drain(self) -> None:
        waiting = self._queue.by_client
        while waiting:
            self._work(self._queue.take())

    def _continue(self) -> None:
        self._is_scheduled = False
        self.run_now()

    def run_now(self) -> None:
        """Begins a slice now, if none is scheduled."""
        if self._is_scheduled:
            return
        loop = asyncio.get_running_loop()
        waiting = self._queue.by_client
        self._slice_end_s = loop.time() + SLICE_S
        self._is_scheduled = True
        try:
            while waiting:
                self._work(self._queue.take())
                if loop.time() >= self._slice_end_s:
                    break
        finally:
            self._is_scheduled = bool(waiting)
            if self._is_scheduled:
                loop.call_soon(self._continue)
