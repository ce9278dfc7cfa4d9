"""/healthz and /livez of the node's dataplane, and the servers at Services' health check node ports."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import Any, Final

from aiohttp import web

from kdns.cluster.objects import Key, Node
from kdns.cluster.state import State
from kdns.errors import ListenError
from kdns.net import FAMILIES
from kdns.proxy.node.health import HealthCheck, health_checks, is_eligible
from kdns.proxy.node.io.events import EventRecorder
from kdns.proxy.sync.io.runner import SyncResult, SyncRunner
from kdns.runtime.connections import Connections
from kdns.runtime.http.server import HttpServer
from kdns.runtime.http.sites import ANY_PATH, start_site

RETRY_S: Final = 5.0
LASTING_S: Final = 30.0
"""How long a port cannot be listened on before a warning: a kube-proxy that kdns replaces has it until it ends."""
FAILED_TO_START: Final = "FailedToStartServiceHealthcheck"
WEIGHT_HEADER: Final = "X-Load-Balancing-Endpoint-Weight"


class ProxyHealth:
    """Whether the dataplane is current, and whether load balancers may send new connections to the node."""

    def __init__(self, sync_runner: SyncRunner, node: Callable[[], Node | None]) -> None:
        self._sync_runner, self._node = sync_runner, node
        self.healthz: Counter[int] = Counter()
        self.livez: Counter[int] = Counter()

    @property
    def is_current(self) -> bool:
        """Differs: before the first sync this is false. kube-proxy does not listen until then."""
        return self._sync_runner.established.is_set() and self.is_alive

    @property
    def is_alive(self) -> bool:
        """Whether no change has been pending for longer than two sync periods.

        True before the first sync: a restart does not bring the API server back.
        """
        pending_s = self._sync_runner.stats.oldest_pending_s
        return pending_s is None or time.monotonic() - pending_s < 2 * self._sync_runner.timing.sync_s

    async def answer_healthz(self, _request: web.BaseRequest) -> web.Response:
        """/healthz, which load balancers ask: 200 while the node should get new connections."""
        eligible = is_eligible(self._node())
        response = self._response(self.is_current, self.is_current and eligible, {"nodeEligible": eligible})
        self.healthz[response.status] += 1
        return response

    async def answer_livez(self, _request: web.BaseRequest) -> web.Response:
        """/livez, which the kubelet asks: 503 where a restart may help."""
        response = self._response(self.is_alive, self.is_alive, {})
        self.livez[response.status] += 1
        return response

    def _response(self, current: bool, healthy: bool, more: Mapping[str, Any]) -> web.Response:
        now = _timestamp(time.time())
        last = now if healthy else _timestamp(self._sync_runner.stats.last_sync_s)
        status = {family: {"lastUpdated": last, "healthy": current} for family in FAMILIES}
        body = {"lastUpdated": last, "currentTime": now, **more, "healthy": healthy, "status": status}
        return _json(body, 200 if healthy else 503)


class ServiceHealthServers:
    """HTTP servers at health check node ports: how many local endpoints a Service has on this node."""

    def __init__(
        self,
        state: State,
        node_name: str,
        health: ProxyHealth,
        events: EventRecorder,
        connections: Connections,
        *,
        lasting_s: float = LASTING_S,
    ) -> None:
        self._lasting_s = lasting_s
        self._state, self._node_name, self._health, self._events = state, node_name, health, events
        self._connections = connections
        self._by_service: dict[Key, tuple[HealthCheck, ...]] = {}
        self._checks: dict[tuple[str, int], HealthCheck] = {}
        self._sites: dict[tuple[str, int], HttpServer] = {}
        self._failed: dict[tuple[str, int], float] = {}
        """Since when a port cannot be listened on, in seconds of the monotonic clock; infinite after the warning."""
        self._changed = asyncio.Event()

    def synced(self, result: SyncResult) -> None:
        is_full = result.differences is None
        keys: Mapping[Key, object] = self._state.services if is_full else result.services
        checks = {key: own for key, own in self._by_service.items() if not is_full and key not in keys}
        checks |= {key: own for key in keys if (own := health_checks(self._state, self._node_name, key))}
        before, self._by_service = self._by_service, checks
        if not is_full and checks == before:
            return
        addresses = {f: result.plan.of(f).node_ports.listen_addresses(loopback=False) for f in FAMILIES}
        self._checks = {
            (address, check.port): check
            for own in checks.values()
            for check in own
            for address in addresses[check.family]
        }
        self._changed.set()

    async def run(self) -> None:
        """Opens and close servers until cancelled; what cannot be opened is retried every RETRY_S.

        A Service gets a Warning Event after LASTING_S of failures.
        """
        try:
            while True:
                await self._reconcile()
                try:
                    async with asyncio.timeout(RETRY_S if self._failed else None):
                        await self._changed.wait()
                except TimeoutError:
                    continue
                self._changed.clear()
        finally:
            await asyncio.gather(*(site.close() for site in self._sites.values()))

    async def _reconcile(self) -> None:
        unused = [self._sites.pop(at) for at in list(self._sites) if at not in self._checks]
        await asyncio.gather(*(site.close() for site in unused))
        self._failed = {at: since_s for at, since_s in self._failed.items() if at in self._checks}
        for at, check in list(self._checks.items()):
            if at in self._sites:
                continue
            try:
                self._sites[at] = await start_site(*at, {ANY_PATH: partial(self._answer, at=at)}, self._connections)
                self._failed.pop(at, None)
            except ListenError as error:
                if time.monotonic() - self._failed.setdefault(at, time.monotonic()) >= self._lasting_s:
                    self._failed[at] = inf
                    message = f"node {self._node_name}: {error}"
                    self._events.warn(*check.service, FAILED_TO_START, message)

    async def _answer(self, _request: web.BaseRequest, *, at: tuple[str, int]) -> web.Response:
        check = self._checks.get(at)
        if check is None:  # about to be closed
            return web.Response(status=503)
        namespace, name = check.service
        body = {
            "service": {"namespace": namespace, "name": name},
            "localEndpoints": check.local_endpoints,
            "serviceProxyHealthy": self._health.is_current,
        }
        response = _json(body, 200 if check.local_endpoints and self._health.is_current else 503)
        response.headers[WEIGHT_HEADER] = str(check.local_endpoints)
        return response


def _json(body: Mapping[str, Any], status: int) -> web.Response:
    return web.Response(
        text=json.dumps(body),
        status=status,
        content_type="application/json",
        headers={"X-Content-Type-Options": "nosniff"},
    )


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
