"""A look at the queries of one burst in a while: who asks for what, without a cost for the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from kdns.dnsserver.io.burst.event_loop import BurstEventLoop

Look: TypeAlias = Callable[[bytes, str, bytes], None]
"""Gets a query's packet, its client's address, and the response, b"" if none is sent."""


class Sampling:
    """Says who looks at the queries of the next burst over UDP, if anybody."""

    __slots__ = ("look",)

    def __init__(self) -> None:
        self.look: Look | None = None

    def look_at_next(self, look: Look) -> None:
        """Shows the queries of the next burst to `look`. In between, compiled code leaves them to Python."""
        self.look = look
        _pause(is_paused=True)

    def begin(self) -> Look | None:
        """Returns who looks at the burst that begins now, if somebody does."""
        look, self.look = self.look, None
        if look:
            _pause(is_paused=False)
        return look


def _pause(*, is_paused: bool) -> None:
    loop = asyncio.get_running_loop()
    if isinstance(loop, BurstEventLoop):
        loop.bursts.is_paused = is_paused
