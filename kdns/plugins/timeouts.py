"""timeouts { read D; write D; idle D; maxtcpqueries N }: how long and how often a client's connection is served."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from kdns.corefile.lexer import Token
from kdns.corefile.lines import Stanza
from kdns.dnsserver.directive import Directive, Setup
from kdns.dnsserver.listener_options import UNLIMITED_QUERIES
from kdns.dnsserver.stanza import Option, configured, count, duration_s, integer, sets

LEAST_S: Final = 1.0
MOST_S: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class TimeoutsConfig:
    """Seconds, and queries of one connection over TCP; None for kdns's own."""

    read_s: float | None = None
    write_s: float | None = None
    idle_s: float | None = None
    max_tcp_queries: int | None = None


def _seconds(token: Token) -> float:
    """A duration, or a number of seconds."""
    text = token.text
    seconds = float(text) if text.isascii() and text.isdecimal() and len(text) < 10 else duration_s(token)
    if not LEAST_S <= seconds <= MOST_S:
        raise token.error("a timeout is from 1s to 24h")
    return seconds


def _queries(token: Token) -> int:
    return UNLIMITED_QUERIES if token.text == str(UNLIMITED_QUERIES) else integer(token, 1)


OPTIONS = {
    "read": Option("read DURATION", sets("read_s", _seconds)),
    "write": Option("write DURATION", sets("write_s", _seconds)),
    "idle": Option("idle DURATION", sets("idle_s", _seconds)),
    "maxtcpqueries": Option("maxtcpqueries N", sets("max_tcp_queries", _queries)),
}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> TimeoutsConfig:
    """What a `timeouts` stanza says; raises CorefileError."""
    count(stanza, "timeouts")
    if not stanza.block:
        raise stanza.error(f"`timeouts` has a block with at least one of {', '.join(OPTIONS)}")
    return configured(TimeoutsConfig(), stanza, OPTIONS)


def build(config: TimeoutsConfig, setup: Setup) -> None:
    """Limits the connections of the block's listeners."""
    setup.listener(
        lambda options: replace(
            options,
            read_s=config.read_s,
            write_s=config.write_s,
            idle_s=config.idle_s,
            max_tcp_queries=config.max_tcp_queries,
        )
    )


DIRECTIVE = Directive("timeouts", parse, build, options=OPTIONS)
