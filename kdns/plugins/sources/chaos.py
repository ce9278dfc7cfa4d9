"""chaos [VERSION] [AUTHORS…]: version, host name and authors for queries of class CH such as version.bind. TXT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kdns import __version__
from kdns.answers.chain import Plugin, Request, Sees, Serve, ServeResult
from kdns.answers.response import Response, Reuse
from kdns.dns.names import Labels
from kdns.dns.rdata import text_rdata
from kdns.dns.rrset import RRset
from kdns.dns.types import CH, TXT
from kdns.serverblocks.directive import Directive, World

DEFAULT_VERSION: Final = f"kdns-{__version__}"
DEFAULT_AUTHORS: Final = ("The kdns authors",)
MAX_STRING_BYTES: Final = 255


@dataclass(frozen=True, slots=True)
class ChaosConfig:
    """The texts of version.bind. and authors.bind."""

    version: str = DEFAULT_VERSION
    authors: tuple[str, ...] = DEFAULT_AUTHORS


class Chaos(Plugin):
    """Answers TXT queries of class CH for five names; the answers are constant."""

    sees = Sees.PACKET

    def __init__(self, config: ChaosConfig, world: World) -> None:
        version, host = (text_of_strings(config.version),), (text_of_strings(world.hostname),)
        self._texts = {
            "version.bind.": version,
            "version.server.": version,
            "hostname.bind.": host,
            "id.server.": host,
            "authors.bind.": tuple(text_of_strings(author) for author in config.authors),
        }

    def plain_zones(self) -> tuple[Labels, ...]:
        return ()

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        query = request.query
        texts = self._texts.get(query.name) if query.qclass == CH and query.qtype == TXT else None
        if texts is None:
            return next(request)
        return Response(answer=(RRset(query.name, TXT, 0, texts, CH),), reuse=Reuse(), plugin="chaos")


def text_of_strings(text: str) -> bytes:
    """Differs: a text of more than 255 bytes gets several strings; CoreDNS cuts it off."""
    octets = text.encode()
    starts = range(0, max(len(octets), 1), MAX_STRING_BYTES)
    return text_rdata(*(octets[start : start + MAX_STRING_BYTES] for start in starts))


DIRECTIVE: Final = Directive(
    "chaos [VERSION] [AUTHORS...]",
    lambda version=DEFAULT_VERSION, *authors: ChaosConfig(version, authors or DEFAULT_AUTHORS),
    Chaos,
)
