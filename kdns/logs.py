"""Logs: a short fixed event and facts as keys; a console on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog


def configure(level: str = "info", stream: TextIO | None = None) -> None:
    """Write kdns's logs of `level` and above to `stream` (default: stderr).

    Stack traces have no local variables: a token could be among them.
    """
    out = stream or sys.stderr
    is_terminal = out.isatty()
    renderer: structlog.typing.Processor
    stacks = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))
    if is_terminal:
        renderer = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    else:
        renderer = structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso" if not is_terminal else "%H:%M:%S"),
            *([] if is_terminal else [stacks]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=False,
    )


def get(name: str) -> structlog.typing.FilteringBoundLogger:
    """The logger of a module."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(source=name)
    return logger
