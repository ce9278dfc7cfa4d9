"""The commands `kdns render` and `kdns trace`: what a node's dataplane would do, with nothing touched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from kdns import flags
from kdns.aio.proxyconfigs import load_settings
from kdns.aio.snapshots import Snapshot, chosen_node, snapshot_from_manifests, snapshot_from_server
from kdns.aio.sources import default_kubeconfig
from kdns.controlplane.clusterconfig import ClusterConfig
from kdns.errors import KdnsError
from kdns.proxy import settings as proxy_settings
from kdns.proxy.destination import packet
from kdns.proxy.explain import Explanation, explained
from kdns.proxy.node import node_view, proxy_config
from kdns.proxy.plan import Plan
from kdns.proxy.planner import plan
from kdns.proxy.rendering import rendered
from kdns.proxy.settings import Settings
from kdns.proxy.telling import as_json, as_text

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
POD_CIDR: Final = "10.244.0.0/16,fd00:10:244::/64"
"""Simulated Pods' addresses, as `kdns up` has them."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options that both commands have say."""

    manifests: tuple[Path, ...]
    server: str
    kubeconfig: str
    config: Path | None
    mode: str | None
    node: str
    service_cidr: str


@dataclass(frozen=True, slots=True)
class Planned:
    """A node's plan, and what it was made from."""

    snapshot: Snapshot
    settings: Settings
    plan: Plan
    node: str


def warn(text: str) -> None:
    """Say it on standard error: standard output is for the answer."""
    click.echo(f"Warning: {text}", err=True)


def sources(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say where the objects and the settings come from."""
    for option in reversed(_SOURCES):
        command = option(command)
    return command


_SOURCES: Final = (
    click.option("--node", "-n", default="", metavar="NAME", help="The node; without, the only one there is."),
    click.option("--mode", type=click.Choice(proxy_settings.MODES), help="The proxy mode.  [default: nftables]"),
    click.option(
        "--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings: a KubeProxyConfiguration."
    ),
    click.option(
        "--manifests",
        metavar="PATH",
        multiple=True,
        type=click.Path(path_type=Path),
        help="Read files and folders, as `kdns up` would; may be given several times.",
    ),
    click.option("--server", metavar="URL", default="", help="Ask this API server, without credentials."),
    click.option("--kubeconfig", metavar="FILE", default="", help="Ask the API server of this kubeconfig."),
    click.option(
        "--service-cidr",
        default="10.96.0.0/16,fd00:10:96::/112",
        show_default=True,
        metavar="CIDR[,CIDR]",
        help="With --manifests: the ranges of cluster IPs.",
    ),
)


@click.command("render", context_settings=CONTEXT)
@sources
def render(**given: Any) -> None:
    """Print what would be applied to a node, and apply nothing.

    Without --manifests, --server or --kubeconfig, the kubeconfig is the one kubectl uses.
    """
    with _told():
        planned = _planned(Asked(**given))
        click.echo(rendered(planned.plan, planned.settings), nl=False)


@click.command("trace", context_settings=CONTEXT)
@click.option("--from", "source", required=True, metavar="IP", help="Where the packet comes from.")
@click.option(
    "--to", required=True, metavar="IP:PORT[/PROTO]", help="Where it goes; also NAMESPACE/SERVICE:PORT, by name too."
)
@click.option("--interface", default="", metavar="NAME", help="The interface it arrives on.")
@click.option(
    "--output",
    "-o",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Words for a person, or JSON for programs.",
)
@sources
def trace(source: str, to: str, interface: str, output: str, **given: Any) -> None:
    """Tell what happens to a packet on a node, and why.

    Without --manifests, --server or --kubeconfig, the kubeconfig is the one kubectl uses.
    """
    with _told():
        planned = _planned(Asked(**given))
        if not interface and planned.settings.detect_local_mode in {"BridgeInterface", "InterfaceNamePrefix"}:
            warn("Pods of this node are known by their interface: without --interface it is none of theirs")
        state = planned.snapshot.state
        found = explained(state, planned.plan, packet(state, source, to, interface))
        click.echo(_shown(found, planned, output))


@contextmanager
def _told() -> Iterator[None]:
    """An error that a person caused or can mend ends the command with its text and exit code."""
    try:
        yield
    except KdnsError as error:
        click.echo(f"Error: {error}", err=True)
        raise click.exceptions.Exit(error.exit_code) from error


def _planned(asked: Asked) -> Planned:
    if sum(map(bool, (asked.kubeconfig, asked.server, asked.manifests))) > 1:
        raise click.UsageError("give only one of --kubeconfig, --server and --manifests")
    settings = load_settings(asked.config, warn) if asked.config else Settings()
    settings = replace(settings, mode=asked.mode) if asked.mode else settings
    snapshot = asyncio.run(_snapshot(asked))
    name = chosen_node(snapshot, asked.node or settings.node_name, warn)
    node = snapshot.state.nodes.get(("", name))
    config = proxy_config(settings, node, snapshot.service_cidrs)
    if settings.detect_local_mode == "NodeCIDR" and not config.local_pods:
        warn(f"detectLocalMode is NodeCIDR, but node {name} has no podCIDRs: its Pods cannot be told from others")
    view = node_view(node, name, bind_address=settings.bind_address)
    return Planned(snapshot, settings, plan(snapshot.state, view, config), name)


async def _snapshot(asked: Asked) -> Snapshot:
    if not asked.manifests:
        kubeconfig = asked.kubeconfig or ("" if asked.server else default_kubeconfig())
        return await snapshot_from_server(asked.server, kubeconfig, warn)
    service_cidrs = flags.networks("--service-cidr", asked.service_cidr)
    families = {network.version for network in service_cidrs}
    pod_cidrs = flags.networks("", POD_CIDR)
    own = tuple(network for network in pod_cidrs if network.version in families)
    return await snapshot_from_manifests(asked.manifests, ClusterConfig(service_cidrs, pod_cidrs=own), warn)


def _shown(found: Explanation, planned: Planned, output: str) -> str:
    mode = planned.settings.mode
    if output == "json":
        return json.dumps(as_json(found, planned.node, mode), indent=2)
    return as_text(found, planned.node, mode).removesuffix("\n")
