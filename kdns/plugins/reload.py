"""reload [INTERVAL] [JITTER] | off: the Corefile and its imports are used again whenever they have changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from kdns.corefile.lexer import Token
from kdns.corefile.lines import Stanza
from kdns.dnsserver.block_options import BlockOptions
from kdns.dnsserver.directive import Directive
from kdns.dnsserver.stanza import configured, count, duration_s

LEAST_INTERVAL_S: Final = 2.0
LEAST_JITTER_S: Final = 1.0
USAGE: Final = "reload [INTERVAL] [JITTER] | off"


@dataclass(frozen=True, slots=True)
class ReloadConfig:
    """How long between two readings, plus or minus up to the jitter, in seconds; 0 for never."""

    interval_s: float = 30.0
    jitter_s: float = 15.0


def _at_least(token: Token, least_s: float, what: str) -> float:
    seconds = duration_s(token)
    if seconds < least_s:
        raise token.expected(f"{what} of at least {least_s:g}s")
    return seconds


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> ReloadConfig:
    """Returns the configuration of a `reload` stanza; raises CorefileError.

    The jitter is never more than half of the interval.
    """
    count(stanza, USAGE, (0, 2))
    args = stanza.args
    config = ReloadConfig()
    if args and args[0].text == "off":
        count(stanza, "reload off")
        config = ReloadConfig(0.0, 0.0)
    elif args:
        interval_s = _at_least(args[0], LEAST_INTERVAL_S, "an interval")
        jitter_s = _at_least(args[1], LEAST_JITTER_S, "a jitter") if len(args) > 1 else config.jitter_s
        config = ReloadConfig(interval_s, min(jitter_s, interval_s / 2))
    return configured(config, stanza, {})


def sets_up(options: BlockOptions, config: ReloadConfig) -> BlockOptions:
    """Has the process watch its Corefile."""
    return replace(options, reload_s=(config.interval_s, config.jitter_s))


DIRECTIVE = Directive("reload", parse, sets_up=sets_up)
