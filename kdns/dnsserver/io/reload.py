"""Reading the Corefile again: when that is asked for, and when it is seen to have changed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kdns import logs
from kdns.dnsserver.io.corefile import Corefile
from kdns.dnsserver.io.server import DnsServer
from kdns.errors import CorefileError, KdnsError
from kdns.runtime.process import exempt_from_gc, gc_paused
from kdns.runtime.tasks import in_daemon_thread, observed

log = logs.get(__name__)

LOOK_S: Final = 0.1
MISTAKES_MAX: Final = 20
"""Mistakes of a Corefile that one log line has; `kdns check` has all of them."""
REASON_MAX: Final = 500
"""Characters of a further mistake."""


@dataclass(slots=True)
class Reloader:
    """Has a server answer as its Corefile says, now and then. A Corefile that cannot be used changes nothing.

    It is read when `asked` is set, and from time to time where the directive `reload` wants that; then it is used only
    if its text or that of what it imports differs from what was tried last, whose hash is `tried`.
    """

    server: DnsServer
    read: Callable[[], Corefile]
    asked: asyncio.Event
    tried: str = ""
    freezing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Go on until cancelled."""
        try:
            while True:
                is_asked = await self._next()
                await self._reload(is_asked=is_asked)
        finally:
            if self.freezing:
                self.freezing.cancel()

    async def _next(self) -> bool:
        """Wait until the Corefile is to be looked at, and say whether somebody asked for it."""
        interval_s, jitter_s = self.server.reload_every_s
        wait_s = interval_s + random.uniform(-jitter_s, jitter_s) if interval_s else None
        try:
            await asyncio.wait_for(self.asked.wait(), wait_s)
        except TimeoutError:
            return False
        self.asked.clear()
        return True

    async def _reload(self, *, is_asked: bool) -> None:
        server = self.server
        followed = server.clusters
        errors: tuple[CorefileError, ...] = ()
        try:
            corefile = await in_daemon_thread(self.read)
            if not is_asked and corefile.sha512 == self.tried:
                return
            self.tried, errors = corefile.sha512, corefile.errors
            with gc_paused(freeze=lambda: server.clusters != followed):
                await server.swap(corefile.checked(), corefile.sha512)
        except KdnsError as error:
            server.failed_reloads += 1
            further = (
                {"further_mistakes": [str(each)[:REASON_MAX] for each in errors[1:MISTAKES_MAX]]} if errors[1:] else {}
            )
            log.warning(
                "corefile not reloaded", reason=str(error), **further, mistakes=len(errors) or 1, answers="as before"
            )
        except Exception:  # a task's boundary: the server goes on
            server.failed_reloads += 1
            log.exception("corefile not reloaded", answers="as before")
        else:
            if server.clusters != followed and not server.is_synced:
                self.freezing = observed(self._freeze(), "freeze of listed objects")
            log.info("corefile reloaded", addresses=len(server.addresses), sha512=corefile.sha512)

    async def _freeze(self) -> None:
        """Exempt what clusters hold from garbage collection, as soon as they are listed."""
        while not self.server.is_synced:  # noqa: ASYNC110 - kinds are listed one by one, in several places
            await asyncio.sleep(LOOK_S)
        exempt_from_gc()
