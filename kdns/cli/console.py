"""Output and exit codes of commands: warnings and errors go to standard error."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from kdns.errors import KdnsError
from kdns.logs import one_line


def say(text: str, *, is_error: bool = False) -> None:
    """Print lines, at once also into a pipe; what others wrote in them controls no terminal."""
    click.echo("\n".join(map(one_line, text.split("\n"))), err=is_error)


def tell(mistakes: Sequence[KdnsError]) -> None:
    """Print mistakes, each in one line; exit with 2 where there is any."""
    for mistake in mistakes:
        say(" ".join(str(mistake).split("\n")))
    if mistakes:
        raise click.exceptions.Exit(2)


def warn(text: str) -> None:
    """Print a warning to standard error; standard output is for the result."""
    say(f"Warning: {text}", is_error=True)


@contextmanager
def reported_errors() -> Iterator[None]:
    """Inside, a KdnsError ends the command with its message and its exit code."""
    try:
        yield
    except KdnsError as error:
        say(f"Error: {error}", is_error=True)
        raise click.exceptions.Exit(error.exit_code) from error


def run(task: Coroutine[Any, Any, None]) -> None:
    """Run a command until it ends; an interrupt exits with 130, errors are reported."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # that of __main__ was for the imports
    with reported_errors():
        try:
            asyncio.run(task)
        except KeyboardInterrupt:
            sys.exit(130)
