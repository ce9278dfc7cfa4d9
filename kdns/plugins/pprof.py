"""pprof [ADDRESS] { block [RATE] }: /debug/pprof, what the process is doing.

Differs: the profiles are text, as Python has no profiles in pprof's format, and there is none of blocked goroutines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kdns.corefile.address import host_port
from kdns.corefile.lines import Line, Stanza
from kdns.dnsserver.block_options import BlockOptions, ProfilesPage
from kdns.dnsserver.directive import Directive
from kdns.dnsserver.stanza import Option, configured, count, integer
from kdns.net import HostPort

DEFAULT_ADDRESS = HostPort("localhost", 6053)


@dataclass(frozen=True, slots=True)
class PprofConfig:
    """Where the profiles are served."""

    address: HostPort = DEFAULT_ADDRESS


def _block(config: PprofConfig, line: Line) -> PprofConfig:
    for token in line.args:
        integer(token, 0)
    return config


OPTIONS = {"block": Option("block [RATE]", _block)}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> PprofConfig:
    """What a `pprof` stanza says; raises CorefileError."""
    count(stanza, "pprof [ADDRESS]")
    config = PprofConfig(host_port(stanza.args[0])) if stanza.args else PprofConfig()
    return configured(config, stanza, OPTIONS)


def sets_up(options: BlockOptions, config: PprofConfig) -> BlockOptions:
    """Serves /debug/pprof."""
    return replace(options, pages=(*options.pages, ProfilesPage(config.address)))


DIRECTIVE = Directive("pprof", parse, sets_up=sets_up, options=OPTIONS)
