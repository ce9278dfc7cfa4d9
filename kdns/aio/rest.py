"""The REST server: the Kubernetes API over HTTP, for kubectl and every client that speaks it.

server = await rest.start(api, RestConfig(port=0))
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
from kdns.aio import rest_content, rest_documents, rest_reviews
from kdns.aio.httplog import HttpLog
from kdns.aio.rest_guard import READY_PATHS, RestConfig, check_config, check_request
from kdns.aio.rest_verbs import Verbs
from kdns.controlplane import containers, render, routes
from kdns.controlplane.api import Api
from kdns.controlplane.status import StatusError, bad_request, internal
from kdns.controlplane.watch import Subscription
from kdns.errors import ListenError

log = logs.get(__name__)


@dataclass(slots=True)
class RestServer:
    """A listening server; `address` is (host, port) as bound."""

    address: tuple[str, int]
    _runner: web.ServerRunner
    _watches: dict[Subscription, None]

    @property
    def watching(self) -> int:
        """How many watches are open."""
        return len(self._watches)

    async def close(self) -> None:
        """Take no more connections, end the watches so that their clients resume elsewhere, finish what is begun."""
        for subscription in tuple(self._watches):
            subscription.close()
        await self._runner.cleanup()


async def _at_once() -> None:
    """In memory everything is as durable as it gets."""


async def start(
    api: Api,
    config: RestConfig,
    durable: Callable[[], Awaitable[None]] = _at_once,
    metrics: rest_documents.Metrics | None = None,
) -> RestServer:
    """Listen. A write is answered only after `durable()`; `metrics` are served as /metrics.

    InputError for an address that is unsafe as configured, ListenError for one that is taken.
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
        raise ListenError(f"{config.host}:{config.port}", os.strerror(error.errno or 0)) from error
    host, port = runner.addresses[0][:2]
    handler.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return RestServer((host, port), runner, watches)


class _BoundedServer(web.Server):
    """Drops who sends no whole request in time, and who comes when there are far too many to be told so."""

    def __init__(self, handler: _Handler) -> None:
        self.config = handler.config
        self.begun: set[RequestHandler] = set()
        super().__init__(
            handler,
            request_factory=handler.request,
            handler_cancellation=True,
            access_log=None,
            logger=HttpLog(),
            keepalive_timeout=self.config.idle_s,
        )

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Count the connection; it has `idle_s` to begin."""
        super().connection_made(handler, transport)
        if len(self._connections) > 2 * self.config.connections_max:
            transport.abort()
        else:
            asyncio.get_running_loop().call_later(self.config.idle_s, self._expect_request, handler)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Forget the connection."""
        self.begun.discard(handler)
        super().connection_lost(handler, exc)

    def _expect_request(self, handler: RequestHandler) -> None:
        transport = self._connections.get(handler)
        if transport is not None and handler not in self.begun:
            transport.abort()


class _Handler:
    """Every request: guard, route, verb; every refusal a Status."""

    def __init__(self, config: RestConfig, verbs: Verbs, metrics: rest_documents.Metrics | None) -> None:
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
        """A request whose body is bounded."""
        if self.server:
            self.server.begun.add(protocol)
        loop = asyncio.get_running_loop()
        limit = self.config.body_bytes_max
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=limit)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            self._admit(request)
            if request.path in READY_PATHS:
                await self.verbs.durable()
            document = rest_documents.document(request, self.address, self.metrics)
            if document is not None:
                return document
            review = await rest_reviews.review(request)
            if review is not None:
                return review
            containers.refuse(request.path, self.verbs.api)
            return await self.verbs.run(request, routes.target(request.path))
        except StatusError as error:
            return _refusal(request, error)
        except ConnectionError:
            raise
        except RecursionError:  # only bodies nest, and they are read before anything is written
            return _refusal(request, bad_request("the body is nested too deeply"))
        except Exception:
            log.exception("request failed", method=request.method, path=request.path)
            return _refusal(request, internal("see the server's log"))

    def _admit(self, request: web.BaseRequest) -> None:
        if self.server and len(self.server.connections) > self.config.connections_max:
            raise StatusError(429, "TooManyRequests", "too many connections, try again later", {"retryAfterSeconds": 1})
        check_request(self.config, request.path, request.headers)


def _refusal(request: web.BaseRequest, error: StatusError) -> web.Response:
    response = rest_content.answer(request, render.encoded(error.body()), status=error.code)
    if error.code == 401:
        response.headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
    if error.code == 429:
        response.headers[hdrs.RETRY_AFTER] = "1"
        response.force_close()
    return response
