"""The command `kdns proxy`: a node's dataplane, with kube-proxy's flags."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from kdns import __version__, node
from kdns.aio.process import raise_open_files_limit, stop_event
from kdns.aio.proxyconfigs import settings_of, write_settings
from kdns.errors import KdnsError
from kdns.proxy.flagtexts import all_flags
from kdns.proxy.settings import Settings
from kdns.proxy.settings_flags import FLAGS, FlagValues, flag_values

CONTEXT: Final = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "token_normalize_func": lambda name: name.replace("_", "-"),  # kube-proxy takes --cluster_cidr too
}
LISTS: Final = frozenset({"stringSlice", "mapStringBool", "pattern=N"})
"""Kinds of flags whose values add up when they are given several times; of others the last one counts."""

DEEDS: Final = frozenset({"cleanup", "init-only"})
"""Flags of what is done once: what has no effect on rules needs no warning then."""


def kube_proxy_flags(command: Callable[..., None]) -> Callable[..., None]:
    """kube-proxy's flags as options of a command, each given on as text or None; see `flag_texts`."""
    for flag in reversed(FLAGS):
        names = ("--v", "-v") if flag.name == "v" else (f"--{flag.name}",)
        more: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if flag.kind == "bool" else {}
        if flag.kind in LISTS:
            more = {"multiple": True, "callback": lambda _context, _option, given: ",".join(given) if given else None}
        option = click.option(*names, metavar=flag.kind, help=flag.help, hidden=bool(flag.deprecated), **more)
        command = option(command)
    return command


def flag_texts(given: Mapping[str, str | None]) -> dict[str, str]:
    """The flags that were given, by kube-proxy's names, for `flag_values`."""
    return {name.replace("_", "-"): text for name, text in given.items() if text is not None}


@click.command("proxy", context_settings=CONTEXT)
@kube_proxy_flags
@click.version_option(__version__, prog_name="kdns")
def proxy(**given: str | None) -> None:
    """Give Services their virtual IPs on this node, in kube-proxy's place.

    The flags are kube-proxy's, and so is the file of --config (KubeProxyConfiguration). Prints `ready` when the rules
    are there. SIGTERM leaves them in place, and the next start takes them over.
    """
    try:
        flags = flag_values(flag_texts(given))
        settings = settings_of(flags, _warn if DEEDS.isdisjoint(flags.given) else lambda _: None)
        asyncio.run(_proxy(flags, settings))
    except KdnsError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


async def _proxy(flags: FlagValues, settings: Settings) -> None:
    if path := flags.given.get("write-config-to"):
        write_settings(Path(path), settings)
    elif flags.given.get("cleanup"):
        await node.clean_up()
    elif flags.given.get("init-only"):
        node.initialise(settings)
    else:
        raise_open_files_limit()
        master, told = str(flags.given.get("master", "")), all_flags(flags.given)
        await node.supervise(
            lambda: node.usable(settings_of(flags, lambda _: None)),
            lambda read: node.NodeProxy(read, node.api_source(read, master), flags=told),
            stop_event(),
            file=Path(flags.config) if flags.config else None,
            say=_say,
        )


def _say(text: str) -> None:
    click.echo(text)
    sys.stdout.flush()


def _warn(text: str) -> None:
    click.echo(f"Warning: {text}", err=True)
