"""The commands."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

import click

import kdns
from kdns import app, logs
from kdns.cli_env import env
from kdns.errors import KdnsError

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


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


@click.group(context_settings=CONTEXT)
@click.version_option(kdns.__version__, prog_name="kdns")
@click.option(
    "--log-level", default="info", type=click.Choice(["debug", "info", "warning", "error"]), show_default=True
)
def main(log_level: str) -> None:
    r"""Kubernetes Services, found and reached: cluster DNS, service variables and a control plane to try them on.

    \b
    kdns up examples/          a small cluster on this machine; prints what to dig and how to use kubectl
    kdns serve --conf FILE     the cluster DNS server, on any Kubernetes API
    kdns env --namespace NS    the service variables a container would get
    """
    logs.configure(log_level)


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
    run(app.serve(conf, dns_port=dns_port, say=say))


main.add_command(env)
