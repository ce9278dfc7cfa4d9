"""/healthz and /livez of the node's dataplane, and the servers of Services with a healthCheckNodePort."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from aiohttp import web

from kdns import logs
from kdns.aio.admin import Handler, Site, start_site
from kdns.aio.dataplane import Dataplane, Synced
from kdns.aio.nodeevents import Events
from kdns.cluster.objects import Key, Node
from kdns.cluster.state import State
from kdns.errors import ListenError
from kdns.proxy.config import FAMILIES
from kdns.proxy.health import CheckPlace, HealthCheck, check_addresses, health_checks, is_current, is_eligible
from kdns.proxy.plan import Plan

RETRY_S: Final = 5.0
FAILED: Final = "FailedToStartServiceHealthcheck"
WEIGHT: Final = "X-Load-Balancing-Endpoint-Weight"

log = logs.get(__name__)


class NodeHealth:
    """Answers whether the dataplane is current, and whether the node should get connections from outside."""

    def __init__(self, dataplane: Dataplane, node: Callable[[], Node | None]) -> None:
        self._dataplane, self._node = dataplane, node
        self.healthz: Counter[int] = Counter()
        self.livez: Counter[int] = Counter()

    @property
    def is_current(self) -> bool:
        """Whether the rules are there, and changes are applied in time."""
        return self._is_current(established=self._dataplane.established.is_set())

    @property
    def is_alive(self) -> bool:
        """As `is_current`; a node that waits for its API server lives."""
        return self._is_current(established=True)

    def _is_current(self, *, established: bool) -> bool:
        pending_s, sync_s = self._dataplane.stats.oldest_pending_s, self._dataplane.timing.sync_s
        return is_current(established=established, oldest_pending_s=pending_s, now_s=time.monotonic(), sync_s=sync_s)

    async def answer_healthz(self, _request: web.Request) -> web.Response:
        """What load balancers ask: 200 where new connections are welcome."""
        eligible = is_eligible(self._node())
        response = self._response(self.is_current, self.is_current and eligible, {"nodeEligible": eligible})
        self.healthz[response.status] += 1
        return response

    async def answer_livez(self, _request: web.Request) -> web.Response:
        """What the kubelet asks: 503 where a restart may help."""
        response = self._response(self.is_alive, self.is_alive, {})
        self.livez[response.status] += 1
        return response

    def _response(self, current: bool, good: bool, more: Mapping[str, Any]) -> web.Response:
        now = _written(time.time())
        last = now if good else _written(self._dataplane.stats.last_sync_s)
        status = {family: {"lastUpdated": last, "healthy": current} for family in FAMILIES}
        told = {"lastUpdated": last, "currentTime": now, **more, "healthy": good, "status": status}
        return _json(told, 200 if good else 503)


class ServiceHealth:
    """The servers that tell load balancers how many endpoints of a Service this node has."""

    def __init__(self, state: State, node_name: str, health: NodeHealth, events: Events) -> None:
        self._state, self._node_name, self._health, self._events = state, node_name, health, events
        self._plan: Plan | None = None
        self._places: dict[Key, Mapping[CheckPlace, HealthCheck]] = {}
        self._wanted: dict[tuple[str, int], HealthCheck] = {}
        self._sites: dict[tuple[str, int], Site] = {}
        self._failed: set[tuple[str, int]] = set()
        self._changed = asyncio.Event()

    def synced(self, news: Synced) -> None:
        """Follow the plan."""
        self._plan = news.plan
        if news.differences is None:
            self._places = {}
        found = health_checks(
            self._state, self._node_name, self._state.services if news.differences is None else news.services
        )
        before = dict(self._places)
        for key, places in found.items():
            if places:
                self._places[key] = places
            else:
                self._places.pop(key, None)
        if news.differences is None or before != self._places:
            self._follow(news.plan)

    async def run(self) -> None:
        """Open and close servers as the plan wants it; those that cannot be opened are tried again."""
        try:
            while True:
                await self._settle()
                try:
                    async with asyncio.timeout(RETRY_S if self._failed else None):
                        await self._changed.wait()
                except TimeoutError:
                    continue
                self._changed.clear()
        finally:
            for site in self._sites.values():
                await site.close()

    def _follow(self, plan: Plan) -> None:
        addresses = {family: check_addresses(plan.of(family)) for family in FAMILIES}
        self._wanted = {
            (address, place.port): check
            for places in self._places.values()
            for place, check in places.items()
            for address in addresses[place.family]
        }
        self._changed.set()

    async def _settle(self) -> None:
        for at in [at for at in self._sites if at not in self._wanted]:
            await self._sites.pop(at).close()
        self._failed &= self._wanted.keys()
        for at, check in list(self._wanted.items()):
            if at in self._sites:
                continue
            try:
                self._sites[at] = await start_site(*at, {"/{path:.*}": self._answer(at)})
                self._failed.discard(at)
            except ListenError as error:
                if at not in self._failed:
                    self._failed.add(at)
                    await self._events.warn(check.namespace, check.service, FAILED, f"node {self._node_name}: {error}")

    def _answer(self, at: tuple[str, int]) -> Handler:
        async def answer(_request: web.Request) -> web.Response:
            check = self._wanted.get(at)
            if check is None:  # about to be closed
                return web.Response(status=503)
            told = {
                "service": {"namespace": check.namespace, "name": check.service},
                "localEndpoints": check.local_endpoints,
                "serviceProxyHealthy": self._health.is_current,
            }
            response = _json(told, 200 if check.local_endpoints and self._health.is_current else 503)
            response.headers[WEIGHT] = str(check.local_endpoints)
            return response

        return answer


async def serve_for_ever(host: str, port: int, paths: dict[str, Handler], *, hard_fail: bool) -> None:
    """Serve until cancelled. An address that cannot be had is tried again, or ends it with ListenError."""
    is_told = False
    while True:
        try:
            site = await start_site(host, port, paths)
        except ListenError as error:
            if hard_fail:
                raise
            if not is_told:
                log.warning("not served yet", paths=sorted(paths), reason=str(error), retry_every_s=RETRY_S)
                is_told = True
            await asyncio.sleep(RETRY_S)
            continue
        try:
            await asyncio.Event().wait()
        finally:
            await site.close()


def _json(told: Mapping[str, Any], status: int) -> web.Response:
    return web.Response(
        text=json.dumps(told),
        status=status,
        content_type="application/json",
        headers={"X-Content-Type-Options": "nosniff"},
    )


def _written(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
