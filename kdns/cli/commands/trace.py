"""The command `kdns trace`: a packet's path on a node, with reasons, without a change."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import click

from kdns.apps.sources.snapshot import add_pods
from kdns.cli import flags
from kdns.cli.command import command
from kdns.cli.console import reported_errors, run, say, warn
from kdns.cli.node_plan import NodePlan, NodePlanOptions, node_plan, node_plan_options
from kdns.net import family_of
from kdns.proxy.takeover.io.modes import runtime
from kdns.proxy.trace.assumptions import Assumption, assumptions
from kdns.proxy.trace.destination import Search, packet
from kdns.proxy.trace.explain import Explanation, explained
from kdns.proxy.trace.io.follow import follow
from kdns.proxy.trace.text import as_json, as_text


@command(
    "trace",
    "kdns trace --from 10.244.3.7 --to web.shop:http",
    "kdns trace --from 10.244.3.7 --to dns.kube-system:53/udp --node worker-1",
    "sudo kdns trace --from 10.244.3.7 --to web.shop:http --live 10",
    "kdns trace --manifests examples/ --from 192.0.2.7 --to 10.96.0.11:6379",
)
@click.option(
    "--from", "client", required=True, metavar="IP", help="The packet's source: a Pod, a node, or a machine outside."
)
@click.option(
    "--to",
    required=True,
    metavar="IP:PORT[/PROTO]",
    help="The packet's destination; IP may be a DNS name of a Service or its Pod, PORT a port's name; PROTO is tcp "
    "by default.",
)
@click.option("--namespace", "-n", default="", metavar="NS", help="The namespace of names in --to.  [default: default]")
@flags.cluster_option("--cluster-domain", "The zone of names in --to.")
@click.option(
    "--interface",
    default="",
    metavar="NAME",
    help="The interface on which it arrives; needed if the settings recognize Pods by interfaces.",
)
@click.option(
    "--live",
    type=click.FloatRange(0, 3600),
    metavar="SECONDS",
    help="Then follow real connections of this kind on this machine for so long, 0 for a look; needs root.",
)
@flags.output_option("Text, or JSON for programs.")
@node_plan_options
def trace(
    client: str,
    to: str,
    namespace: str,
    cluster_domain: str,
    interface: str,
    live: float | None,
    output: str,
    options: NodePlanOptions,
) -> None:
    """Explain what happens to a packet on a node, and why.

    Without --manifests, --server or --kubeconfig, the kubeconfig is the one kubectl uses.
    """
    with reported_errors():
        if live is not None and output == "json":
            raise click.UsageError("--live is for people: give it without -o json")
        search = Search(namespace or "default", flags.cluster_domain(cluster_domain), is_given=bool(namespace))
        planned = node_plan(options)
        if not interface and planned.settings.detect_local_mode in {"BridgeInterface", "InterfaceNamePrefix"}:
            warn("Pods of this node are known by their interface: without --interface it is none of theirs")
        state = planned.snapshot.state
        if planned.snapshot.namespaces:
            planned.snapshot.check_namespace(search.namespace)
        traced = packet(state, client, to, search, interface)
        explanation = explained(state, planned.plan, traced)
        if explanation.unknown_pods:
            asyncio.run(add_pods(planned.snapshot, options.source, explanation.unknown_pods, warn))
            explanation = explained(state, planned.plan, traced)
        assumed = (
            ()
            if options.config
            else assumptions(state, planned.plan_of, planned.settings, traced, is_mode_given=options.mode is not None)
        )
        say(_formatted(explanation, assumed, planned, output))
        if live is not None:
            family_plan = planned.plan.of(family_of(traced.destination))
            read = runtime(planned.settings.mode).connections
            count = partial(read, family_plan) if read else None
            run(follow(traced, explanation.trace, live, say, count))


def _formatted(explanation: Explanation, assumed: tuple[Assumption, ...], planned: NodePlan, output: str) -> str:
    mode = planned.settings.mode
    if output == "json":
        return json.dumps(as_json(explanation, planned.node, mode, assumed), indent=2)
    return as_text(explanation, planned.node, mode, assumed).removesuffix("\n")
