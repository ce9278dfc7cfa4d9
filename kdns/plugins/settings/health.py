"""health [ADDRESS] { lameduck DURATION }: /health answers 200 while the process runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kdns.corefile.address import host_port
from kdns.corefile.lines import Stanza
from kdns.net import HostPort
from kdns.serverblocks.block_options import BlockOptions, HealthPage
from kdns.serverblocks.directive import Directive, Repeat
from kdns.serverblocks.stanza import Option, configured, count, duration_s, sets

DEFAULT_ADDRESS = HostPort("", 8080)


@dataclass(frozen=True, slots=True)
class HealthConfig:
    """The address of /health, and the time in seconds for which a stopping server continues to answer."""

    address: HostPort = DEFAULT_ADDRESS
    lameduck_s: float = 0.0


OPTIONS = {"lameduck": Option("lameduck DURATION", sets("lameduck_s", duration_s))}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> HealthConfig:
    """Returns the configuration of a `health` stanza; raises CorefileError."""
    count(stanza, "health [ADDRESS]")
    config = HealthConfig(host_port(stanza.args[0])) if stanza.args else HealthConfig()
    return configured(config, stanza, OPTIONS)


def sets_up(options: BlockOptions, config: HealthConfig) -> BlockOptions:
    """Serves /health (CoreDNS's plugin/health)."""
    return replace(options.with_page(HealthPage(config.address)), lameduck_s=config.lameduck_s)


DIRECTIVE = Directive("health", parse, repeat=Repeat.LAST, sets_up=sets_up, options=OPTIONS)
