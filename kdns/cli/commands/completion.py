"""The command `kdns completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from kdns.cli.command import command
from kdns.cli.console import say

VARIABLE = "_KDNS_COMPLETE"
"""The variable by which a shell requests completions; the name is click's."""


@command(
    "completion",
    'eval "$(kdns completion bash)"',
    "kdns completion fish > ~/.config/fish/completions/kdns.fish",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands, options, modes and files in a shell."""
    script = get_completion_class(shell)
    assert script  # noqa: S101 - click has one for each shell
    say(script(ctx.find_root().command, {}, "kdns", VARIABLE).source())
