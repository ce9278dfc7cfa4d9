"""HTTP/1.1 servers whose connections are bounded in number, in time without a request, and in memory."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler

from kdns.aio.connections import Connections, Listener
from kdns.aio.http.log import HttpLog
from kdns.errors import ListenError
from kdns.net import join_host_port

FIRST_REQUEST_S: Final = 10.0
"""How long a new connection may be without a whole request."""
IDLE_S: Final = 120.0
"""How long a connection may be idle between two requests."""
LINGER_S: Final = 2.0
"""How long the rest of a request is read that is answered already."""
READ_BUFFER_BYTES: Final = 16 * 1024
SHUTDOWN_S: Final = 2.0

Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class HttpServer(web.Server):
    """An HTTP server. A connection counts as idle while none of its requests is handled.

    A body arrives as it was sent: nothing is inflated. One of more than `body_bytes_max` cannot be read, and where that
    is 0, a request with a body is refused with 413.
    """

    def __init__(
        self,
        handler: Handler,
        connections: Connections,
        *,
        body_bytes_max: int = 0,
        idle_s: float = IDLE_S,
    ) -> None:
        self._handler, self._pool, self._body_bytes_max = handler, connections, body_bytes_max
        self._first_request_s = min(FIRST_REQUEST_S, idle_s)
        self._places: dict[RequestHandler, tuple[Connections, asyncio.Transport]] = {}
        self._waits: dict[RequestHandler, asyncio.TimerHandle] = {}
        self._listeners: list[Listener] = []
        super().__init__(
            self._counted,
            request_factory=self._request,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=idle_s,
            lingering_time=LINGER_S,
            logger=HttpLog(),
            read_bufsize=READ_BUFFER_BYTES,
        )

    @property
    def address(self) -> tuple[str, int]:
        """The bound address and port."""
        return self._listeners[0].address

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Listen on an address ("" is all addresses); ListenError where it cannot be bound.

        Under TLS, handshakes count as connections.
        """
        try:
            bound = await asyncio.get_running_loop().create_server(
                asyncio.Protocol, host or None, port, start_serving=False
            )
        except OSError as error:
            number = error.errno or 0  # negative for a host name that does not resolve
            reason = os.strerror(number) if number > 0 else error.strerror or str(error)
            raise ListenError(join_host_port(host, port), reason) from error
        sockets = [sock.dup() for sock in bound.sockets]  # asyncio binds them, but accepts without a bound
        bound.close()
        self._listeners = [Listener(sock, self, tls, self._pool if tls else None) for sock in sockets]

    async def close(self) -> None:
        """Stop listening, and finish the requests in flight."""
        while self._listeners:
            self._listeners.pop().close()
        await asyncio.sleep(0)
        self.pre_shutdown()
        await self.shutdown(SHUTDOWN_S)

    def move(self, request: web.BaseRequest, connections: Connections) -> bool:
        """Count the request's connection among others from now on; False where these are all taken and at work."""
        protocol = request.protocol
        before, transport = self._places.get(protocol, (connections, None))
        if transport is not None and before is not connections:
            if not connections.add(protocol, _address(transport), transport.abort):
                return False
            before.remove(protocol)
            connections.occupy(protocol)
            self._places[protocol] = connections, transport
        return True

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Count the connection and wait for its first request."""
        super().connection_made(handler, transport)
        if not self._pool.add(handler, _address(transport), transport.abort):
            transport.abort()
            return
        self._places[handler] = self._pool, transport
        self._waits[handler] = asyncio.get_running_loop().call_later(self._first_request_s, transport.abort)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Forget the connection."""
        if handler in self._places:
            self._places.pop(handler)[0].remove(handler)
            self._end_wait(handler)
        super().connection_lost(handler, exc)

    def _end_wait(self, handler: RequestHandler) -> None:
        if wait := self._waits.pop(handler, None):
            wait.cancel()

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        self._end_wait(protocol)
        loop = asyncio.get_running_loop()
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=self._body_bytes_max)

    async def _counted(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.body_exists and not self._body_bytes_max:
            refusal = web.Response(status=413, text="no body is read here\n")
            refusal.force_close()
            return refusal
        protocol = request.protocol
        if protocol in self._places:
            self._places[protocol][0].occupy(protocol)
        try:
            return await self._handler(request)
        finally:
            if protocol in self._places:
                self._places[protocol][0].touch(protocol)


def _address(transport: asyncio.Transport) -> str:
    """The client's address; "" for one that is gone already."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if peer else ""
