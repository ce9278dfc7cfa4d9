"""any: answers queries of type ANY with one HINFO record (RFC 8482 §4.2)."""

from __future__ import annotations

from typing import Final

from kdns.answers.chain import Plugin, Request, Sees, Serve, ServeResult
from kdns.answers.response import Response, Reuse
from kdns.dns.names import Labels
from kdns.dns.rdata import text_rdata
from kdns.dns.rrset import RRset
from kdns.dns.types import ANY, HINFO, IN
from kdns.serverblocks.directive import Directive, NoConfig, Repeat, Row

TTL_S: Final = 8482
RDATA: Final = text_rdata(b"ANY obsoleted", b"See RFC 8482")


class Any(Plugin):
    """Differs: CoreDNS ignores arguments, so that `any yes` and `any no` mean the same."""

    sees = Sees.PACKET

    def plain_zones(self) -> tuple[Labels, ...]:
        return ()

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        query = request.query
        if query.qtype != ANY or query.qclass != IN:
            return next(request)
        return Response(answer=(RRset(query.name, HINFO, TTL_S, (RDATA,)),), reuse=Reuse(), plugin="any")


DIRECTIVE: Final[Row] = Directive("any", NoConfig, lambda _config, _world: Any(), repeat=Repeat.LAST)
