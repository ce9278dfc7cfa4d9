"""Events that a node's dataplane writes about Services; where the API takes none, the log has them all the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Final

from kdns import logs
from kdns.aio.connection import Connection, RestStats
from kdns.aio.dataplane import Synced
from kdns.aio.source import Source
from kdns.cluster.objects import Key
from kdns.cluster.watching import Timing
from kdns.errors import ApiServerError, KubeconfigError

LEFT_OUT: Final = "LeftOutOfRules"
MOST_EVENTS: Final = 20

log = logs.get(__name__)


class Events:
    """Writes Events to one API, on a connection that is made for the first of them."""

    def __init__(self, source: Source, node_name: str, *, wall_s: Callable[[], float] = time.time) -> None:
        self._source, self._node_name, self._wall_s = source, node_name, wall_s
        self._connection: Connection | None = None
        self._open = AsyncExitStack()

    async def warn(self, namespace: str, service: str, reason: str, message: str) -> None:
        """A Warning about a Service."""
        log.warning("event", service=f"{namespace}/{service}", reason=reason, message=message)
        now_s = self._wall_s()
        now = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        about = {"kind": "Service", "apiVersion": "v1", "namespace": namespace, "name": service}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{service}.{int(now_s * 1e9):x}", "namespace": namespace},
            "involvedObject": about,
            "type": "Warning",
            "reason": reason,
            "message": message,
            "source": {"component": "kube-proxy", "host": self._node_name},
            "reportingComponent": "kube-proxy",
            "reportingInstance": self._node_name,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            connection = self._connection or await self._connected()
            await connection.post(f"/api/v1/namespaces/{namespace}/events", event)
        except (ApiServerError, KubeconfigError) as error:
            log.info("event not written", reason=str(error))

    async def close(self) -> None:
        """Close the connection."""
        await self._open.aclose()

    async def _connected(self) -> Connection:
        self._connection = await self._open.enter_async_context(Connection(self._source, RestStats(), Timing()))
        return self._connection


class Refusals:
    """Writes an Event for every Service that is left out of a node's rules; of many at once for the first ones."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._news: asyncio.Queue[tuple[Key, str]] = asyncio.Queue(MOST_EVENTS)

    def synced(self, news: Synced) -> None:
        """Note what is left out from now on."""
        for row in news.refused.items():
            if not self._news.full():
                self._news.put_nowait(row)

    async def run(self) -> None:
        """Write, for ever."""
        while True:
            (namespace, name), reason = await self._news.get()
            await self._events.warn(namespace, name, LEFT_OUT, f"the kernel refuses its rules: {reason}")
