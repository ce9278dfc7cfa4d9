"""Output and exit codes of commands: warnings and errors go to standard error."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from kdns import logs
from kdns.errors import KdnsError

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Settings of every command."""


def say(text: str) -> None:
    """Print a line and flush it, also into a pipe."""
    click.echo(text)
    sys.stdout.flush()


def warn(text: str) -> None:
    """Print a warning to standard error; standard output is for the result."""
    click.echo(f"Warning: {text}", err=True)


def warn_at_once(text: str) -> None:
    """The same without waiting for who reads there, for commands that answer somebody meanwhile."""
    logs.print_line(f"Warning: {text}")


@contextmanager
def reported_errors() -> Iterator[None]:
    """Inside, a KdnsError ends the command with its message and its exit code."""
    try:
        yield
    except KdnsError as error:
        click.echo(f"Error: {error}", err=True)
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
