"""The HTTP server of the Kubernetes API.

server = await server.start(registry, RestConfig(port=0))
server.address   # ("127.0.0.1", 41233)
await server.close()
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from aiohttp import hdrs, web

from kdns import logs
from kdns.controlplane.apimachinery.errors import StatusError, bad_request, internal
from kdns.controlplane.server import subresources
from kdns.controlplane.server.access import NOBODY, User
from kdns.controlplane.server.io.authentication import RestConfig, check_config, user_of_request
from kdns.controlplane.server.io.nonresource import Metrics, NonResourceUrls
from kdns.controlplane.server.io.request import target
from kdns.controlplane.server.io.response import add_warnings, error_response
from kdns.controlplane.server.io.verbs import Verbs
from kdns.controlplane.server.openapi import Documents
from kdns.controlplane.server.registry import Registry
from kdns.controlplane.storage.store import Subscription
from kdns.net import join_host_port
from kdns.runtime.connections import ConnectionKind, Connections
from kdns.runtime.http.server import HttpServer, connection_of

log = logs.get(__name__)

_RESOURCE: Final = re.compile(r"/+(?:api|apis/[^/]*)/[^/]*/.*[^/]").match
"""Matches the paths of resources."""

_IMPERSONATION: Final = re.compile("impersonate-", re.IGNORECASE).match


@dataclass(slots=True)
class RestServer:
    """A listening server; `address` is the bound (host, port)."""

    address: tuple[str, int]
    _server: HttpServer
    _watches: dict[Subscription, None]

    @property
    def watching(self) -> int:
        return len(self._watches)

    async def close(self) -> None:
        for subscription in tuple(self._watches):
            subscription.close()
        await self._server.close()


async def _in_memory() -> None:
    """A store in memory writes nothing to disk."""


async def start(
    registry: Registry,
    config: RestConfig,
    durable: Callable[[], Awaitable[None]] = _in_memory,
    metrics: Metrics | None = None,
) -> RestServer:
    """Listens. A write is answered after `durable()` has returned; `metrics` is served as /metrics.

    Raises InputError for an address that needs authentication (`check_config`), ListenError for one that is in use.
    """
    check_config(config)
    watches: dict[Subscription, None] = {}
    handler = _Handler(config, Verbs(registry, config, durable, watches), metrics)
    await handler.server.listen(config.host, config.port, config.ssl_context)
    handler.pages.address = join_host_port(*handler.server.address)
    return RestServer(handler.server.address, handler.server, watches)


class _Handler:
    """Handles every request: authentication, then non-resource URLs, then resources; an error becomes a Status."""

    def __init__(self, config: RestConfig, verbs: Verbs, metrics: Metrics | None) -> None:
        self.config, self.verbs = config, verbs
        self.pages = NonResourceUrls(Documents(verbs.registry.kinds), verbs.durable, metrics)
        self.connections = Connections(ConnectionKind.API)
        self.server = HttpServer(
            self,
            Connections(ConnectionKind.UNAUTHENTICATED),
            body_bytes_max=config.body_bytes_max,
            idle_s=config.idle_s,
        )

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        deprecation = ""
        try:
            user = self._admit(request)
            if not _RESOURCE(request.path) and (page := await self.pages.response(request)):
                return page
            resource = target(
                request.path, self.verbs.registry.kinds, partial(subresources.refuse, self.verbs.registry)
            )
            deprecation = (resource.served_version or resource.kind).deprecation
            return await self.verbs.run(request, resource, user)
        except StatusError as error:
            response = _error_response(request, error)
            add_warnings(response, [deprecation] if deprecation else ())
            return response
        except ConnectionError:
            raise
        except RecursionError:  # only bodies nest, and they are decoded before anything is written
            return _error_response(request, bad_request("the body is nested too deeply"))
        except Exception:
            log.exception("request failed", method=request.method, path=request.path)
            return _error_response(request, internal("see the server's log"))

    def _admit(self, request: web.BaseRequest) -> User:
        """Authenticates the request and admits its connection. Requests to open paths need neither.

        Differs: impersonation is refused. Every user may do everything, so the response would be the same.
        """
        tls = request.transport.get_extra_info("ssl_object") if request.transport else None
        user = user_of_request(self.config, request.path, request.headers, tls, self.verbs.registry.now_s())
        if user is None:
            return NOBODY
        if not connection_of(request).admit(self.connections):
            raise StatusError(429, "TooManyRequests", "too many connections, try again later", {"retryAfterSeconds": 1})
        if any(map(_IMPERSONATION, request.headers)):
            raise bad_request("impersonation is not supported: send the request without --as and Impersonate- headers")
        return user


def _error_response(request: web.BaseRequest, error: StatusError) -> web.Response:
    response = error_response(request, error)
    if error.code == 401:
        response.headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
    if wait_s := (error.details or {}).get("retryAfterSeconds", 1 if error.code == 429 else 0):
        response.headers[hdrs.RETRY_AFTER] = str(wait_s)
    return response
