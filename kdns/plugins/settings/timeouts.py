"""timeouts { read D; write D; idle D; maxtcpqueries N }: limits of client connections."""

from __future__ import annotations

import math
from typing import Final

from kdns.corefile.lexer import Token
from kdns.corefile.lines import Stanza
from kdns.serverblocks.block_options import BlockOptions
from kdns.serverblocks.directive import Directive
from kdns.serverblocks.listener_options import ListenerOptions
from kdns.serverblocks.stanza import Option, configured, count, duration_s, integer, sets

LEAST_S: Final = 1.0
MOST_S: Final = 24 * 3600.0


def _seconds(token: Token) -> float:
    """Returns a duration, or a number of seconds."""
    text = token.text
    seconds = float(text) if text.isascii() and text.isdecimal() and len(text) < 10 else duration_s(token)
    if not LEAST_S <= seconds <= MOST_S:
        raise token.expected("a timeout from 1s to 24h")
    return seconds


def _queries(token: Token) -> float:
    return math.inf if token.text == "-1" else integer(token, 1)


OPTIONS = {
    "read": Option("read DURATION", sets("read_s", _seconds)),
    "write": Option("write DURATION", sets("write_s", _seconds)),
    "idle": Option("idle DURATION", sets("idle_s", _seconds)),
    "maxtcpqueries": Option("maxtcpqueries N", sets("max_queries", _queries)),
}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> ListenerOptions:
    """Returns the configuration of a `timeouts` stanza; raises CorefileError."""
    count(stanza, "timeouts")
    if not stanza.block:
        raise stanza.error(f"expected a block with at least one of {', '.join(OPTIONS)}")
    return configured(ListenerOptions(), stanza, OPTIONS)


DIRECTIVE = Directive("timeouts", parse, sets_up=BlockOptions.with_listener, options=OPTIONS)
