"""Output and exit codes of commands: warnings and errors go to standard error."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click

from kdns.errors import KdnsError
from kdns.logs import one_line

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Settings of every command."""

FORMER: Final = {"--format": "--output", "--mode": "--proxy-mode", "--proxy": "--proxy-mode", "-n": "--node"}
"""Options that had another name in earlier versions."""


class Command(click.Command):
    """A command that says where an option went: to another name, or before the command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments that are left; UsageError for options that do not exist."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            group = ctx.find_root().command.params
            if ctx.parent and any(error.option_name in parameter.opts for parameter in group):
                where = f"it stands before the command, as in `kdns {error.option_name} … {self.name}`"
                raise click.UsageError(f"No such option {error.option_name!r}: {where}.", ctx) from error
            name = FORMER.get(error.option_name, "")
            if not any(name in parameter.opts for parameter in self.params):
                raise
            raise click.UsageError(f"No such option {error.option_name!r}: it is {name} now.", ctx) from error


def command(name: str, *examples: str, **settings: Any) -> Callable[[Callable[..., Any]], Command]:
    """A decorator that makes a command with examples at the end of its help."""
    epilog = "\b\n" + "\n".join(("Examples:", *(f"  {example}" for example in examples)))
    return click.command(name, cls=Command, epilog=epilog, **{"context_settings": CONTEXT, **settings})


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
