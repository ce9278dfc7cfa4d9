"""forward FROM TO… { … }: names that other servers know are asked of them; their answers are passed on as they came.

Several stanzas of a block are tried in the order in which they are written: the first whose FROM has the name takes it,
and `next` and `next_on_nodata` lead to the one after.
Differs: UDP answers with TC are asked for again over TCP, whatever the options; CoreDNS does so with prefer_udp only.
Differs: `next` counts where a later stanza takes the name, and otherwise not at all; CoreDNS answers SERVFAIL where
the next stanza is for other names.
Differs: zone transfers are refused; CoreDNS forwards them and gives the first message only.
Differs: records that do not concern the question are left out, see kdns.plugins.sources.forward.bailiwick.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final

from kdns.answers.chain import Plugin, Reply, Request, Sees, Serve, ServeResult, WouldAskError
from kdns.dns.names import Labels
from kdns.dns.types import TRANSFERS
from kdns.plugins.sources.forward.config import OPTIONS, USAGE, ForwardConfig, parse
from kdns.plugins.sources.forward.forwarder import NAME, Forwarder
from kdns.serverblocks.directive import Directive, Repeat, World


class Forward(Plugin):
    """All stanzas of a server block. Answers are not reused; `cache` keeps them."""

    sees = Sees.PACKET
    plugin = NAME

    def __init__(self, configs: tuple[ForwardConfig, ...], world: World) -> None:
        self.forwarders: Final = tuple(Forwarder(config, world) for config in configs)

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        query = request.query
        if query.qtype in TRANSFERS:
            return next(request)
        if request.is_dry_run:
            return self._would_ask(request, next)
        takers = [forwarder for forwarder in self.forwarders if forwarder.matches(query.labels)]
        if len(takers) == 1:
            return takers[0].ask(request)
        return _first_that_knows(takers, request) if takers else next(request)

    def _would_ask(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        for forwarder in self.forwarders:
            if forwarder.matches(request.query.labels):
                raise WouldAskError(request, NAME, (member.name for member in forwarder.group.members))
        return next(request)

    def plain_zones(self) -> Iterable[Labels]:
        return chain.from_iterable(forwarder.plain_zones() for forwarder in self.forwarders)

    def linked(self, zone: Labels, later: Serve) -> Serve:
        only = self.forwarders[0].linked(zone, later) if len(self.forwarders) == 1 else None
        return only or super().linked(zone, later)


async def _first_that_knows(takers: list[Forwarder], request: Request) -> Reply:
    for forwarder in takers[:-1]:
        response = await forwarder.ask(request)
        if not forwarder.falls_through(response):
            return response
    return await takers[-1].ask(request)


DIRECTIVE: Final = Directive(USAGE, ForwardConfig, Forward, OPTIONS, Repeat.ADD, parse=parse, example=". ::1")
