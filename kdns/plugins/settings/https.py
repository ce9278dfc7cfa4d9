"""https { max_connections N }: limits the connections to an address of https://."""

from __future__ import annotations

import math

from kdns.corefile.lines import Stanza
from kdns.serverblocks.block_options import BlockOptions
from kdns.serverblocks.directive import Directive
from kdns.serverblocks.listener_options import DEFAULTS, ListenerOptions
from kdns.serverblocks.stanza import Option, configured, count, integer, refuse_repeated, sets

OPTIONS = {
    "max_connections": Option(
        "max_connections N", sets("https_connections", lambda token: integer(token, 0) or math.inf)
    )
}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> ListenerOptions:
    """Returns the configuration of a `https` stanza; raises CorefileError."""
    count(stanza, "https")
    refuse_repeated(stanza)
    return configured(ListenerOptions(https_connections=DEFAULTS.https_connections), stanza, OPTIONS)


DIRECTIVE = Directive("https", parse, sets_up=BlockOptions.with_listener, options=OPTIONS)
