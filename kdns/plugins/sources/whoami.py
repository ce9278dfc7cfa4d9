"""whoami: tells each client its own address and port, in the additional section."""

from __future__ import annotations

from typing import Final

from kdns.answers.chain import Plugin, Request, Sees, Serve, ServeResult
from kdns.answers.response import Response
from kdns.dns.query import AA
from kdns.dns.rrset import RRset, Srv
from kdns.dns.types import IN, NOERROR, SRV, TRANSFERS, address_type
from kdns.net import packed
from kdns.serverblocks.directive import Directive, NoConfig, Repeat, Row


class Whoami(Plugin):
    """Its responses are for one query only, so the answer table may stay on.

    Differs: zone transfers and classes other than IN are refused; CoreDNS answers them like any other query.
    """

    sees = Sees.PACKET

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        """The client's A or AAAA at the question name, and SRV with its port at `_udp` or `_tcp`."""
        query, (host, port) = request.query, request.client
        if query.qclass != IN or query.qtype in TRANSFERS:
            return next(request)
        name, address = query.name, packed(host)
        addresses = (RRset(name, address_type(address), 0, (address,)),) if address else ()
        below = f"_{request.transport}.{name.removeprefix('.')}"
        service = RRset(below, SRV, 0, (Srv(0, 0, port, "."),))
        return Response(NOERROR, AA, additional=(*addresses, service), plugin="whoami")


DIRECTIVE: Final[Row] = Directive("whoami", NoConfig, lambda _config, _world: Whoami(), repeat=Repeat.LAST)
