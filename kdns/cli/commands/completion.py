"""The command `kdns completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from kdns.cli.command import command
from kdns.cli.console import say

VARIABLE = "_KDNS_COMPLETE"
"""The environment variable by which a shell asks for completions: click's own name for it."""


@command(
    "completion",
    'eval "$(kdns completion bash)"',
    "kdns completion fish > ~/.config/fish/completions/kdns.fish",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands, options, modes and files in a shell."""
    made = get_completion_class(shell)
    assert made  # noqa: S101 - click has one for each of them
    say(made(ctx.find_root().command, {}, "kdns", VARIABLE).source())
