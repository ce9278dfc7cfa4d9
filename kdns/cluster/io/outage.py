"""Outages and refusals of the API server: logged at their start, every report_s, and at their end.

The end of one resets the backoff of all reflectors.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus

from kdns import logs
from kdns.cluster.watch import Resource
from kdns.errors import ApiServerError

log = logs.get("kdns.reflector")

CREDENTIALS = "credentials that the server accepts: token, client certificate, exec plugin or service account"


@dataclass(slots=True)
class Outage:
    """Shared by the reflectors of one API server."""

    report_s: float = 60.0
    now_s: Callable[[], float] = time.monotonic
    lost_s: float | None = None
    reported_s: float = 0.0
    refused_s: dict[str, float] = field(default_factory=dict)
    _over: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self, backoff: Awaitable[None]) -> None:
        """Until `backoff` is over, or an outage or refusal ends.

        Differs: client-go's reflectors back off independently of each other.
        """
        tasks = asyncio.ensure_future(backoff), asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    def lost(self, server: str, reason: str, last_contact_s: float | None) -> None:
        now_s = self.now_s()
        stale_s = round(now_s - last_contact_s, 1) if last_contact_s is not None else None
        if self.lost_s is None:
            self.lost_s = self.reported_s = now_s
            log.warning("api server lost", server=server, reason=reason, stale_s=stale_s)
        elif now_s - self.reported_s >= self.report_s:
            self.reported_s = now_s
            log.warning("api server still unreachable", server=server, reason=reason, stale_s=stale_s)

    def refused(self, resource: Resource, error: ApiServerError) -> None:
        now_s = self.now_s()
        if now_s - self.refused_s.get(resource.plural, float("-inf")) < self.report_s:
            return
        self.refused_s[resource.plural] = now_s
        rule = f"a ClusterRole bound to this user, with the rule {resource.rbac_rule}"
        expected: dict[int, str] = {HTTPStatus.UNAUTHORIZED: CREDENTIALS, HTTPStatus.FORBIDDEN: rule}
        log.warning(
            "api server refuses",
            kind=resource.plural,
            status=error.status,
            reason=error.reason,
            expected=expected.get(error.status),
        )

    def back(self, resource: Resource) -> None:
        if self.lost_s is not None:
            log.info("api server back", after_s=round(self.now_s() - self.lost_s, 1))
            self.lost_s = None
            self._wake()
        if self.refused_s.pop(resource.plural, None) is not None:
            log.info("api server no longer refuses", kind=resource.plural)
            self._wake()

    def _wake(self) -> None:
        self._over.set()
        self._over = asyncio.Event()
