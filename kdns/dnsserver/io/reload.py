"""Reloads the Corefile, on request and when it has changed."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kdns import logs
from kdns.dnsserver.io.corefile import Corefile
from kdns.dnsserver.io.server import DnsServer, Reload
from kdns.errors import CorefileError, KdnsError
from kdns.runtime.process import exempt_from_gc, gc_paused
from kdns.runtime.tasks import in_daemon_thread, observed

if TYPE_CHECKING:
    from kdns.dnsserver.io.supervisor import Supervisor

log = logs.get(__name__)

LOOK_S: Final = 0.1
MISTAKES_MAX: Final = 20
"""The most mistakes in one log line; `kdns check` reports all of them."""
REASON_MAX: Final = 500
"""The most characters of a mistake after the first."""


@dataclass(slots=True)
class Reloader:
    """Applies changes of the Corefile to a server. An invalid Corefile changes nothing.

    The Corefile is read when `reload_requested` is set, and with `polls` at the intervals of the directive `reload`;
    then it is applied only if the hash of its text and imports differs from `last_hash`, that of the last attempt.
    A worker does not poll: its supervisor does.
    """

    server: DnsServer | Supervisor
    read: Callable[[], Corefile]
    reload_requested: asyncio.Event
    last_hash: str = ""
    polls: bool = True
    freezing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        try:
            while True:
                is_requested = await self._next()
                await self._reload(is_requested=is_requested)
        finally:
            if self.freezing:
                self.freezing.cancel()

    async def _next(self) -> bool:
        interval_s, jitter_s = self.server.reload_every_s
        wait_s = interval_s + random.uniform(-jitter_s, jitter_s) if interval_s and self.polls else None
        try:
            await asyncio.wait_for(self.reload_requested.wait(), wait_s)
        except TimeoutError:
            return False
        self.reload_requested.clear()
        return True

    async def _reload(self, *, is_requested: bool) -> None:
        server = self.server
        followed = server.clusters
        errors: tuple[CorefileError, ...] = ()
        try:
            corefile = await in_daemon_thread(self.read)
            if not is_requested and corefile.sha512 == self.last_hash:
                return
            self.last_hash, errors = corefile.sha512, corefile.errors
            with gc_paused(freeze=lambda: server.clusters != followed):
                await server.swap(corefile.checked(), corefile.sha512)
        except KdnsError as error:
            self._failed(str(error))
            further = (
                {"further_mistakes": [str(mistake)[:REASON_MAX] for mistake in errors[1:MISTAKES_MAX]]}
                if errors[1:]
                else {}
            )
            log.warning(
                "corefile not reloaded", reason=str(error), **further, mistakes=len(errors) or 1, answers="as before"
            )
        except Exception:  # a task's boundary: the server continues
            self._failed("a defect, see the log")
            log.exception("corefile not reloaded", answers="as before")
        else:
            server.reloads.append(Reload(time.time()))
            if server.clusters != followed and not server.is_synced:
                self.freezing = observed(self._freeze(), "freeze of listed objects")
            log.info("corefile reloaded", addresses=len(server.listened), sha512=corefile.sha512)

    def _failed(self, error: str) -> None:
        self.server.failed_reloads += 1
        self.server.reloads.append(Reload(time.time(), error[:REASON_MAX]))

    async def _freeze(self) -> None:
        while not self.server.is_synced:  # noqa: ASYNC110 - kinds are listed one by one, in several places
            await asyncio.sleep(LOOK_S)
        exempt_from_gc()
