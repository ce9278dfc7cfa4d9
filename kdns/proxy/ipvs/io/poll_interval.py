"""How often the kernel is compared with what it should have: every few seconds, and so that it costs little."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

POLL_S: Final = 2.0
BACKOFF_FACTOR: Final = 200.0
"""The pause is a multiple of the time that a comparison takes, so comparisons use half a percent of the time."""
MAX_PAUSE_S: Final = 10.0


class PollInterval:
    """The pause until the next comparison, and whether the expensive part of it is due. Times are of the processor."""

    def __init__(
        self, now_s: Callable[[], float] = time.monotonic, cpu_s: Callable[[], float] = time.thread_time
    ) -> None:
        self.pause_s = POLL_S
        self._now_s, self._cpu_s = now_s, cpu_s
        self._thorough_from_s = 0.0

    def cheap(self, compare: Callable[[], str]) -> str:
        started_s = self._cpu_s()
        try:
            return compare()
        finally:
            self.pause_s = min(max(POLL_S, BACKOFF_FACTOR * (self._cpu_s() - started_s)), MAX_PAUSE_S)

    def thorough(self, compare: Callable[[], str]) -> str:
        if self._now_s() < self._thorough_from_s:
            return ""
        started_s = self._cpu_s()
        try:
            return compare()
        finally:
            self._thorough_from_s = self._now_s() + BACKOFF_FACTOR * (self._cpu_s() - started_s)
