"""Output and exit codes of commands: warnings and errors go to standard error."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar

import click

from kdns import logs
from kdns.errors import KdnsError
from kdns.logs import one_line

T = TypeVar("T")

UNWRITABLE: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))
"""Errors of writing to a full disk and to a closed terminal; click handles EPIPE of a closed pipe."""
LOOP_FACTORY: Final = asyncio.SelectorEventLoop if sys.platform == "win32" else None
"""Listeners add readers, which asyncio's default loop on Windows does not support."""


def say(text: str, *, is_error: bool = False) -> None:
    """Flushed at once, even into a pipe. Control characters in the lines are escaped, so they cannot control the
    terminal.
    """
    click.echo("\n".join(map(one_line, text.split("\n"))), err=is_error)


def announce(text: str) -> None:
    """A line of a long-running command; with --log-format json an object."""
    _print("info", text)


def report_mistakes(mistakes: Sequence[KdnsError]) -> None:
    """Exits with 2 if there are any."""
    for mistake in mistakes:
        say(" ".join(str(mistake).split("\n")))
    if mistakes:
        raise click.exceptions.Exit(2)


def warn_of(mistakes: Iterable[KdnsError]) -> None:
    for mistake in mistakes:
        warn(" ".join(str(mistake).split("\n")))


def warn(text: str) -> None:
    """Goes to standard error; standard output is for the result."""
    _print("warning", text, "Warning: ", is_error=True)


def fail(text: str) -> None:
    _print("error", text, "Error: ", is_error=True)


def _print(level: str, text: str, prefix: str = "", *, is_error: bool = False) -> None:
    if logs.form().format == "json":
        click.echo(logs.line_of(level, text), err=is_error)
    else:
        say(prefix + text, is_error=is_error)


@contextmanager
def reported_errors() -> Iterator[None]:
    try:
        yield
    except KdnsError as error:
        fail(str(error))
        raise click.exceptions.Exit(error.exit_code) from error


def end_without_output(error: OSError) -> NoReturn:
    """Exits with code 1 if standard output or error cannot be written; raises any other error again."""
    if error.errno not in UNWRITABLE or error.filename is not None:
        raise error
    try:
        fail(f"standard output: cannot be written: {error.strerror}")
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the exit would write the buffered text again
    sys.exit(1)


def run(task: Coroutine[Any, Any, T], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """An interrupt exits with 130; errors are reported."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # that of __main__ was for the imports
    with reported_errors():
        try:
            with asyncio.Runner(loop_factory=loop_factory or LOOP_FACTORY) as runner:
                return runner.run(task)
        except KeyboardInterrupt:
            sys.exit(130)
