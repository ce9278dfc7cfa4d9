"""debug: log lines of the level debug, and the stack of a query that fails unexpectedly."""

from __future__ import annotations

from dataclasses import dataclass

from kdns.corefile.lines import Stanza
from kdns.dnsserver.directive import Directive, Setup
from kdns.dnsserver.stanza import configured, count


@dataclass(frozen=True, slots=True)
class DebugConfig:
    """There is nothing to configure."""


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> DebugConfig:
    """What a `debug` stanza says; raises CorefileError."""
    count(stanza, "debug")
    return configured(DebugConfig(), stanza, {})


def build(_config: DebugConfig, setup: Setup) -> None:
    """Asks for more to be logged.

    Differs: CoreDNS ends with a query that fails unexpectedly; kdns answers it with SERVFAIL and logs the stack.
    """
    setup.log_stacks()
    setup.log_debug()


DIRECTIVE = Directive("debug", parse, build, is_listed=False)
