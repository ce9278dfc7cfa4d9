"""bufsize [SIZE]: limits the size of answers over UDP, also for clients that accept larger ones.

Later directives receive the query with that limit, and so do upstreams.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Final

from kdns.answers.answer import MAX_UDP_BYTES
from kdns.answers.chain import Plugin, Reply, Request, Sees, Serve, Source
from kdns.corefile.lines import Stanza
from kdns.dns.names import Labels
from kdns.dns.query import PLAIN_PAYLOAD_BYTES
from kdns.serverblocks.block_options import BlockOptions
from kdns.serverblocks.directive import Directive, Repeat
from kdns.serverblocks.stanza import configured, count, integer
from kdns.values import evolve

MOST_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class BufsizeConfig:
    """The limit in bytes."""

    size_bytes: int = MAX_UDP_BYTES


class Bufsize(Plugin):
    """Lowers the size in a query's OPT; it depends on the packet only."""

    sees = Sees.PACKET

    def __init__(self, config: BufsizeConfig) -> None:
        self._size_bytes = config.size_bytes

    def serve(self, request: Request, next: Serve) -> Reply | Awaitable[Reply]:  # noqa: A002 - as in Plugin
        """Returns the next directive's reply."""
        edns = request.query.edns
        if edns is None or edns.payload_bytes <= self._size_bytes:
            return next(request)
        limited = edns._replace(payload_bytes=self._size_bytes)
        return next(evolve(request, query=request.query.changed(edns=limited)))

    def source(self, zone: Labels, later: Source | None, server: str) -> Source | None:
        del zone, server
        return later  # which sends nothing that the size of the OPT is for


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> BufsizeConfig:
    """Returns the configuration of a `bufsize` stanza; raises CorefileError."""
    count(stanza, "bufsize [SIZE]")
    sizes = [integer(token, PLAIN_PAYLOAD_BYTES, MOST_BYTES) for token in stanza.args]
    return configured(BufsizeConfig(*sizes), stanza, {})


def sets_up(options: BlockOptions, config: BufsizeConfig) -> BlockOptions:
    """Limits the answers of the server block."""
    return replace(options, udp_bytes=config.size_bytes)


def build(config: BufsizeConfig, _world: object) -> Bufsize:
    """Returns the plugin, which limits the queries of later directives."""
    return Bufsize(config)


DIRECTIVE = Directive("bufsize", parse, build, Repeat.LAST, sets_up=sets_up)
