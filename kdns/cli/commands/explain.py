"""The command `kdns explain`: why a name has the answer that it has."""

from __future__ import annotations

import asyncio
from urllib.parse import urlencode

import click

from kdns.apps.sources.source import ObjectSource
from kdns.cli import flags
from kdns.cli.command import command
from kdns.cli.console import reported_errors, say, warn
from kdns.cli.running import answer
from kdns.errors import InputError
from kdns.net import HostPort
from kdns.status.paths import ANSWERED, EXPLAIN


@command(
    "explain",
    "kdns explain cart.shop",
    "kdns explain _http._tcp.cart.shop SRV",
    "kdns explain --pod shop/web-0 cart",
    "kdns explain --admin 127.0.0.1:8053 cart.shop",
    "kdns explain --manifests examples/ redis-master.default.svc.cluster.local",
)
@click.argument("name")
@click.argument("qtype", default="A", metavar="[TYPE]")
@click.option(
    "--namespace", "-n", default="default", show_default=True, metavar="NS", help="The namespace of the client."
)
@click.option(
    "--pod", default="", metavar="NS/NAME", help="The client: its namespace, dnsPolicy and dnsConfig are used."
)
@flags.file_option("--corefile", "The Corefile.  [default: kubeadm's, with the resolvers of this machine]")
@flags.cluster_option("--cluster-domain", "The zone, without --corefile.")
@click.option(
    "--admin", default="", metavar="HOST:PORT", help="Ask the kdns whose Corefile has `status` at this address."
)
@flags.output_option("Text, or JSON for programs.")
@flags.source_options
def explain(  # noqa: PLR0913 - one for each option
    name: str,
    qtype: str,
    *,
    namespace: str,
    pod: str,
    corefile: str,
    cluster_domain: str,
    admin: str,
    output: str,
    source: ObjectSource,
) -> None:
    """Explain which objects give a DNS name its answer, or why it has none.

    NAME is a name as a client writes it, or an address for its PTR record; TYPE is A by default. Nothing is sent to a
    DNS server. Exit code 1: the name has no answer. Without --admin, --manifests, --server or --kubeconfig, the
    kubeconfig is the one kubectl uses.
    """
    with reported_errors():
        if admin:
            if pod or corefile or not source.is_default:
                raise click.UsageError(
                    "--admin has a Corefile and objects of its own; give it without theirs and without --pod"
                )
            text, is_answered = _of_running(flags.host_port("--admin", admin), name, qtype, namespace, output)
            say(text)
            raise click.exceptions.Exit(0 if is_answered else 1)
        from kdns.apps.explain import ExplainOptions  # noqa: PLC0415 - half a second that --admin does not need
        from kdns.apps.explain import explain as app  # noqa: PLC0415 - the same
        from kdns.explain.findings import Inquiry  # noqa: PLC0415 - the same
        from kdns.explain.text import as_json, as_text  # noqa: PLC0415 - the same

        domain = flags.cluster_domain(cluster_domain)
        options = ExplainOptions(Inquiry(name, qtype, namespace, pod), corefile, domain, source)
        findings = asyncio.run(app(options, warn))
        say(as_json(findings) if output == "json" else as_text(findings))
    if not findings.chosen.is_answered:
        raise click.exceptions.Exit(1)


def _of_running(admin: HostPort, name: str, qtype: str, namespace: str, output: str) -> tuple[str, bool]:
    """The explanation of a running kdns, and whether the name has an answer. Raises InputError."""
    parameters = {"name": name, "type": qtype, "namespace": namespace, "output": output}
    page = "the directive `status`"
    status, text, answered = answer("--admin", admin, f"{EXPLAIN}?{urlencode(parameters)}", page, ANSWERED)
    if answered is None:
        nobody = f"no kdns with the directive `status` answers there (HTTP status {status})"
        raise InputError(f"--admin {admin}: {text if status in {400, 403} else nobody}")
    return text, answered == "true"
