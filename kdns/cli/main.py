"""The group of commands. Each command is a file of its own, imported when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

import kdns
from kdns import logs
from kdns.cli.console import CONTEXT

HELP = """Cluster DNS, virtual IPs and service variables for Kubernetes Services, and a control plane to try them on.

\b
kdns up examples/          a small cluster on this machine; prints commands to try
kdns serve --conf FILE     the cluster DNS server, on any Kubernetes API
kdns proxy                 the dataplane of a node, in kube-proxy's place
kdns env --namespace NS    the service variables a container would get
kdns trace --from --to     the path of a packet to a Service, and the reasons
kdns render                the packet rules of a node, printed
kdns check FILE            the mistakes in a Corefile
"""

COMMANDS: Final = {
    "check": "Tell every mistake in Corefiles.",
    "env": "Print the service variables a container would get, as a kubelet sets them.",
    "proxy": "Give Services their virtual IPs on this node, in kube-proxy's place.",
    "render": "Print what would be applied to a node, and apply nothing.",
    "serve": "Answer DNS queries from a Kubernetes API, as the Corefile says.",
    "trace": "Tell what happens to a packet on a node, and why.",
    "up": "Run a control plane, its controllers and DNS on this machine.",
}
"""The commands, and the first sentence of each help text. A command is the object of its name in kdns.cli.NAME."""


class Commands(click.Group):
    """A group whose help imports no command: all of them together take a second."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, from its module; None for a name that is no command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"kdns.cli.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The names with their sentences."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=Commands, context_settings=CONTEXT, help=HELP)
@click.version_option(kdns.__version__, prog_name="kdns")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="The lowest level that is logged.  [default: info for serve and proxy, else warning]",
)
@click.pass_context
def main(context: click.Context, log_level: str | None) -> None:
    """The options of all commands."""
    logs.configure(log_level or ("info" if context.invoked_subcommand in {"proxy", "serve"} else "warning"))
