"""nsid [DATA]: identifies this server to clients that ask for it (RFC 5001)."""

from __future__ import annotations

from functools import partial
from typing import Final

from kdns.answers.chain import Plugin, Reply, Request, Sees, Serve, ServeResult, then
from kdns.corefile.lines import Stanza
from kdns.dns.names import Labels
from kdns.dns.types import NSID
from kdns.serverblocks.directive import Directive, World
from kdns.serverblocks.stanza import configured
from kdns.values import evolve

MAX_BYTES: Final = 255


class Nsid(Plugin):
    """Adds the option to responses to queries that have it; by default it is the host name.

    Answers to such queries are never in the table.
    """

    sees = Sees.PACKET

    def __init__(self, text: str, world: World) -> None:
        self._add = partial(with_option, (NSID, (text or world.hostname).encode()))

    def plain_zones(self) -> tuple[Labels, ...]:
        return ()

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        edns = request.query.edns
        if edns is None or all(code != NSID for code, _ in edns.options):
            return next(request)
        return then(next(request), self._add)


def with_option(option: tuple[int, bytes], reply: Reply) -> Reply:
    return reply and evolve(reply, options=(*(other for other in reply.options if other[0] != option[0]), option))


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> str:
    text = " ".join(token.text for token in stanza.args)
    if len(text.encode()) > MAX_BYTES:
        raise stanza.args[0].error(f"expected a name of at most {MAX_BYTES} bytes: each answer carries it")
    return configured(text, stanza, {})


DIRECTIVE: Final = Directive("nsid [DATA...]", str, Nsid, parse=parse)
