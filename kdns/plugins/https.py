"""https { max_connections N }: how many connections an address of https:// may have."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kdns.corefile.lines import Stanza
from kdns.dnsserver.directive import Directive, Setup
from kdns.dnsserver.listener_options import HTTPS_CONNECTIONS
from kdns.dnsserver.stanza import Option, configured, count, integer, refuse_repeated, sets


@dataclass(frozen=True, slots=True)
class HttpsConfig:
    """How many connections; 0: as many as the process may have."""

    max_connections: int = HTTPS_CONNECTIONS


OPTIONS = {"max_connections": Option("max_connections N", sets("max_connections", integer, 0))}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> HttpsConfig:
    """What an `https` stanza says; raises CorefileError."""
    count(stanza, "https")
    refuse_repeated(stanza)
    return configured(HttpsConfig(), stanza, OPTIONS)


def build(config: HttpsConfig, setup: Setup) -> None:
    """Limits the connections of the block's listeners."""
    setup.listener(lambda options: replace(options, https_connections=config.max_connections))


DIRECTIVE = Directive("https", parse, build, options=OPTIONS)
