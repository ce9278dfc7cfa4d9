"""Runs clients' work in slices of time; sockets are read between two slices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from kdns.fair_queue import FairQueue
from kdns.runtime.tasks import SLICE_S

T = TypeVar("T")


class FairScheduler(Generic[T]):
    """A fair queue of up to `max_items`; `work` is called with each item in its client's turn."""

    def __init__(self, max_items: int, work: Callable[[T], object]) -> None:
        queue = FairQueue[T](max_items)
        self.put, self._take, self.waiting = queue.put, queue.take, queue.by_client
        self.is_scheduled = False
        self._work = work
        self._slice_end_s = 0.0

    @property
    def has_time(self) -> bool:
        return not self.waiting and asyncio.get_running_loop().time() < self._slice_end_s

    def run_soon(self) -> None:
        """Starts a slice in the next iteration of the loop, if none is scheduled."""
        if not self.is_scheduled:
            self.is_scheduled = True
            asyncio.get_running_loop().call_soon(self._continue)

    def drain(self) -> None:
        while self.waiting:
            self._work(self._take())

    def _continue(self) -> None:
        self.is_scheduled = False
        self.run_now()

    def run_now(self) -> None:
        """Starts a slice now, if none is scheduled."""
        if self.is_scheduled:
            return
        loop = asyncio.get_running_loop()
        waiting = self.waiting
        self._slice_end_s = loop.time() + SLICE_S
        self.is_scheduled = True
        try:
            while waiting:
                self._work(self._take())
                if loop.time() >= self._slice_end_s:
                    break
        finally:
            self.is_scheduled = bool(waiting)
            if self.is_scheduled:
                loop.call_soon(self._continue)
