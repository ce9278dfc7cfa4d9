"""The group of commands. Each command is a file of its own, imported when it is called."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, FishComplete, add_completion_class

import kdns
from kdns import logs
from kdns.cli.command import CONTEXT, owners
from kdns.cli.console import end_without_output, fail
from kdns.spelling import closest

log = logs.get(__name__)

HELP = """Cluster DNS, virtual IPs and service variables for Kubernetes Services, and a control plane to try them on.

`kdns COMMAND --help` has the options and examples of a command; start with `kdns up`.
"""
EPILOG = """
\b
Examples:
  kdns up examples/                  a small cluster; prints commands to try
  kdns serve --conf Corefile         cluster DNS, on any Kubernetes API
  kdns check Corefile manifests/     every mistake, without a cluster
  kdns env --namespace shop          the variables a container would get
  kdns explain cart.shop             why a name has the answer that it has
  kdns trace --from IP --to web:80   a packet's path to a Service, and why

Exit codes: 0 for success, 1 for a failure at run time, 2 for wrong usage or input.

\b
Completion of commands and options, here for bash:
  eval "$(kdns completion bash)"
"""

COMMANDS: Final = {
    "check": "Report every mistake in files, or what is wrong with the Services and names of a cluster.",
    "completion": "Print a script that completes commands, options, modes and files in a shell.",
    "docs": "List the pages of the documentation, or show one.",
    "env": "Print the service variables a container would get, as a kubelet sets them.",
    "explain": "Explain which objects give a DNS name its answer, or why it has none.",
    "laptop": "Point this machine's resolver at kdns (on), undo it (off), or show its state (status).",
    "proxy": "Give Services their virtual IPs on this node, in kube-proxy's place.",
    "render": "Print what would be applied to a node, and apply nothing.",
    "serve": "Answer DNS queries from a Kubernetes API, as the Corefile says.",
    "trace": "Explain what happens to a packet on a node, and why.",
    "up": "Run a control plane, its controllers and DNS on this machine.",
    "version": "Print the versions of kdns, of Python and of the Kubernetes API that kdns serves.",
}
"""The first sentence of each command's help text. A command is the object of its name in its module."""


@add_completion_class
class Fish(FishComplete):
    """Completion in fish with whole descriptions: click's function cuts them at their first comma."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


class Commands(click.Group):
    """A group whose help imports no command, since all of them together take a second."""

    def main(self, *arguments: Any, **settings: Any) -> Any:
        """A standard stream that cannot be written ends the command with one line and exit code 1."""
        try:
            return super().main(*arguments, **settings)
        except OSError as error:
            end_without_output(error)

    def invoke(self, ctx: click.Context) -> Any:
        """With --log-format json, wrong usage is an object too."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            if ctx.params.get("log_format") != "json":
                raise
            logs.configure(format="json")  # `main` may not have been called yet
            fail(error.format_message())
            raise click.exceptions.Exit(error.exit_code) from error

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if words := owners(ctx, error.option_name):
                where = f"write it after the command, as in `kdns COMMAND {error.option_name} …`"
                raise click.UsageError(f"No such option {error.option_name!r}: {where}; {words}.", ctx) from error
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not ctx.resilient_parsing:
            if name == "help":
                meant = f"expected `kdns {args[1] if args[1:] else 'COMMAND'} --help`"
            else:
                close = closest(name, COMMANDS)
                meant = f"did you mean `kdns {close}`?" if close else f"expected {', '.join(sorted(COMMANDS))}"
            raise click.UsageError(f"No such command {name!r}: {meant}", ctx)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        from kdns.runtime.tls import without_system_authorities  # noqa: PLC0415 - the help of all needs no TLS

        with without_system_authorities():
            command: click.Command = getattr(import_module(f"kdns.cli.commands.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [
            CompletionItem(row[0], help=row[1]) for row in sorted(COMMANDS.items()) if row[0].startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)


@click.group(cls=Commands, context_settings=CONTEXT, help=HELP, epilog=EPILOG)
@click.version_option(kdns.__version__, prog_name="kdns")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="The lowest level that is logged.  [default: info for serve and proxy, else warning]",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="How logs are written to standard error; with json every line of a command that runs on is an object, also "
    "on standard output.  [default: text on a terminal, else json for the log]",
)
@click.pass_context
def main(context: click.Context, log_level: str | None, log_format: str | None) -> None:
    level = log_level or ("info" if context.invoked_subcommand in {"proxy", "serve"} else "warning")
    logs.configure(level, format=log_format or "")
    if log_format == "json":
        sys.excepthook = lambda _type, error, _trace: log.critical("command failed", exc_info=error)
