"""The command `kdns serve`: the cluster DNS server."""

from __future__ import annotations

import click

from kdns.apps import serve as app
from kdns.cli.console import CONTEXT, run, say


@click.command("serve", context_settings=CONTEXT)
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
