"""debug: log lines of the level debug, and the stack of a query that fails unexpectedly."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kdns.corefile.lines import Stanza
from kdns.serverblocks.block_options import BlockOptions
from kdns.serverblocks.directive import Directive, Repeat
from kdns.serverblocks.stanza import configured, count


@dataclass(frozen=True, slots=True)
class DebugConfig:
    """There is nothing to configure."""


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> DebugConfig:
    """Returns the configuration of a `debug` stanza; raises CorefileError."""
    count(stanza, "debug")
    return configured(DebugConfig(), stanza, {})


def sets_up(options: BlockOptions, _config: DebugConfig) -> BlockOptions:
    """Asks for more to be logged.

    Differs: CoreDNS ends with a query that fails unexpectedly; kdns answers it with SERVFAIL and logs the stack.
    """
    return replace(options, logs_stacks=True, logs_debug=True)


DIRECTIVE = Directive("debug", parse, repeat=Repeat.LAST, sets_up=sets_up, is_listed=False)
