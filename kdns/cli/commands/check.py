"""The command `kdns check`: every mistake in files for kdns, or in a running cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from kdns.apps.check import Findings, Mistake, mistakes
from kdns.apps.sources.source import ObjectSource, has_default_kubeconfig
from kdns.cli import flags
from kdns.cli.command import command
from kdns.cli.console import report_mistakes, reported_errors, say, warn, warn_of
from kdns.cli.running import answer
from kdns.cluster.io.kubeconfig import server_url
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.manifests.io.files import texts_read_once
from kdns.diagnosis.problem import ERROR, WARNING, Problem
from kdns.errors import InputError
from kdns.status.paths import RUNNING

OK: Final = 200
SHOWN: Final = 5
"""Objects of a cause that the text lists."""


@command(
    "check",
    "kdns check Corefile kube-proxy.conf manifests/",
    "kubectl -n kube-system get cm coredns kube-proxy -o yaml | kdns check -",
    "kdns check",
    "kdns check --server http://127.0.0.1:8001 -o json",
)
@click.argument("paths", nargs=-1, metavar="[FILE]...", type=flags.PATH)
@click.option("--server", metavar="URL", default="", help="Check the cluster of this API server, without credentials.")
@flags.file_option("--kubeconfig", "Check the cluster of this kubeconfig.")
@click.option("--admin", default="", metavar="HOST:PORT", help="Add what the kdns with `status` at this address knows.")
@click.option(
    "--proxy-status",
    default="",
    metavar="HOST:PORT",
    help="Add what the `kdns proxy` with metrics at this address knows.",
)
@flags.dns_port_option("The port, if a Corefile has none.")
@flags.cluster_option("--service-cidr", "The ranges of cluster IPs that manifests are checked against.")
@flags.cluster_option("--node-port-range", "The range of node ports that manifests are checked against.")
@click.option("--strict", is_flag=True, help="Warnings end with exit code 2 too.")
@flags.output_option("Lines, or one JSON object with what was read, the mistakes and the warnings.")
def check(  # noqa: PLR0913 - one for each option
    paths: tuple[Path, ...],
    *,
    server: str,
    kubeconfig: str,
    admin: str,
    proxy_status: str,
    dns_port: int,
    service_cidr: str,
    node_port_range: str,
    strict: bool,
    output: str,
) -> None:
    """Report every mistake in files, or what is wrong with the Services and names of a cluster.

    FILE is a Corefile, a KubeProxyConfiguration or manifests; a folder means the manifests in it, `-` standard input.
    Each mistake is a line FILE:LINE: REASON; warnings go to standard error. Without FILE, the cluster of --server,
    --kubeconfig, or the kubeconfig that kubectl uses is checked: its Services, endpoints, names and addresses, Pods'
    resolvers, the DNS Service, and the Corefile and KubeProxyConfiguration in its ConfigMaps. The exit code is 0 if
    nothing is wrong, else 2.
    """
    with reported_errors():
        if paths and (server or kubeconfig or admin or proxy_status):
            raise click.UsageError("give files, or what runs: --server, --kubeconfig, --admin, --proxy-status")
        if server and kubeconfig:
            raise click.UsageError("give only one of --kubeconfig and --server")
        if paths:
            cluster = ClusterConfig(flags.service_networks(service_cidr), flags.node_port_range(node_port_range))
            texts = texts_read_once(paths)
            findings = asyncio.run(mistakes(paths, texts, dns_port=dns_port, cluster=cluster))
            _say_findings(findings, output)
            is_good = not (findings.mistakes or (strict and findings.warnings))
        else:
            running = {flag: at for flag, at in {"--admin": admin, "--proxy-status": proxy_status}.items() if at}
            source = _source(server, kubeconfig, has_other=bool(running))
            known = [problem for flag, at in running.items() for problem in _running(flag, at)]
            is_good = _of_cluster(source, known, dns_port=dns_port, strict=strict, output=output)
    if not is_good:
        raise click.exceptions.Exit(2)


def _source(server: str, kubeconfig: str, *, has_other: bool) -> ObjectSource | None:
    """None if only running programs are checked."""
    if server:
        server_url("--server", server)
    source = ObjectSource(server=server, kubeconfig=kubeconfig)
    if not source.is_default or has_default_kubeconfig():
        return source
    if not has_other:
        raise click.UsageError("give files, or a cluster by --server URL, --kubeconfig FILE or $KUBECONFIG")
    return None


def _of_cluster(
    source: ObjectSource | None, known: Sequence[Problem], *, dns_port: int, strict: bool, output: str
) -> bool:
    from kdns.apps.check_cluster import NOTHING, cluster_report  # noqa: PLC0415 - an HTTP client, which files do not need
    from kdns.diagnosis import text  # noqa: PLC0415 - the same

    report = asyncio.run(cluster_report(source, dns_port=dns_port)) if source else NOTHING
    report = replace(report, problems=sorted([*report.problems, *known], key=lambda problem: problem.rank))
    if output == "json":
        say(text.as_json(report.problems, report.looked_at, report.not_looked_at))
    else:
        if report.problems:
            say(text.as_text(report.problems, SHOWN))
        for remark in report.not_looked_at:
            warn(f"not looked at: {remark}")
        looked_at = ", ".join(f"{number:,} {plural}" for plural, number in report.looked_at.items() if number)
        say(f"{text.counted(report.problems) or 'no problems'}{looked_at and f' in {looked_at}'}")
    worst = min((problem.severity for problem in report.problems), default=None)
    return worst is None or worst > (WARNING if strict else ERROR)


def _running(flag: str, at: str) -> list[Problem]:
    """What a running kdns reports about itself. Raises InputError."""
    address = flags.host_port(flag, at)
    status, text, _ = answer(flag, address, RUNNING, "a status page of kdns")
    try:
        rows = json.loads(text if status == OK else "")
        return [Problem("running", WARNING, "kdns", ("", at), "", row["text"], row["cure"]) for row in rows]
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{flag} {address}: no status page of kdns answers there (HTTP status {status})") from error


def _say_findings(findings: Findings, output: str) -> None:
    if output == "json":
        say(_as_json(findings))
        return
    warn_of(findings.warnings)
    report_mistakes(findings.mistakes)
    warned = f"{len(findings.warnings)} warning{'s' * (len(findings.warnings) > 1)}" if findings.warnings else ""
    say(f"no mistakes in {findings.summary}" + (f"; {warned}" if warned else ""))


def _as_json(findings: Findings) -> str:
    kinds = {"mistakes": findings.mistakes, "warnings": findings.warnings}
    return json.dumps({"read": findings.read, **{kind: [_row(row) for row in rows] for kind, rows in kinds.items()}})


def _row(mistake: Mistake) -> dict[str, object]:
    """`field` of a manifest or word of a Corefile; line 0 is the whole file."""
    field = getattr(mistake, "field", "") or getattr(mistake, "token", "")
    return {"path": mistake.path, "line": mistake.line, "field": field, "reason": mistake.reason}
