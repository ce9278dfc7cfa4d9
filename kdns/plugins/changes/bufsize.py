"""bufsize [SIZE]: limits the size of answers over UDP, also for clients that accept larger ones.

Later directives and upstreams get the query with that limit.
"""

from __future__ import annotations

from typing import Final

from kdns.answers.answer import MAX_UDP_BYTES
from kdns.answers.chain import Plugin, Request, Sees, Serve, ServeResult, Source
from kdns.dns.names import Labels
from kdns.dns.query import PLAIN_PAYLOAD_BYTES
from kdns.serverblocks.block_options import BlockOptions
from kdns.serverblocks.directive import Directive, Repeat, World
from kdns.serverblocks.stanza import integer
from kdns.values import evolve

MOST_BYTES: Final = 4096


class Bufsize(Plugin):
    """Lowers the payload size in a query's OPT."""

    sees = Sees.PACKET

    def __init__(self, size_bytes: int, _world: World) -> None:
        self._size_bytes = size_bytes

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        edns = request.query.edns
        if edns is None or edns.payload_bytes <= self._size_bytes:
            return next(request)
        limited = edns._replace(payload_bytes=self._size_bytes)
        return next(evolve(request, query=request.query.changed(edns=limited)))

    def source(self, zone: Labels, later: Source | None, server: str) -> Source | None:
        del zone, server
        return later  # a source sends no query that the size of the OPT matters for


DIRECTIVE: Final = Directive(
    "bufsize [SIZE]",
    lambda size_bytes=MAX_UDP_BYTES: size_bytes,
    Bufsize,
    repeat=Repeat.LAST,
    argument=lambda token: integer(token, PLAIN_PAYLOAD_BYTES, MOST_BYTES),
    sets_up=lambda size_bytes: BlockOptions(udp_bytes=size_bytes),
)
