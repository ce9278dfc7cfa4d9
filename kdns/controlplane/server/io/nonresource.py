"""Non-resource URLs: discovery, OpenAPI, /version and /metrics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from aiohttp import web

import kdns
from kdns.controlplane.apimachinery.errors import method_not_allowed
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.catalogue import Catalogue
from kdns.controlplane.server import discovery, representation
from kdns.controlplane.server.io.response import object_response, response_to
from kdns.controlplane.server.openapi.documents import Documents, v2_document
from kdns.controlplane.server.representation import encoded
from kdns.controlplane.server.request import unknown_path
from kdns.runtime.process import platform

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


_PATHS = (
    *("/api", "/apis", "/healthz", "/livez", "/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/readyz"),
    "/version",
)

Metrics: TypeAlias = Callable[[str], web.Response]
"""The response of /metrics for an Accept header."""


def response_at(
    request: web.BaseRequest, documents: Documents, address: str, metrics: Metrics | None = None
) -> web.Response | None:
    """Returns the response for a non-resource URL; None for other paths. Raises 404 for unknown documents."""
    path = request.path.rstrip("/")
    parts = path.strip("/").split("/")
    make = _maker(request, documents, parts, address)
    if metrics and parts == ["metrics"]:
        make = partial(metrics, request.headers.get("Accept", ""))
    if make is None:
        return None
    if request.method not in {"GET", "HEAD"}:
        raise method_not_allowed()
    return make()


def _maker(
    request: web.BaseRequest, documents: Documents, parts: list[str], address: str
) -> Callable[[], web.Response] | None:
    match parts:
        case [""]:
            return lambda: _json(request, {"paths": list(_PATHS)})
        case ["version"]:
            return lambda: _json(request, discovery.version(kdns.__version__, platform()))
        case ["openapi", "v2"]:
            body, media_type = v2_document(request.headers.get("Accept", ""))
            return lambda: web.Response(body=body, headers={"Content-Type": media_type})
        case ["openapi", "v3", *rest]:
            return lambda: _openapi_v3(request, documents, "/".join(rest))
        case ["api" | "apis", *_]:
            return _discovery_maker(request, documents.kinds, parts, address)
        case _:
            return None


def _discovery_maker(
    request: web.BaseRequest, kinds: Catalogue, parts: list[str], address: str
) -> Callable[[], web.Response] | None:
    match parts:
        case ["api"]:
            return lambda: _discovery(request, kinds, discovery.core_versions(kinds, address), core=True)
        case ["apis"]:
            return lambda: _discovery(request, kinds, discovery.group_list(kinds), core=False)
        case ["api", version]:
            return lambda: _json(request, discovery.resource_list(kinds, "", version))
        case ["apis", group]:
            return lambda: _json(request, discovery.group(kinds, group))
        case ["apis", group, version]:
            return lambda: _json(request, discovery.resource_list(kinds, group, version))
        case _:
            return None


def _json(request: web.BaseRequest, value: Json | None) -> web.Response:
    if value is None:
        raise unknown_path()
    return object_response(request, value) if "kind" in value else response_to(request, encoded(value))


def _discovery(request: web.BaseRequest, kinds: Catalogue, plain: Json, *, core: bool) -> web.Response:
    if not representation.wants_aggregated_discovery(request.headers.get("Accept", "")):
        return _json(request, plain)
    response = response_to(request, encoded(discovery.aggregated(kinds, core=core)))
    response.headers["Content-Type"] = AGGREGATED
    response.headers["Vary"] = "Accept"
    return response


def _openapi_v3(request: web.BaseRequest, documents: Documents, key: str) -> web.Response:
    if not key:
        return _json(request, documents.v3_index())
    try:
        response = response_to(request, documents.v3_json(key))
        response.headers["ETag"] = f'"{documents.v3_hash(key)}"'
    except KeyError as error:
        raise unknown_path() from error
    return response
