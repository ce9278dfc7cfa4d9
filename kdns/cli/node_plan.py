"""The plan of one node, from the options that `kdns render` and `kdns trace` share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from kdns.apps.sources.snapshot import Snapshot, chosen_node, snapshot_of
from kdns.apps.sources.source import ObjectSource
from kdns.cli import flags
from kdns.cli.console import warn
from kdns.cluster.state import State
from kdns.proxy.modes import NAMES
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import plan
from kdns.proxy.settings.io.files import load_settings
from kdns.proxy.settings.plan_config import node_view, proxy_config
from kdns.proxy.settings.settings import DEFAULT_MODE, Settings


@dataclass(frozen=True, slots=True)
class NodePlanOptions:
    """The values of the options."""

    source: ObjectSource
    config: Path | None
    mode: str | None
    enable_dsr: bool
    node: str


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A node's plan, with the snapshot and settings that it is made from. `node` is the node's name."""

    snapshot: Snapshot
    settings: Settings
    plan: Plan
    node: str

    def plan_of(self, state: State, settings: Settings) -> Plan:
        node = self.snapshot.state.nodes.get(("", self.node))
        config = proxy_config(settings, node, self.snapshot.service_cidrs, self.snapshot.api_servers)
        return plan(state, node_view(node, self.node, bind_address=settings.bind_address), config)


def node_plan_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options' names are the fields of NodePlanOptions."""
    command = flags.source_options(command)
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS: Final = (
    click.option("--node", default="", metavar="NAME", help="The node.  [default: the only node, or this machine]"),
    click.option(
        "--proxy-mode",
        "mode",
        type=click.Choice(NAMES),
        metavar=f"[{'|'.join(NAMES)}]",
        shell_complete=flags.complete_mode,
        help=f"The proxy mode.  [default: {DEFAULT_MODE}]",
    ),
    click.option("--enable-dsr", is_flag=True, help="In mode kernelspace: direct server return."),
    flags.path_option("--config", "Settings: a KubeProxyConfiguration."),
)


def node_plan(options: NodePlanOptions) -> NodePlan:
    settings = load_settings(options.config, warn) if options.config else Settings()
    settings = replace(settings, mode=options.mode) if options.mode else settings
    if options.enable_dsr:
        if settings.mode != "kernelspace":
            raise click.UsageError(f"--enable-dsr is for mode kernelspace, not {settings.mode}")
        settings = replace(settings, winkernel=replace(settings.winkernel, enable_dsr=True))
    snapshot = asyncio.run(snapshot_of(options.source, warn))
    name = chosen_node(snapshot, options.node or settings.node_name, warn)
    node = snapshot.state.nodes.get(("", name))
    config = proxy_config(settings, node, snapshot.service_cidrs, snapshot.api_servers)
    if settings.detect_local_mode == "NodeCIDR" and not config.local_pods:
        warn(f"detectLocalMode is NodeCIDR, but node {name} has no podCIDRs: its Pods cannot be recognized")
    view = node_view(node, name, bind_address=settings.bind_address)
    return NodePlan(snapshot, settings, plan(snapshot.state, view, config), name)
