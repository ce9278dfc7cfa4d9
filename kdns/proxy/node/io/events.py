"""Events about Services and the node that its dataplane records through the API. The log has them in any case."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from cachetools import TTLCache

from kdns import logs
from kdns.cluster.io.connection import Connection, RestStats
from kdns.cluster.objects import Key
from kdns.cluster.source import Source
from kdns.cluster.watch import Timing
from kdns.errors import ApiServerError, KubeconfigError
from kdns.proxy.sync.io.runner import SyncResult

LEFT_OUT: Final = "LeftOutOfRules"
REFUSED: Final = "AddressRefused"
FALLBACK: Final = "ProxyModeFallback"
MESSAGE_BYTES: Final = 1024
"""The API's limit for the message of an Event."""
MAX_QUEUED: Final = 100
"""Events that wait for the API; while so many do, further ones are in the log only."""
MAX_LEFT_OUT: Final = 20
"""Services that get an Event when many are left out of the rules at once, or do not get an address: the first ones."""
SERVICE_EVENTS: Final = 25
"""Warnings about one Service until there were none for QUIET_S; further ones are dropped, as client-go does it."""
QUIET_S: Final = 300.0
MAX_SERVICES: Final = 4096
"""Services whose warnings are counted."""

log = logs.get(__name__)


class EventRecorder:
    """Records Events through one API, on a connection that is opened for the first of them.

    `run` sends them until it is cancelled: nobody who records one waits for the API.
    """

    def __init__(self, source: Source, node_name: str, *, wall_s: Callable[[], float] = time.time) -> None:
        self._source, self._node_name, self._wall_s = source, node_name, wall_s
        self._queue: asyncio.Queue[tuple[str, Mapping[str, object]]] = asyncio.Queue(MAX_QUEUED)
        self._recent: TTLCache[tuple[str, str], int] = TTLCache(MAX_SERVICES, QUIET_S, wall_s)

    def warn(self, namespace: str, service: str, reason: str, message: str) -> None:
        """Logs and record a Warning about a Service, unless there were too many; what cannot be written is dropped."""
        recent = self._recent.get((namespace, service), 0)
        if recent >= SERVICE_EVENTS:
            return
        self._recent[namespace, service] = recent + 1
        log.warning("event", service=f"{namespace}/{service}", reason=reason, message=message)
        about = {"kind": "Service", "apiVersion": "v1", "namespace": namespace, "name": service}
        self._record(namespace, about, reason, message)

    def warn_node(self, reason: str, message: str) -> None:
        """Records a Warning about the node, whose cause is in the log already."""
        about = {"kind": "Node", "apiVersion": "v1", "name": self._node_name, "uid": self._node_name}
        self._record("default", about, reason, message)

    def _record(self, namespace: str, about: Mapping[str, str], reason: str, message: str) -> None:
        now_s = self._wall_s()
        now = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{about['name']}.{int(now_s * 1e9):x}", "namespace": namespace},
            "involvedObject": about,
            "type": "Warning",
            "reason": reason,
            "message": message[:MESSAGE_BYTES],
            "source": {"component": "kube-proxy", "host": self._node_name},
            "reportingComponent": "kube-proxy",
            "reportingInstance": self._node_name,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._queue.put_nowait((namespace, event))
        except asyncio.QueueFull:
            log.info("event not written", reason=f"{MAX_QUEUED} others wait for the API")

    def rejected(self, services: Mapping[Key, str]) -> None:
        for (namespace, name), reason in islice(services.items(), MAX_LEFT_OUT):
            self.warn(namespace, name, LEFT_OUT, f"the kernel refuses its rules: {reason}")

    def synced(self, result: SyncResult) -> None:
        """Records which Services do not get an address that they name, and limits, from now on."""
        for ((namespace, name), front), reason in islice(result.refused.items(), MAX_LEFT_OUT):
            self.warn(namespace, name, REFUSED, f"this node does not serve {front} for it: {reason}")
        for ((namespace, name), text), event in islice(result.limits.items(), MAX_LEFT_OUT):
            self.warn(namespace, name, event, text)

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            connection: Connection | None = None
            while True:
                namespace, event = await self._queue.get()
                try:
                    if connection is None:
                        opened = Connection(self._source, RestStats(), Timing())
                        connection = await stack.enter_async_context(opened)
                    await connection.call("POST", f"/api/v1/namespaces/{namespace}/events", event)
                except (ApiServerError, KubeconfigError) as error:
                    log.info("event not written", reason=str(error))
