"""The commands."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from importlib import import_module
from pathlib import Path
from typing import Any

import click

import kdns
from kdns import logs
from kdns.errors import KdnsError

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
HELP = """Kubernetes Services, found and reached: cluster DNS, service variables and a control plane to try them on.

\b
kdns up examples/          a small cluster on this machine; prints what to dig and how to use kubectl
kdns serve --conf FILE     the cluster DNS server, on any Kubernetes API
kdns proxy                 the dataplane of a node, in kube-proxy's place
kdns env --namespace NS    the service variables a container would get
kdns trace --from --to     what happens to a packet to a Service, and why
kdns render                the packet rules of a node, printed
"""

ELSEWHERE = {
    "env": "kdns.cli_env",
    "proxy": "kdns.cli_node",
    "render": "kdns.cli_proxy",
    "trace": "kdns.cli_proxy",
}
"""Commands of other modules. Each imports what it needs when it is called, as all of that takes a second together."""


class Commands(click.Group):
    """The commands here and elsewhere."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        return sorted([*super().list_commands(ctx), *ELSEWHERE])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported where it is elsewhere."""
        if cmd_name not in ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(ELSEWHERE[cmd_name]), cmd_name)
        return command


def run(task: Coroutine[Any, Any, None]) -> None:
    """Run a command; an error a person caused or can mend ends it with one line and the error's exit code."""
    try:
        asyncio.run(task)
    except KdnsError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def say(text: str) -> None:
    """Print a line at once, also into a pipe."""
    click.echo(text)
    sys.stdout.flush()


def warn(text: str) -> None:
    """Print a problem that does not stop the command."""
    click.echo(f"Warning: {text}", err=True)


@click.group(cls=Commands, context_settings=CONTEXT, help=HELP)
@click.version_option(kdns.__version__, prog_name="kdns")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="The least that is logged.  [default: info for serve and proxy, else warning]",
)
@click.pass_context
def main(context: click.Context, log_level: str | None) -> None:
    """What all commands share."""
    logs.configure(log_level or ("info" if context.invoked_subcommand in {"proxy", "serve"} else "warning"))


@main.command(context_settings=CONTEXT)
@click.option("--conf", "-conf", default="Corefile", show_default=True, metavar="FILE", help="The Corefile.")
@click.option(
    "--dns.port", "-dns.port", "dns_port", default=53, show_default=True, type=click.IntRange(0, 65535),
    help="The port where the Corefile names none.",
)  # fmt: skip
def serve(conf: str, dns_port: int) -> None:
    """Answer DNS queries from a Kubernetes API, as the Corefile says.

    CoreDNS's own arguments -conf and -dns.port work.
    """
    from kdns import app  # noqa: PLC0415 - see ELSEWHERE

    run(app.serve(conf, dns_port=dns_port, say=say))


@main.command(context_settings=CONTEXT)
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@click.option("--dns", default="127.0.0.1:1053", show_default=True, metavar="HOST:PORT", help="Where DNS is answered.")
@click.option(
    "--api", default="127.0.0.1:8001", show_default=True, metavar="HOST:PORT", help="Where the API is served."
)
@click.option("--data", type=click.Path(path_type=Path), metavar="DIR", help="Keep the objects here; else in memory.")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write it.  [default: kdns.kubeconfig, in DIR with --data]",
)
@click.option("--corefile", default="", metavar="FILE", help="The DNS configuration, instead of the built-in one.")
@click.option(
    "--cluster-domain", default="cluster.local", show_default=True, metavar="NAME", help="The cluster's zone."
)
@click.option(
    "--service-cidr",
    default="10.96.0.0/16,fd00:10:96::/112",
    show_default=True,
    metavar="CIDR[,CIDR]",
    help="Cluster IPs; the first range is the default family.",
)
@click.option(
    "--pod-cidr",
    default="10.244.0.0/16,fd00:10:244::/64",
    show_default=True,
    metavar="CIDR[,CIDR]",
    help="Addresses of simulated Pods.",
)
@click.option("--node-port-range", default="30000-32767", show_default=True, metavar="FROM-TO", help="Node ports.")
@click.option(
    "--lb-pool",
    default="",
    metavar="CIDR[,CIDR]",
    help="Addresses for Services of type LoadBalancer, also as FIRST-LAST; without, they stay pending.",
)
@click.option("--proxy", type=click.Choice(["nftables", "userspace"]), help="Give Services their virtual IPs here.")
@click.option("--no-simulated-pods", is_flag=True, help="Leave Pods Pending instead of running them in name only.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Bearer tokens for the API, one a line; needed, with TLS, for any address but loopback.",
)
@click.option("--tls-cert", default="", metavar="FILE", help="The API's certificate (PEM).")
@click.option("--tls-key", default="", metavar="FILE", help="Its key, where the certificate's file has none.")
def up(paths: tuple[Path, ...], **given: Any) -> None:
    """Run a control plane, its controllers and DNS on this machine.

    The manifests in each PATH (files and folders, YAML and JSON) are applied and followed: edit one, and the answers
    change. Prints `ready` when everything answers.
    """
    from kdns.aio.loading import loading  # noqa: PLC0415 - see ELSEWHERE

    with loading():
        from kdns import flags  # noqa: PLC0415
        from kdns import up as app_up  # noqa: PLC0415

    try:
        options = flags.up_options(paths, given)
    except KdnsError as error:
        raise click.UsageError(str(error)) from error
    run(app_up.up(options, say, warn))
