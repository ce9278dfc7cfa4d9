"""cancel [TIMEOUT]: SERVFAIL if later directives do not answer in time."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from kdns.answers.chain import Plugin, Reply, Request, Sees, Serve, ServeResult, Source
from kdns.answers.response import Response
from kdns.dns.names import Labels
from kdns.dns.types import SERVFAIL
from kdns.serverblocks.directive import Directive, World
from kdns.serverblocks.stanza import positive_s

DEFAULT_S: Final = 5.001


class Cancel(Plugin):
    """A reply that does not wait passes unchanged."""

    sees = Sees.PACKET

    def __init__(self, timeout_s: float, world: World) -> None:
        self._timeout_s = timeout_s
        self._world = world

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        reply = next(request)
        return reply if reply is None or isinstance(reply, Response) else self._in_time(reply)

    def source(self, zone: Labels, later: Source | None, server: str) -> Source | None:
        del zone, server
        return later  # a source never waits

    async def _in_time(self, reply: Awaitable[Reply]) -> Reply:
        try:
            return await self._world.with_timeout(self._timeout_s, reply)
        except TimeoutError:
            return Response(SERVFAIL, plugin="cancel", error=f"no answer within {self._timeout_s:g} s")


DIRECTIVE: Final = Directive(
    "cancel [TIMEOUT]",
    lambda timeout_s=DEFAULT_S: timeout_s,
    Cancel,
    argument=lambda token: positive_s(token, "a duration longer than 0, as in `cancel 5001ms`"),
)
