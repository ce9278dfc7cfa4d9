"""Building blocks of commands: options, examples, and which command has an option."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import click

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

ARGUMENTS: Final = {
    "env": "expected --manifests PATH for files, --namespace NS for a namespace",
    "proxy": "expected --config FILE for the configuration",
    "render": "expected --manifests PATH for files",
    "serve": "expected --conf FILE for the Corefile",
    "trace": "expected --manifests PATH for files, --to IP:PORT or NAME:PORT for the destination",
}
"""What to use instead of an argument, by command without arguments."""


class Command(click.Command):
    """A command that suggests replacements for unknown options and arguments."""

    allow_extra_args = True  # they are refused here

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            extra = super().parse_args(ctx, list(args))
        except click.NoSuchOption as error:
            for option in (_as_written(error.option_name, args), error.option_name):
                if words := self._instead(ctx, option):
                    raise click.UsageError(f"No such option {option!r}: {words}.", ctx) from error
            raise
        if extra and not ctx.resilient_parsing:
            words = ARGUMENTS.get(self.name or "", "expected options only")
            raise click.UsageError(f"Got unexpected argument {extra[0]!r}: {words}.", ctx)
        return extra

    def _instead(self, ctx: click.Context, option: str) -> str:
        group = ctx.find_root().command
        if ctx.parent and _has(group, option):
            return f"write it before the command, as in `kdns {option} … {self.name}`"
        return owners(ctx, option)


def command(name: str, *examples: str, **settings: Any) -> Callable[[Callable[..., Any]], Command]:
    epilog = "\b\n" + "\n".join(("Examples:", *(f"  {example}" for example in examples)))
    return click.command(name, cls=Command, epilog=epilog, **{"context_settings": CONTEXT, **settings})


def owners(ctx: click.Context, option: str) -> str:
    *names, last = ["", *(f"`kdns {command.name}`" for command in _commands(ctx) if _has(command, option))]
    if not last:
        return ""
    return f"{', '.join(names[1:])} and {last} have it" if names[1:] else f"{last} has it"


def _commands(ctx: click.Context) -> Iterator[click.Command]:
    group = ctx.find_root().command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(ctx):
        if command := group.get_command(ctx, name):
            yield command


def _has(command: click.Command, option: str) -> bool:
    return any(option in (*parameter.opts, *parameter.secondary_opts) for parameter in command.params)


def _as_written(option: str, args: list[str]) -> str:
    """click reports `-c` for `-conf`."""
    return next((word for arg in args if (word := arg.partition("=")[0]).startswith(option)), option)
