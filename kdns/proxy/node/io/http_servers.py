"""The HTTP servers of a node's dataplane: their addresses, paths and handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from aiohttp import web

from kdns import logs
from kdns.errors import ListenError
from kdns.proxy.node.io.health import ProxyHealth
from kdns.proxy.node.io.metrics import MetricSources, metrics
from kdns.proxy.settings.document import encoded
from kdns.proxy.settings.settings import Settings
from kdns.runtime.connections import Connections
from kdns.runtime.http.server import Handler
from kdns.runtime.http.sites import slis, start_site
from kdns.runtime.http.zpages import HealthChecks, zpages

CONFIGZ: Final = "kubeproxy.config.k8s.io"
RETRY_S: Final = 5.0

log = logs.get(__name__)


def http_servers(
    settings: Settings,
    flags: Mapping[str, str],
    health: ProxyHealth,
    sources: MetricSources,
    status: Mapping[str, Handler],
) -> dict[str, tuple[str, dict[str, Handler]]]:
    """By name: the address from the settings, "" for no server, and handlers by path. `flags` are for /flagz.

    `status` are the handlers of the status page, which are beside the metrics.

    /proxyMode is the mode at work, which may be a fallback; /configz shows the settings as configured.
    """
    checks = HealthChecks()
    metrics_paths: dict[str, Handler] = {
        "/metrics": metrics(sources),
        "/metrics/slis": slis(checks),
        "/healthz": checks.answer,
        "/healthz/ping": checks.answer,
        "/proxyMode": partial(_text, text=sources.mode.name),
        "/configz": partial(_configz, settings=settings),
        **status,
    }
    pages = zpages(flags, lambda: metrics_paths)
    gates = {"/flagz": "ComponentFlagz", "/statusz": "ComponentStatusz"}
    metrics_paths |= {path: page for path, page in pages.items() if settings.is_on(gates[path])}
    health_paths: dict[str, Handler] = {"/healthz": health.answer_healthz, "/livez": health.answer_livez}
    return {
        "healthz": (settings.healthz_bind_address, health_paths),
        "metrics": (settings.metrics_bind_address, metrics_paths),
    }


async def serve(host: str, port: int, paths: dict[str, Handler], connections: Connections, *, hard_fail: bool) -> None:
    """Serves until cancelled. An address that cannot be listened on is retried, or with `hard_fail` a ListenError."""
    is_logged = False
    while True:
        try:
            site = await start_site(host, port, paths, connections)
        except ListenError as error:
            if hard_fail:
                raise
            if not is_logged:
                log.warning("HTTP server not started yet", paths=sorted(paths), reason=str(error), retry_in_s=RETRY_S)
                is_logged = True
            await asyncio.sleep(RETRY_S)
            continue
        try:
            await asyncio.Event().wait()
        finally:
            await site.close()


async def _text(_request: web.BaseRequest, *, text: str) -> web.Response:
    return web.Response(text=text, headers={"X-Content-Type-Options": "nosniff"})


async def _configz(_request: web.BaseRequest, *, settings: Settings) -> web.Response:
    return web.json_response({CONFIGZ: encoded(settings)})
