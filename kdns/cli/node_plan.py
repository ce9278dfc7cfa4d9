"""The plan of one node, from the options that `kdns render` and `kdns trace` share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, Final

import click

from kdns.apps.sources.snapshot import Snapshot, chosen_node, snapshot_of
from kdns.apps.sources.source import ObjectSource
from kdns.cli import flags
from kdns.cli.console import warn
from kdns.cluster.state import State
from kdns.proxy.modes import MODES
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import plan
from kdns.proxy.settings.flags import BY_NAME, FLAGS, OWNERS, flag_values, with_flag
from kdns.proxy.settings.io.files import load_settings
from kdns.proxy.settings.plan_config import node_view, proxy_config
from kdns.proxy.settings.section import Flag
from kdns.proxy.settings.settings import DEFAULT_MODE, Settings


@dataclass(frozen=True, slots=True)
class NodePlanOptions:
    """The options of both commands; `config` and `mode` are None if absent."""

    source: ObjectSource
    config: Path | None
    mode: str | None
    node: str
    of_mode: Mapping[str, str]
    """Texts of flags of modes, by name."""


@dataclass(frozen=True)
class NodePlan:
    """A node's plan, with its snapshot and settings. `node` is the node's name."""

    snapshot: Snapshot
    settings: Settings
    node: str

    @cached_property
    def plan(self) -> Plan:
        return self.plan_of(self.snapshot.state, self.settings)

    def plan_of(self, state: State, settings: Settings) -> Plan:
        node = self.snapshot.state.nodes.get(("", self.node))
        config = proxy_config(settings, node, self.snapshot.service_cidrs, self.snapshot.api_servers)
        return plan(state, node_view(node, self.node, bind_address=settings.bind_address), config)


def node_plan_options(command: Callable[..., None]) -> Callable[..., None]:
    """Options of a command that plans for a node, which gets them as one NodePlanOptions `options`."""

    @wraps(command)
    def with_options(*, source: ObjectSource, config: Path | None, mode: str | None, node: str, **others: Any) -> None:
        texts = {flag.name: others.pop(flag.name.replace("-", "_")) for flag in _MODE_FLAGS}
        of_mode = {name: text for name, text in texts.items() if text is not None}
        command(options=NodePlanOptions(source, config, mode, node, of_mode), **others)

    options = flags.source_options(with_options)
    for option in reversed(_OPTIONS):
        options = option(options)
    return options


_MODE_FLAGS: Final = tuple(flag for flag in FLAGS if flag.is_of_plan)


def _mode_option(flag: Flag) -> Callable[..., Callable[..., None]]:
    more: dict[str, Any] = {"is_flag": True, "flag_value": "true", "default": None} if flag.kind == "bool" else {}
    return click.option(f"--{flag.name}", help=flag.help, **more)


_OPTIONS: Final = (
    click.option("--node", default="", metavar="NAME", help="The node.  [default: the only node, or this machine]"),
    click.option(
        "--proxy-mode",
        "mode",
        type=click.Choice([*MODES]),
        metavar=f"[{'|'.join(MODES)}]",
        shell_complete=flags.complete_mode,
        help=f"The proxy mode.  [default: {DEFAULT_MODE}]",
    ),
    *map(_mode_option, _MODE_FLAGS),
    flags.path_option("--config", "Settings: a KubeProxyConfiguration."),
)


def node_plan(options: NodePlanOptions) -> NodePlan:
    settings = load_settings(options.config, warn) if options.config else Settings()
    settings = replace(settings, mode=options.mode) if options.mode else settings
    for name, value in flag_values(options.of_mode).items():
        if OWNERS[name] not in MODES[settings.mode].sections:
            names = " and ".join(mode.name for mode in MODES.values() if OWNERS[name] in mode.sections)
            raise click.UsageError(f"--{name} is for mode {names}, not {settings.mode}")
        settings = with_flag(settings, BY_NAME[name], value, settings.mode)
    snapshot = asyncio.run(snapshot_of(options.source, warn))
    name = chosen_node(snapshot, options.node or settings.node_name, warn)
    node = snapshot.state.nodes.get(("", name))
    if settings.detect_local_mode == "NodeCIDR" and not (node and node.pod_cidrs):
        warn(f"detectLocalMode is NodeCIDR, but node {name} has no podCIDRs: its Pods cannot be recognized")
    return NodePlan(snapshot, settings, name)
