"""ready [ADDRESS] { monitor until-ready|continuously }: /ready answers 200 when names can be answered, else 503."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kdns.corefile.address import host_port
from kdns.corefile.lines import Stanza
from kdns.dnsserver.block_options import BlockOptions, ReadyPage
from kdns.dnsserver.directive import Directive
from kdns.dnsserver.stanza import Option, choice, configured, count, sets
from kdns.net import HostPort

MONITORS = ("until-ready", "continuously")
DEFAULT_ADDRESS = HostPort("", 8181)


@dataclass(frozen=True, slots=True)
class ReadyConfig:
    """Where /ready is served, and whether a part that was ready once may become unready again."""

    address: HostPort = DEFAULT_ADDRESS
    monitor: str = "until-ready"


OPTIONS = {"monitor": Option("monitor until-ready|continuously", sets("monitor", choice, MONITORS))}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> ReadyConfig:
    """What a `ready` stanza says; raises CorefileError."""
    count(stanza, "ready [ADDRESS]")
    config = ReadyConfig(host_port(stanza.args[0])) if stanza.args else ReadyConfig()
    return configured(config, stanza, OPTIONS)


def sets_up(options: BlockOptions, config: ReadyConfig) -> BlockOptions:
    """Serves /ready."""
    return replace(
        options, pages=(*options.pages, ReadyPage(config.address, continuously=config.monitor == "continuously"))
    )


DIRECTIVE = Directive("ready", parse, sets_up=sets_up, options=OPTIONS)
