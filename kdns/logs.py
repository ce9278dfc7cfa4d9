"""Logs: a short fixed event and facts as keys; a console on a terminal, JSON lines elsewhere.

The directives `log` and `errors` write CoreDNS's lines to standard output, which other programs read.

A slow log reader never delays the server: a thread writes the lines, and lines beyond a full queue are lost.
"""

from __future__ import annotations

import atexit
import errno
import json
import logging
import os
import re
import select
import sys
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple, TextIO, cast

import structlog

MAX_WAITING_BYTES: Final = 1 << 20
GATHER_S: Final = 0.01
"""How long the thread lets lines gather: to wake it for each line would cost the caller more than the line itself."""
EXIT_S: Final = 2.0
RARELY_S: Final = 60.0
"""How long a RareWarning is not logged again."""


class LogWriter:
    """Writes lines in a thread that the first one starts; the number of `lost` ones is logged with the next."""

    def __init__(self, descriptor: int) -> None:
        self.lost = 0
        self.descriptor = descriptor
        self._lines: list[bytes] = []
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def write(self, text: str) -> None:
        """Queues a line, or drops it if too many wait. Never blocks."""
        line = text.encode(errors="backslashreplace")
        with self._changed:
            if self._is_closed or self._waiting_bytes + len(line) > MAX_WAITING_BYTES:
                self.lost += 1
                return
            self._lines.append(line)
            self._waiting_bytes += len(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="logs", daemon=True)
                self._thread.start()
            elif len(self._lines) == 1:
                self._changed.notify_all()

    def flush(self) -> None:
        """Returns at once: the thread writes the lines."""

    def close(self) -> None:
        """Waits until all lines are written, but not longer than EXIT_S, and takes no more."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting_bytes, EXIT_S)
            self._is_closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        logged = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._is_closed)
            time.sleep(GATHER_S)
            with self._changed:
                if not self._lines:
                    return
                lines, self._lines = self._lines, []
            size_bytes = sum(map(len, lines))
            is_written = self._write(b"".join(lines))
            with self._changed:
                self._waiting_bytes -= size_bytes
                if not is_written:
                    self.lost += len(lines)
                lost = self.lost - logged
                self._changed.notify_all()
            if lost and is_written:
                logged += lost
                get(__name__).warning("log lines lost", count=lost)

    def _write(self, data: bytes) -> bool:
        while data:
            try:
                data = data[os.write(self.descriptor, data) :]
            except OSError as error:
                if error.errno != errno.EAGAIN:  # the reader is gone, or the disk is full
                    return False
                waiting = select.poll()
                waiting.register(self.descriptor, select.POLLOUT)
                waiting.poll()
        return True


class _Forward(logging.Handler):
    """Writes the log messages of libraries, such as asyncio, in the same way."""

    def emit(self, record: logging.LogRecord) -> None:
        level = min(record.levelno // 10 * 10, logging.CRITICAL)
        get(record.name).log(level, record.getMessage(), exc_info=record.exc_info)


_forward = _Forward()
_writers: dict[str, LogWriter] = {}


def lost_lines() -> int:
    return sum(writer.lost for writer in _writers.values())


class Form(NamedTuple):
    """The lowest level that is logged, and the format: text, json, or "" for text on a terminal and JSON elsewhere."""

    level: str = "info"
    format: str = ""


_form = Form()
_FIRST: Final = ("timestamp", "level", "event")
_CONTROL: Final = re.compile(r"[\x00-\x08\n-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except the tab, line breaks, characters that reorder text, and bytes that are not UTF-8."""


def one_line(text: str) -> str:
    """Control characters as escapes: foreign text must not control a terminal."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def _printable(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """The console quotes only some texts; a processor."""
    return {name: one_line(value) if isinstance(value, str) else value for name, value in event.items()}


def _in_order(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Time, level and event come first in the line, as people read it; a processor."""
    return {**{name: event[name] for name in _FIRST if name in event}, **event}


def configure(level: str = "info", stream: TextIO | None = None, *, format: str = "") -> None:  # noqa: A002 - the option
    """`stream` defaults to stderr. Stack traces have no local variables: a token could be among them."""
    global _form  # noqa: PLW0603 - logs are configured once for a process
    _form = Form(level, format)
    out = stream or sys.stderr
    is_terminal = out.isatty()
    is_text = format == "text" or (is_terminal and not format)
    renderer: structlog.typing.Processor
    stacks = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))
    if is_text:
        plain = structlog.dev.plain_traceback
        renderer = structlog.dev.ConsoleRenderer(colors=is_terminal, exception_formatter=plain)
    else:
        renderer = structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S" if is_terminal and is_text else "iso"),
            *([_printable] if is_text else [stacks, _in_order]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=_unblocking("stderr", out)),
        cache_logger_on_first_use=False,
    )
    logging.getLogger().addHandler(_forward)


def warnings_only() -> None:
    """Logs warnings and errors only, unless this process has configured structlog: for kdns within other programs."""
    if not structlog.is_configured():
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))


def _unblocking(name: str, stream: TextIO) -> TextIO:
    """A stream that writes without waiting; the stream itself if it has no descriptor."""
    try:
        descriptor = stream.fileno()
    except OSError:
        descriptor = None
    writer = _writers.get(name)
    if writer and writer.descriptor != descriptor:
        atexit.unregister(writer.close)
        writer.close()
        writer = None
        del _writers[name]
    if descriptor is None:
        return stream
    if writer is None:
        writer = _writers[name] = LogWriter(descriptor)
        atexit.register(writer.close)
    return cast("TextIO", writer)


def line_of(level: str, text: str, prefix: str = "") -> str:
    """A command's own line: `prefix` and text, or with the format json an object."""
    if _form.format == "json":
        return json.dumps({"timestamp": _timestamp(), "level": level, "event": " ".join(text.split())})
    return one_line(prefix + text)


def print_line(text: str, before: str = "", *, level: str = "info", prefix: str = "") -> None:
    """To standard error without waiting for its reader; `before` may control a terminal."""
    _print("stderr", sys.stderr, before + line_of(level, text, prefix))


def print_directive_line(level: str, event: str, line: str, facts: Mapping[str, object]) -> None:
    """Prints a line of the directive `log` or `errors` to standard output, without waiting for its reader.

    It is CoreDNS's line, or with the format json an object that has the facts. The lowest level that is logged does
    not matter: the Corefile decides what is written.
    """
    if _form.format == "json":
        first = {"timestamp": _timestamp(), "level": level, "event": event, "line": line}
        text = json.dumps({**first, **facts, **first})
    else:
        text = f"[{level.upper()}] {one_line(line)}"
    _print("stdout", sys.stdout, text)


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _print(name: str, stream: TextIO, text: str) -> None:
    out = _unblocking(name, stream)
    out.write(text + "\n")
    out.flush()


def form() -> Form:
    return _form


def get(name: str) -> structlog.typing.FilteringBoundLogger:
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(source=name)
    return logger


class RareWarning:
    """A warning of the module `source` that is logged at most once in RARELY_S."""

    def __init__(self, source: str, event: str, **facts: object) -> None:
        self._log, self._event, self._facts = get(source), event, facts
        self._logged_s = -RARELY_S

    def log(self, **facts: object) -> None:
        now_s = time.monotonic()
        if now_s - self._logged_s >= RARELY_S:
            self._logged_s = now_s
            self._log.warning(self._event, **self._facts, **facts)
