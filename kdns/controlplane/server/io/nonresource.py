"""Non-resource URLs: discovery, OpenAPI, /version, /metrics, and the health checks /healthz, /livez and /readyz.

Differs: /livez does not check the storage, because a restart does not repair a disk.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from aiohttp import web

import kdns
from kdns.controlplane.apimachinery.errors import StatusError, method_not_allowed
from kdns.controlplane.server import discovery, representation
from kdns.controlplane.server.io.request import unknown_path
from kdns.controlplane.server.io.response import object_response, response_to
from kdns.controlplane.server.openapi import Documents, v2_document
from kdns.controlplane.server.representation import encoded
from kdns.runtime.http.sites import slis
from kdns.runtime.http.zpages import HealthChecks
from kdns.runtime.process import platform

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
CHECKS: Final[Mapping[str, tuple[str, ...]]] = {
    "healthz": ("ping", "storage"),
    "livez": ("ping",),
    "readyz": ("ping", "storage"),
}
_PATHS = (
    *("/api", "/apis", "/healthz", "/livez", "/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/readyz"),
    "/version",
)

Metrics: TypeAlias = Callable[[str], web.Response]
"""The response of /metrics for an Accept header."""


@dataclass(slots=True)
class NonResourceUrls:
    """The pages of one server. `durable` returns when all writes are on disk, or raises StatusError."""

    documents: Documents
    durable: Callable[[], Awaitable[None]]
    metrics: Metrics | None = None
    address: str = ""
    _checks: HealthChecks = field(default_factory=HealthChecks)

    async def response(self, request: web.BaseRequest) -> web.StreamResponse | None:
        """None for other paths. Raises 404 for unknown documents."""
        match request.path.strip("/").split("/"):
            case ["metrics", "slis"]:
                return await slis(self._checks)(request)
            case [endpoint] if endpoint in CHECKS:
                return await self._health(request, endpoint)
            case [endpoint, name] if endpoint in CHECKS and name in CHECKS[endpoint]:
                failure = await self._failure(endpoint, name)
                return _text(f"internal server error: {failure}\n", 500) if failure else _text("ok")
            case [endpoint, _, *_] if endpoint in CHECKS:
                return _text("404 page not found\n", 404)
            case parts:
                page = self._page(request, parts)
                if page and request.method not in {"GET", "HEAD"}:
                    raise method_not_allowed()
                return page

    def _page(self, request: web.BaseRequest, parts: list[str]) -> web.Response | None:
        match parts:
            case [""]:
                return response_to(request, encoded({"paths": list(_PATHS)}))
            case ["version"]:
                return response_to(request, encoded(discovery.version(kdns.__version__, platform())))
            case ["metrics"] if self.metrics:
                return self.metrics(request.headers.get("Accept", ""))
            case ["openapi", "v2"]:
                body, media_type = v2_document(request.headers.get("Accept", ""))
                return web.Response(body=body, headers={"Content-Type": media_type})
            case ["openapi", "v3"]:
                return response_to(request, encoded(self.documents.index()))
            case ["openapi", "v3", *names]:
                return self._openapi(request, "/".join(names))
            case ["api" | "apis", *names]:
                return self._discovery(request, parts[0], names)
        return None

    def _openapi(self, request: web.BaseRequest, key: str) -> web.Response:
        try:
            document = self.documents[key]
        except KeyError as error:
            raise unknown_path() from error
        response = response_to(request, document.encoded)
        response.headers["ETag"] = f'"{document.digest}"'
        return response

    def _discovery(self, request: web.BaseRequest, prefix: str, names: list[str]) -> web.Response | None:
        kinds, core, document = self.documents.kinds, prefix == "api", None
        match names:
            case []:
                if representation.wants_aggregated_discovery(request.headers.get("Accept", "")):
                    response = response_to(request, encoded(discovery.aggregated(kinds, core=core)))
                    response.headers["Content-Type"] = AGGREGATED
                    response.headers["Vary"] = "Accept"
                    return response
                document = discovery.core_versions(kinds, self.address) if core else discovery.group_list(kinds)
            case [name]:
                document = discovery.resource_list(kinds, "", name) if core else discovery.group(kinds, name)
            case [group, version] if not core:
                document = discovery.resource_list(kinds, group, version)
            case _:
                return None
        if document is None:
            raise unknown_path()
        return object_response(request, document)

    async def _health(self, request: web.BaseRequest, endpoint: str) -> web.Response:
        lines, failed = [], False
        excluded = set(request.query.getall("exclude", []))
        for name in CHECKS[endpoint]:
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
            elif failure := await self._failure(endpoint, name):
                lines.append(f"[-]{name} failed: {failure}")
                failed = True
            else:
                lines.append(f"[+]{name} ok")
        if unknown := sorted(excluded - {*CHECKS[endpoint]}):
            names = ",".join(f'"{name}"' for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
        if not (failed or "verbose" in request.query):
            return _text("ok")
        return _text(
            "\n".join([*lines, f"{endpoint} check {'failed' if failed else 'passed'}", ""]), 500 if failed else 200
        )

    async def _failure(self, endpoint: str, name: str) -> str:
        """Why a check fails; "" if it passes."""
        failure = ""
        if name == "storage":
            try:
                await self.durable()
            except StatusError as error:
                failure = error.message
        self._checks.add(name, endpoint, passes=not failure)
        return failure


def _text(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, headers={"X-Content-Type-Options": "nosniff"})
