"""The command `kdns proxy`: a node's dataplane, with kube-proxy's flags."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from kdns import __version__, logs
from kdns.apps import proxy as app
from kdns.cli.command import CONTEXT, command
from kdns.cli.console import announce, reported_errors, run, warn
from kdns.cli.flags import complete_mode
from kdns.proxy.node.io.host_settings import apply_sysctls
from kdns.proxy.settings.flags import FLAGS, UNSUPPORTED, all_flags, flag_values
from kdns.proxy.settings.io.files import settings_of, write_settings
from kdns.proxy.settings.settings import Settings
from kdns.proxy.takeover.io.modes import clean_ups
from kdns.proxy.takeover.io.takeover import remove_everything
from kdns.runtime.connections import ConnectionKind, share_out
from kdns.runtime.process import reload_event, start_again, stop_event

PROXY_CONTEXT: Final = {
    **CONTEXT,
    "token_normalize_func": lambda name: name.replace("_", "-"),  # kube-proxy takes --cluster_cidr too
}
FILES: Final = frozenset({"config", "kubeconfig", "write-config-to"})
DEFAULTS: Final = all_flags({})
LISTS: Final = frozenset({"stringSlice", "mapStringBool"})
"""Kinds of flags whose values are combined if they are repeated; for other flags the last value wins."""
DEBUG_VERBOSITY: Final = 4
"""The first verbosity of klog that is for debugging (Kubernetes' logging conventions)."""

ONE_SHOT: Final = frozenset({"cleanup", "init-only"})
"""The command ends after these flags, so remarks about settings are left out."""


def kube_proxy_flags(function: Callable[..., None]) -> Callable[..., None]:
    """Values of the options are texts, or None: see `flag_texts`."""
    for name in UNSUPPORTED:
        function = click.option(f"--{name}", is_flag=False, flag_value="true", hidden=True)(function)
    for flag in reversed(FLAGS):
        names = ("--v", "-v") if flag.name == "v" else (f"--{flag.name}",)
        more: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if flag.kind == "bool" else {}
        if flag.kind in LISTS:
            more = {
                "multiple": True,
                "callback": lambda _context, _option, values: ",".join(values) if values else None,
            }
        if flag.name == "v":  # kube-proxy takes -v=2
            more = {"callback": lambda _context, _option, value: value and value.removeprefix("=")}
        if flag.name in FILES:
            more = {"type": click.Path()}
        if flag.name == "proxy-mode":
            more = {"shell_complete": complete_mode}
        text = DEFAULTS[flag.name] if flag.kind != "bool" else DEFAULTS[flag.name].replace("false", "")
        shown = f"{flag.help}  [default: {text}]" if text not in {"", "[]", "0"} else flag.help
        function = click.option(*names, metavar=flag.kind, help=shown, **more)(function)
    return function


def flag_texts(options: Mapping[str, str | None]) -> dict[str, str]:
    return {name.replace("_", "-"): text for name, text in options.items() if text is not None}


@command(
    "proxy",
    "kdns proxy --kubeconfig kubeconfig.conf --cluster-cidr 10.244.0.0/16",
    "kdns proxy --config config.conf --hostname-override worker-1",
    "kdns proxy --cleanup",
    context_settings=PROXY_CONTEXT,
)
@kube_proxy_flags
@click.version_option(__version__, prog_name="kdns")
def proxy(**options: str | None) -> None:
    """Give Services their virtual IPs on this node, in kube-proxy's place.

    The flags are kube-proxy's, and so is the file of --config (KubeProxyConfiguration). Prints `ready` when the rules
    are there. SIGTERM leaves them in place, and the next start takes them over. With other settings in the file
    of --config the process starts again in place.
    """
    with reported_errors():
        flags = flag_values(flag_texts(options))
        remarks: list[str] = []
        try:
            settings = settings_of(flags, remarks.append)
            configure_logs(settings)  # they may ask for JSON
        finally:
            for remark in remarks if ONE_SHOT.isdisjoint(flags) else ():
                warn(remark)
    if run(_run_proxy(flags, settings)):
        start_again()


async def _run_proxy(flags: Mapping[str, Any], settings: Settings) -> bool:
    """Returns whether the process has to start again."""
    if path := flags.get("write-config-to"):
        write_settings(Path(path), settings)
    elif flags.get("cleanup"):
        for removed in await remove_everything(settings, clean_ups()):
            announce(f"removed     {removed}")
    elif flags.get("init-only"):
        apply_sysctls(settings.conntrack)  # all that needs more capabilities than CAP_NET_ADMIN
    else:
        share_out(ConnectionKind.NODE_SITES, ConnectionKind.RELAYS)
        master, flagz = str(flags.get("master", "")), all_flags(flags)

        def node(settings: Settings) -> app.NodeProxy:
            configure_logs(settings)
            return app.NodeProxy(settings, app.api_source(settings, master), flags=flagz)

        stop = stop_event()
        return await app.supervise(
            lambda: settings_of(flags, lambda _: None),
            node,
            stop,
            reload_event(stop),
            file=Path(config) if (config := flags.get("config")) else None,
            say=announce,
        )
    return False


def configure_logs(settings: Settings) -> None:
    """Combines the settings with the options before the command."""
    options = click.get_current_context().find_root().params
    level, form = options.get("log_level") or "info", options.get("log_format") or ""
    logs.configure(log_level(settings, level), format="json" if settings.logging.format == "json" else form)


def log_level(settings: Settings, level: str) -> str:
    """`level`, or a lower one if the settings request it."""
    return "debug" if settings.logging.verbosity >= DEBUG_VERBOSITY else level
