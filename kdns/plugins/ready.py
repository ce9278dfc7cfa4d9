"""ready [ADDRESS] { monitor until-ready|continuously }: /ready answers 200 when names can be answered, else 503."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kdns.corefile.address import HostPort, host_port
from kdns.corefile.lines import Line, Stanza
from kdns.plugins.options import Option, choice, configured, count

MONITORS = ("until-ready", "continuously")
DEFAULT_ADDRESS = HostPort("", 8181)


@dataclass(frozen=True, slots=True)
class ReadyConfig:
    """Where /ready is served, and whether a part that was ready once may become unready again."""

    address: HostPort = DEFAULT_ADDRESS
    monitor: str = "until-ready"


def _monitor(config: ReadyConfig, line: Line) -> ReadyConfig:
    return replace(config, monitor=choice(line.args[0], MONITORS))


OPTIONS = {"monitor": Option("monitor until-ready|continuously", 1, 1, _monitor)}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> ReadyConfig:
    """What a `ready` stanza says; raises CorefileError."""
    count(stanza, "ready [ADDRESS]", 0, 1)
    config = ReadyConfig(host_port(stanza.args[0])) if stanza.args else ReadyConfig()
    return configured(config, stanza, OPTIONS)
