"""The progress of a long start: a spinner on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import os
import sys
import threading
from itertools import cycle
from types import TracebackType
from typing import Final, Self

from kdns import logs
from kdns.cli.console import announce

FRAME_S: Final = 0.1
LINE_S: Final = 5.0
_ERASE: Final = "\r\x1b[K"


class Progress:
    """A thread shows the latest text of `show` on standard error; other lines replace the spinner."""

    def __init__(self) -> None:
        has_spinner = os.environ.get("TERM", "dumb") != "dumb" and logs.form().format != "json"
        self._is_terminal = sys.stderr.isatty() and has_spinner
        self._text = "starting" if self._is_terminal else ""
        self._is_drawn = False
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> Self:
        """A quick start shows nothing."""
        self._thread.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.show("")

    def show(self, text: str) -> None:
        """An empty text ends it."""
        self._text = text
        if not text and not self._over.is_set():
            self._over.set()
            with self._lock:
                self._erase()

    def say(self, text: str) -> None:
        with self._lock:
            self._erase()
            announce(text)

    def note(self, text: str, *, level: str = "info", prefix: str = "") -> None:
        """Writes to standard error without blocking on its reader."""
        with self._lock:
            is_drawn, self._is_drawn = self._is_drawn, False
        logs.print_line(text, _ERASE * is_drawn, level=level, prefix=prefix)

    def warn(self, text: str) -> None:
        self.note(text, level="warning", prefix="Warning: ")

    def _run(self) -> None:
        frames = cycle("|/-\\")
        while not self._over.wait(FRAME_S if self._is_terminal else LINE_S):
            text = self._text
            if text and not self._is_terminal:
                logs.print_line(text)
            elif text:
                with self._lock:
                    self._draw(f"{_ERASE}{next(frames)} {text}\r")  # a log line starts at the cursor

    def _erase(self) -> None:
        if self._is_drawn:
            self._draw(_ERASE)
            self._is_drawn = False

    def _draw(self, text: str) -> None:
        if not self._over.is_set() or text == _ERASE:
            sys.stderr.write(text)
            sys.stderr.flush()
            self._is_drawn = True
