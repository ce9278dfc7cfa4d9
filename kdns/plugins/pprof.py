"""pprof [ADDRESS] { block [RATE] }: /debug/pprof, stacks and a sampled profile of the process.

Differs: profiles are folded stacks, because Python has no profiles in pprof's format, and no profile of blocked
goroutines.
"""

from __future__ import annotations

from kdns.corefile.address import host_port
from kdns.corefile.lines import Line, Stanza
from kdns.dnsserver.block_options import BlockOptions, ProfilesPage
from kdns.dnsserver.directive import Directive
from kdns.dnsserver.stanza import Option, configured, count, integer
from kdns.net import HostPort

DEFAULT_ADDRESS = HostPort("localhost", 6053)


def _block(config: ProfilesPage, line: Line) -> ProfilesPage:
    for token in line.args:
        integer(token, 0)
    return config


OPTIONS = {"block": Option("block [RATE]", _block)}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> ProfilesPage:
    """Returns the configuration of a `pprof` stanza; raises CorefileError."""
    count(stanza, "pprof [ADDRESS]")
    address = host_port(stanza.args[0]) if stanza.args else DEFAULT_ADDRESS
    return configured(ProfilesPage(address), stanza, OPTIONS)


DIRECTIVE = Directive("pprof", parse, sets_up=BlockOptions.with_page, options=OPTIONS)
