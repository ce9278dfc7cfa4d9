"""The HTTP server of the Kubernetes API.

server = await server.start(api, RestConfig(port=0))
server.address   # ("127.0.0.1", 41233)
await server.close()
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import StreamReader, hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler

from kdns import logs
from kdns.aio.apiserver import access_reviews, nonresource
from kdns.aio.apiserver.authentication import READY_PATHS, RestConfig, check_config, check_request
from kdns.aio.apiserver.response import response_to
from kdns.aio.apiserver.verbs import Verbs
from kdns.aio.http.log import HttpLog
from kdns.controlplane.meta.errors import StatusError, bad_request, internal
from kdns.controlplane.server import representation, routes, subresources
from kdns.controlplane.server.api import Api
from kdns.controlplane.storage.watch import Subscription
from kdns.errors import ListenError
from kdns.net import join_host_port

log = logs.get(__name__)


@dataclass(slots=True)
class RestServer:
    """A listening server; `address` is the bound (host, port)."""

    address: tuple[str, int]
    _runner: web.ServerRunner
    _watches: dict[Subscription, None]

    @property
    def watching(self) -> int:
        """The number of open watches."""
        return len(self._watches)

    async def close(self) -> None:
        """Stop listening, end the watches, and finish the requests in flight."""
        for subscription in tuple(self._watches):
            subscription.close()
        await self._runner.cleanup()


async def _in_memory() -> None:
    """A store in memory has nothing to wait for."""


async def start(
    api: Api,
    config: RestConfig,
    durable: Callable[[], Awaitable[None]] = _in_memory,
    metrics: nonresource.Metrics | None = None,
) -> RestServer:
    """Listen. A write is answered after `durable()` has returned; `metrics` is served as /metrics.

    InputError for an address that needs authentication (`check_config`), ListenError for one that is in use.
    """
    check_config(config)
    watches: dict[Subscription, None] = {}
    verbs = Verbs(api, config, durable, watches)
    handler = _Handler(config, verbs, metrics)
    server = _BoundedServer(handler)
    handler.server = server
    runner = web.ServerRunner(server, shutdown_timeout=2.0)
    await runner.setup()
    site = web.TCPSite(runner, config.host, config.port, ssl_context=config.ssl_context, backlog=1024)
    try:
        await site.start()
    except OSError as error:
        await runner.cleanup()
        raise ListenError(join_host_port(config.host, config.port), os.strerror(error.errno or 0)) from error
    host, port = runner.addresses[0][:2]
    handler.address = join_host_port(host, port)
    return RestServer((host, port), runner, watches)


class _BoundedServer(web.Server):
    """Aborts a connection without a request after `idle_s`, and new ones beyond twice `connections_max`.

    Between `connections_max` and that, a request is answered with 429.
    """

    def __init__(self, handler: _Handler) -> None:
        self.config = handler.config
        self.transports: dict[RequestHandler, asyncio.Transport] = {}
        self.requested: set[RequestHandler] = set()
        super().__init__(
            handler,
            request_factory=handler.request,
            handler_cancellation=True,
            access_log=None,
            logger=HttpLog(),
            keepalive_timeout=self.config.idle_s,
        )

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Count the connection and start the timer of its first request."""
        super().connection_made(handler, transport)
        self.transports[handler] = transport
        if len(self.transports) > 2 * self.config.connections_max:
            transport.abort()
        else:
            asyncio.get_running_loop().call_later(self.config.idle_s, self._expect_request, handler)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Forget the connection."""
        self.transports.pop(handler, None)
        self.requested.discard(handler)
        super().connection_lost(handler, exc)

    def _expect_request(self, handler: RequestHandler) -> None:
        transport = self.transports.get(handler)
        if transport is not None and handler not in self.requested:
            transport.abort()


class _Handler:
    """Handles every request: authentication, then non-resource URLs, reviews, resources; an error becomes a Status."""

    def __init__(self, config: RestConfig, verbs: Verbs, metrics: nonresource.Metrics | None) -> None:
        self.config, self.verbs, self.metrics = config, verbs, metrics
        self.address = ""
        self.server: _BoundedServer | None = None

    def request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        """A request whose body is limited to `body_bytes_max`."""
        if self.server:
            self.server.requested.add(protocol)
        loop = asyncio.get_running_loop()
        limit = self.config.body_bytes_max
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=limit)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            self._admit(request)
            if request.path in READY_PATHS:
                await self.verbs.durable()
            response = nonresource.response_at(request, self.address, self.metrics)
            if response is not None:
                return response
            response = await access_reviews.review(request)
            if response is not None:
                return response
            subresources.refuse(request.path, self.verbs.api)
            return await self.verbs.run(request, routes.target(request.path))
        except StatusError as error:
            return _error_response(request, error)
        except ConnectionError:
            raise
        except RecursionError:  # only bodies nest, and they are decoded before anything is written
            return _error_response(request, bad_request("the body is nested too deeply"))
        except Exception:
            log.exception("request failed", method=request.method, path=request.path)
            return _error_response(request, internal("see the server's log"))

    def _admit(self, request: web.BaseRequest) -> None:
        if self.server and len(self.server.transports) > self.config.connections_max:
            raise StatusError(429, "TooManyRequests", "too many connections, try again later", {"retryAfterSeconds": 1})
        check_request(self.config, request.path, request.headers)


def _error_response(request: web.BaseRequest, error: StatusError) -> web.Response:
    response = response_to(request, representation.encoded(error.body()), status=error.code)
    if error.code == 401:
        response.headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
    if error.code == 429:
        response.headers[hdrs.RETRY_AFTER] = "1"
        response.force_close()
    return response
