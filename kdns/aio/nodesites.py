"""What a node's dataplane serves over HTTP, and where."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from aiohttp import web

from kdns.aio.admin import Handler
from kdns.aio.nodehealth import NodeHealth
from kdns.aio.profiling import profiles
from kdns.aio.proxymetrics import Watched, metrics, slis
from kdns.aio.zpages import HealthChecks, zpages
from kdns.proxy.settings import Settings
from kdns.proxy.settings_file import encoded

CONFIGZ: Final = "kubeproxy.config.k8s.io"


def sites(
    settings: Settings, flags: Mapping[str, str], node_health: NodeHealth, watched: Watched
) -> dict[str, tuple[str, dict[str, Handler]]]:
    """By name: the address that the settings have, "" for nowhere, and handlers by path. `flags` are for /flagz."""
    checks = HealthChecks()
    inside: dict[str, Handler] = {
        "/metrics": metrics(watched),
        "/metrics/slis": slis(checks),
        "/healthz": checks.answer,
        "/healthz/ping": checks.answer,
        "/proxyMode": partial(_text, text=settings.mode),
        "/configz": partial(_configz, settings=settings),
    }
    pages = zpages(flags, lambda: inside)
    gates = {"/flagz": "ComponentFlagz", "/statusz": "ComponentStatusz"}
    inside |= {path: page for path, page in pages.items() if settings.feature_gates.get(gates[path], True)}
    if settings.enable_profiling:
        inside |= profiles()
    health: dict[str, Handler] = {"/healthz": node_health.answer_healthz, "/livez": node_health.answer_livez}
    return {"healthz": (settings.healthz_bind_address, health), "metrics": (settings.metrics_bind_address, inside)}


async def _text(_request: web.Request, *, text: str) -> web.Response:
    return web.Response(text=text, headers={"X-Content-Type-Options": "nosniff"})


async def _configz(_request: web.Request, *, settings: Settings) -> web.Response:
    return web.json_response({CONFIGZ: encoded(settings)})
