"""The command `kdns check`: every mistake in files for kdns."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from kdns.apps.check import Findings, Mistake, mistakes
from kdns.cli import flags
from kdns.cli.command import command
from kdns.cli.console import reported_errors, say, tell, warn_of
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.manifests.io.files import texts_read_once


@command(
    "check",
    "kdns check Corefile kube-proxy.conf manifests/",
    "kubectl -n kube-system get cm coredns kube-proxy -o yaml | kdns check -",
)
@click.argument("paths", nargs=-1, required=True, metavar="FILE...", type=flags.PATH)
@flags.dns_port_option("The port, if a Corefile has none.")
@flags.cluster_option("--service-cidr", "The ranges of cluster IPs that manifests are checked against.")
@flags.cluster_option("--node-port-range", "The range of node ports that manifests are checked against.")
@click.option("--strict", is_flag=True, help="Warnings end with exit code 2 too.")
@flags.output_option("Lines, or one JSON object with what was read, the mistakes and the warnings.")
def check(
    paths: tuple[Path, ...], dns_port: int, service_cidr: str, node_port_range: str, strict: bool, output: str
) -> None:
    """Report every mistake in Corefiles, KubeProxyConfigurations and manifests.

    A folder means the manifests in it, `-` standard input. Each mistake is a line FILE:LINE: REASON; warnings
    go to standard error. The exit code is 0 without mistakes, else 2. No cluster is needed.
    """
    with reported_errors():
        cluster = ClusterConfig(
            flags.service_networks(service_cidr),
            flags.node_port_range(node_port_range),
        )
        texts = texts_read_once(paths)
        found = asyncio.run(mistakes(paths, texts, dns_port=dns_port, cluster=cluster))
    if output == "json":
        say(_as_json(found))
    else:
        warn_of(found.warnings)
        tell(found.mistakes)
        warned = f"{len(found.warnings)} warning{'s' * (len(found.warnings) > 1)}" if found.warnings else ""
        say(f"no mistakes in {found.summary}" + (f"; {warned}" if warned else ""))
    if found.mistakes or (strict and found.warnings):
        raise click.exceptions.Exit(2)


def _as_json(found: Findings) -> str:
    kinds = {"mistakes": found.mistakes, "warnings": found.warnings}
    return json.dumps({"read": found.read, **{kind: [_row(each) for each in rows] for kind, rows in kinds.items()}})


def _row(mistake: Mistake) -> dict[str, object]:
    """`field` of a manifest or word of a Corefile; line 0 is the whole file."""
    field = getattr(mistake, "field", "") or getattr(mistake, "token", "")
    return {"path": mistake.path, "line": mistake.line, "field": field, "reason": mistake.reason}
