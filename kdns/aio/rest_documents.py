"""What the server answers beside resources: discovery, OpenAPI, version, health."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TypeAlias

from aiohttp import web

import kdns
from kdns.aio import rest_content
from kdns.controlplane import discovery, negotiate, openapi
from kdns.controlplane.kinds import Json
from kdns.controlplane.render import encoded
from kdns.controlplane.routes import unknown_path
from kdns.controlplane.status import StatusError

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


Metrics: TypeAlias = Callable[[str], web.Response]
"""Metrics in the format that an Accept header asks for."""


def document(request: web.BaseRequest, address: str, metrics: Metrics | None = None) -> web.Response | None:
    """The response for a path that is no resource; None when it may be one; 404 for unknown groups and documents."""
    path = request.path.rstrip("/")
    parts = path.strip("/").split("/")
    make = _maker(request, parts, address)
    if metrics and parts == ["metrics"]:
        make = partial(metrics, request.headers.get("Accept", ""))
    if make is None:
        return None
    if request.method not in {"GET", "HEAD"}:
        raise StatusError(
            405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {}
        )
    return make()


def _maker(request: web.BaseRequest, parts: list[str], address: str) -> Callable[[], web.Response] | None:
    match parts:
        case [""]:
            return lambda: _json(
                request, {"paths": ["/api", "/apis", "/healthz", "/metrics", "/openapi/v2", "/openapi/v3", "/version"]}
            )
        case ["healthz" | "livez" | "readyz" as check, *below]:
            told = f"[+]ping ok\n[+]storage ok\n{check} check passed\n"
            text = told if "verbose" in request.query and not below else "ok"
            return lambda: web.Response(text=text, content_type="text/plain")
        case ["version"]:
            return lambda: _json(request, discovery.version(kdns.__version__))
        case ["openapi", "v2"]:
            return lambda: _openapi_v2(request)
        case ["openapi", "v3", *rest]:
            return lambda: _openapi_v3(request, "/".join(rest))
        case ["api" | "apis", *_]:
            return _discovery_maker(request, parts, address)
        case _:
            return None


def _discovery_maker(request: web.BaseRequest, parts: list[str], address: str) -> Callable[[], web.Response] | None:
    match parts:
        case ["api"]:
            return lambda: _discovery(request, discovery.core_versions(address), core=True)
        case ["apis"]:
            return lambda: _discovery(request, discovery.group_list(), core=False)
        case ["api", version]:
            return lambda: _json(request, discovery.resource_list("", version))
        case ["apis", group]:
            return lambda: _json(request, discovery.group(group))
        case ["apis", group, version]:
            return lambda: _json(request, discovery.resource_list(group, version))
        case ["apis", "apiextensions.k8s.io", "v1", "customresourcedefinitions"] if "watch" not in request.query:
            return lambda: _json(request, discovery.custom_kinds())
        case _:
            return None


def _json(request: web.BaseRequest, value: Json | None) -> web.Response:
    if value is None:
        raise unknown_path()
    return rest_content.answer(request, encoded(value))


def _discovery(request: web.BaseRequest, plain: Json, *, core: bool) -> web.Response:
    if not negotiate.wants_aggregated_discovery(request.headers.get("Accept", "")):
        return _json(request, plain)
    response = rest_content.answer(request, encoded(discovery.aggregated(core=core)))
    response.headers["Content-Type"] = AGGREGATED
    response.headers["Vary"] = "Accept"
    return response


def _openapi_v2(request: web.BaseRequest) -> web.Response:
    ranges = negotiate.media_ranges(request.headers.get("Accept", ""))
    if ranges and ranges[0].media_type in openapi.V2_PROTOBUF_TYPES:
        # clients ask with an @ in the type, which their own parsers then refuse in an answer: the other spelling
        response = web.Response(body=openapi.openapi_v2_protobuf())
        response.headers["Content-Type"] = openapi.V2_PROTOBUF_TYPES[1]
        return response
    return rest_content.answer(request, _openapi_v2_bytes())


def _openapi_v3(request: web.BaseRequest, key: str) -> web.Response:
    if not key:
        return _json(request, openapi.openapi_v3_index())
    try:
        response = rest_content.answer(request, _openapi_v3_bytes(key))
        response.headers["ETag"] = f'"{openapi.openapi_v3_hash(key)}"'
    except KeyError as error:
        raise unknown_path() from error
    return response


@cache
def _openapi_v2_bytes() -> bytes:
    return encoded(openapi.openapi_v2())


@cache
def _openapi_v3_bytes(key: str) -> bytes:
    return encoded(openapi.openapi_v3(key))
