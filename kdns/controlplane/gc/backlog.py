"""A queue of work that follows from requests: the first part is done at once, further work in batches.

The owner of the batches sets `wake`, and then calls `run` while `has_work`. Without `wake`, all work is done at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

Work: TypeAlias = Callable[[], object]

AT_ONCE: Final = 100
"""Items that are done at once; further ones wait for a batch."""


class Backlog:
    """A queue of functions, each of which may add more without recursion.

    A function reads the state when it runs, so one that raised is queued again behind the others: a refused write is
    retried.
    """

    def __init__(self) -> None:
        self.wake: Callable[[], None] | None = None
        self._works: deque[Work] = deque()
        self._last: dict[str, Work] = {}
        self._is_working = self._waits = False

    @property
    def has_work(self) -> bool:
        return bool(self._works or self._last)

    def add(self, work: Work) -> None:
        """`begin` starts the work."""
        self._works.append(work)

    def add_last(self, name: str, work: Work) -> None:
        """Queues work that runs when nothing else is queued; a later call with the same name replaces it."""
        self._last[name] = work

    def begin(self) -> None:
        """Runs the first part of the queue. No effect while work runs, and while later work waits for its batches."""
        if self._is_working or (self._waits and self.wake):
            return
        try:
            self.run(AT_ONCE if self.wake else None)
        finally:
            if self.has_work and self.wake:
                self._waits = True
                self.wake()

    def run(self, most: int | None = None) -> None:
        self._is_working = True
        try:
            while self.has_work and most != 0:
                self._do_next()
                most = None if most is None else most - 1
        finally:
            self._is_working = False
            self._waits = self._waits and self.has_work

    def _do_next(self) -> None:
        name = "" if self._works else next(iter(self._last))
        work = self._last.pop(name) if name else self._works.popleft()
        try:
            work()
        except BaseException:
            if name:
                self._last.setdefault(name, work)
            else:
                self._works.append(work)
            raise
