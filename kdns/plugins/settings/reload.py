"""reload [INTERVAL] [JITTER] | off: the Corefile and its imports are used again whenever they have changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from kdns.corefile.lexer import Token
from kdns.corefile.lines import Stanza
from kdns.serverblocks.block_options import BlockOptions
from kdns.serverblocks.directive import Directive
from kdns.serverblocks.stanza import configured, count, duration_s

LEAST_INTERVAL_S: Final = 2.0
LEAST_JITTER_S: Final = 1.0
USAGE: Final = "reload [INTERVAL] [JITTER] | off"


@dataclass(frozen=True, slots=True)
class ReloadConfig:
    """How long between two readings, plus or minus up to the jitter, in seconds; 0 for never."""

    interval_s: float = 30.0
    jitter_s: float = 15.0


def _interval_s(token: Token) -> float:
    seconds = duration_s(token)
    if seconds < LEAST_INTERVAL_S:
        raise token.expected(f"an interval of at least {LEAST_INTERVAL_S:g}s")
    return seconds


def _jitter_s(token: Token) -> float:
    seconds = duration_s(token)
    if 0 < seconds < LEAST_JITTER_S:
        raise token.expected(f"a jitter of at least {LEAST_JITTER_S:g}s, or 0s for none")
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
        interval_s = _interval_s(args[0])
        jitter_s = _jitter_s(args[1]) if len(args) > 1 else config.jitter_s
        config = ReloadConfig(interval_s, min(jitter_s, interval_s / 2))
    return configured(config, stanza, {})


def sets_up(options: BlockOptions, config: ReloadConfig) -> BlockOptions:
    """Has the process watch its Corefile."""
    return replace(options, reload_s=(config.interval_s, config.jitter_s))


DIRECTIVE = Directive("reload", parse, sets_up=sets_up)
