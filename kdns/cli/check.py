"""The command `kdns check`: every mistake in Corefiles."""

from __future__ import annotations

import click

from kdns.aio.files.corefile import mistakes_of
from kdns.cli.console import CONTEXT, say


@click.command("check", context_settings=CONTEXT)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--dns.port", "-dns.port", "-p", "dns_port", default=53, show_default=True, type=click.IntRange(0, 65535),
    help="The port where a Corefile names none.",
)  # fmt: skip
def check(files: tuple[str, ...], dns_port: int) -> None:
    """Tell every mistake in Corefiles.

    Each mistake is a line FILE:LINE: REASON. The exit code is 0 where there is none, else 2. Nothing is started, and
    files that directives name are not looked at.
    """
    found = [mistake for path in files for mistake in mistakes_of(path, dns_port=dns_port)]
    for mistake in found:
        say(str(mistake))
    if found:
        raise click.exceptions.Exit(2)
