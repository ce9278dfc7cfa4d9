"""Events about Services that a node's dataplane records through the API. The log has them in any case."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Final

from kdns import logs
from kdns.aio.dataplane.sync_runner import SyncResult
from kdns.aio.kube.connection import Connection, RestStats
from kdns.cluster.objects import Key
from kdns.cluster.source import Source
from kdns.cluster.watch import Timing
from kdns.errors import ApiServerError, KubeconfigError

LEFT_OUT: Final = "LeftOutOfRules"
MAX_QUEUED: Final = 20

log = logs.get(__name__)


class EventRecorder:
    """Records Events through one API, on a connection that is opened for the first of them."""

    def __init__(self, source: Source, node_name: str, *, wall_s: Callable[[], float] = time.time) -> None:
        self._source, self._node_name, self._wall_s = source, node_name, wall_s
        self._connection: Connection | None = None
        self._open = AsyncExitStack()

    async def warn(self, namespace: str, service: str, reason: str, message: str) -> None:
        """Record a Warning about a Service; an Event that cannot be written is logged and dropped."""
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


class RejectionEvents:
    """Records an Event for each Service that is left out of the rules; of many at once for the first `MAX_QUEUED`."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._queue: asyncio.Queue[tuple[Key, str]] = asyncio.Queue(MAX_QUEUED)

    def synced(self, result: SyncResult) -> None:
        """Queue the Services that are left out from now on."""
        for rejection in result.rejected.items():
            if not self._queue.full():
                self._queue.put_nowait(rejection)

    async def run(self) -> None:
        """Record what is queued, until cancelled."""
        while True:
            (namespace, name), reason = await self._queue.get()
            await self._events.warn(namespace, name, LEFT_OUT, f"the kernel refuses its rules: {reason}")
