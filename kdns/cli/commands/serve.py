"""The command `kdns serve`: the cluster DNS server."""

from __future__ import annotations

import asyncio
import os
import platform
from pathlib import Path
from typing import Any

import click

import kdns
from kdns.apps import serve as app
from kdns.cli import flags
from kdns.cli.command import command
from kdns.cli.console import announce, report_mistakes, reported_errors, run, say, warn_of
from kdns.dnsserver.io.burst.event_loop import new_event_loop
from kdns.dnsserver.io.interfaces import Sharing
from kdns.node_local.settings import NodeLocal, service_host
from kdns.plugins.directives import FOLDERS
from kdns.plugins.settings import MOST_PROCESSES


@command(
    "serve",
    "kdns serve --conf /etc/coredns/Corefile",
    "kdns serve --conf Corefile --dns.port 1053",
    "kdns serve --conf Corefile.node-local --local-ip 169.254.20.10,10.96.0.10",
)
@click.option(
    "--conf", "-conf", default="Corefile", show_default=True, metavar="FILE", type=click.Path(), help="The Corefile."
)
@flags.dns_port_option("The port, if the Corefile has none.")
@click.option(
    "--local-ip",
    "-localip",
    metavar="IP[,IP...]",
    default="",
    help="Be a node-local DNS cache: addresses that the node gets on an interface of its own.",
)
@click.option(
    "--interface-name",
    "-interfacename",
    default="nodelocaldns",
    show_default=True,
    metavar="NAME",
    help="The interface for --local-ip.",
)
@click.option(
    "--setup-interface/--no-setup-interface",
    default=True,
    show_default=True,
    help="Create the interface for --local-ip; otherwise the addresses must exist.",
)
@click.option(
    "--setup-rules/--no-setup-rules",
    default=True,
    show_default=True,
    help="With --local-ip, exempt its packets from connection tracking.",
)
@click.option(
    "--skip-teardown",
    "-skipteardown",
    is_flag=True,
    help="Keep interface and rules of --local-ip at the end.",
)
@click.option(
    "--upstream-service", "-upstreamsvc", default="kube-dns", show_default=True, metavar="SERVICE",
    help="With --local-ip, the Service whose cluster IP is __PILLAR__CLUSTER__DNS__ in the Corefile.",
)  # fmt: skip
@click.option(
    "--workers", default=1, show_default=True, metavar="N", type=click.IntRange(1, MOST_PROCESSES),
    help="Processes, each a whole server; at most one for each processor.",
)  # fmt: skip
@click.option("--worker", nargs=3, type=(int, int, str), hidden=True)  # pid and descriptor of a supervisor, sharing
@click.option("--pidfile", "-pidfile", default="", metavar="FILE", help="Write the process's id to this file.")
@click.option("--quiet", "-quiet", is_flag=True, help="Do not print the listening addresses.")
@click.option("--validate", is_flag=True, help="Report every mistake in the Corefile, like kdns check, and exit.")
@click.option("--plugins", "-plugins", is_flag=True, help="List the directives, and exit.")
@click.option("--version", "-version", is_flag=True, help="Print the version, and exit.")
def serve(conf: str, dns_port: int, **options: Any) -> None:
    """Answer DNS queries from a Kubernetes API, as the Corefile says.

    CoreDNS's own arguments work, with --local-ip those of NodeLocal DNSCache too. Prints `ready` when it knows all of
    the cluster. SIGUSR1 or SIGHUP reads the Corefile again; Ctrl-C or SIGTERM ends it.
    """
    if options["version"] or options["plugins"]:
        for line in _version() if options["version"] else sorted(f"dns.{name}" for name in FOLDERS):
            say(line)
        return
    if options["validate"]:
        from kdns.apps.check import corefile_mistakes  # noqa: PLC0415 - a server needs none of it

        findings = asyncio.run(corefile_mistakes(Path(conf), dns_port=dns_port))
        warn_of(findings.warnings)
        report_mistakes(findings.mistakes)
        return
    with reported_errors():
        local = NodeLocal(
            flags.addresses("--local-ip", options["local_ip"]),
            options["interface_name"] if options["setup_interface"] else "",
            (dns_port,),
            has_rules=options["setup_rules"],
            is_kept=options["skip_teardown"],
            cluster_dns=service_host(options["upstream_service"], os.environ),
            upstream_service=options["upstream_service"],
        )
    worker: tuple[int, int, str] | None = options["worker"]
    run(
        app.serve(
            conf,
            dns_port=dns_port,
            say=_silent if options["quiet"] or worker else announce,  # the supervisor prints for its workers
            pidfile="" if worker else options["pidfile"],
            workers=options["workers"],
            worker_of=app.WorkerOf(worker[0], worker[1], Sharing[worker[2].upper()]) if worker else None,
            node_local=local if local.addresses else None,
        ),
        new_event_loop,
    )


def _version() -> tuple[str, str]:
    machine = f"{platform.system().lower()}/{platform.machine()}"
    return f"kdns-{kdns.__version__}", f"{machine}, python{platform.python_version()}"


def _silent(_text: str) -> None: ...
