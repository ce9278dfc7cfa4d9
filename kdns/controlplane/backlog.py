"""What is still to be done, in order: a little of it at once, the rest in pieces.

Somebody who takes pieces sets `wake`, and calls `go_on` after each time it is called for as long as `is_left`. While
`is_held`, works are only queued. Without anybody all is done at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

Work: TypeAlias = Callable[[], object]

AT_ONCE: Final = 100
"""Works that are done before the rest waits for its turn."""


class Backlog:
    """A queue of works, each of which may add more; a long chain of them makes no deep stack.

    Works look at what there is when their turn comes, so one that failed is tried again, after the others.
    """

    def __init__(self) -> None:
        self.wake: Callable[[], None] | None = None
        self._works: deque[Work] = deque()
        self._last: dict[str, Work] = {}
        self.is_held = False
        self._is_working = self._waits = False

    @property
    def is_left(self) -> bool:
        """Whether anything is still to be done."""
        return bool(self._works or self._last)

    def add(self, work: Work) -> None:
        """Queue a work; `begin` begins with it."""
        self._works.append(work)

    def add_last(self, name: str, work: Work) -> None:
        """Do this when nothing else is left, and once for all works of the same name."""
        self._last[name] = work

    def begin(self) -> None:
        """Do what is queued, or the beginning of it; nothing if that is going on, here or further up the stack."""
        if self.is_held or self._is_working or (self._waits and self.wake):
            return
        try:
            self._run(AT_ONCE if self.wake else None)
        finally:
            if self.is_left and self.wake:
                self._waits = True
                self.wake()

    def go_on(self, most: int) -> None:
        """Do the next works, at most so many."""
        self._run(most)

    def _run(self, most: int | None) -> None:
        self._is_working = True
        try:
            while self.is_left and most != 0:
                self._do_next()
                most = None if most is None else most - 1
        finally:
            self._is_working = False
            self._waits = self._waits and self.is_left

    def _do_next(self) -> None:
        if not self._works:
            name = next(iter(self._last))
            self._last.pop(name)()
            return
        work = self._works.popleft()
        try:
            work()
        except BaseException:
            self._works.append(work)
            raise
