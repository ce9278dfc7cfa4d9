"""HTTP/1.1 servers whose connections are bounded in number, in time without a request, and in memory.

A connection is new until the server admits it, which it does for a client that it trusts. A new one has one request.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from aiohttp import HttpVersion11, StreamReader, hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage

from kdns.errors import ListenError
from kdns.net import join_host_port
from kdns.runtime.connections import Connections, Listener, bind_failure
from kdns.runtime.http.log import HttpLog

FIRST_REQUEST_S: Final = 10.0
IDLE_S: Final = 120.0
LINGER_S: Final = 2.0
HEAD_BYTES_MAX: Final = 32 * 1024
"""The most bytes that a connection may send before its first answer, besides a body."""
READ_BUFFER_BYTES: Final = 16 * 1024
RECEIVE_BYTES: Final = 256 * 1024
"""What asyncio receives at a time: so much of a body may arrive before its request is admitted."""
SHUTDOWN_S: Final = 2.0

Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class HttpConnection(web.RequestHandler):
    """The connection of a client, which is idle while none of its requests is handled."""

    def __init__(self, server: HttpServer, connections: Connections, bytes_max: int, **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._pool, self._bytes_left = connections, bytes_max
        self._transport: asyncio.Transport
        self._deadline: asyncio.TimerHandle | None = None
        self.is_admitted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - asyncio gives stream servers no other kind
        super().connection_made(transport)
        self._transport = transport
        if self._pool.add(self, self._address, transport.abort):
            wait_s = min(FIRST_REQUEST_S, self.keepalive_timeout)
            self._deadline = asyncio.get_running_loop().call_later(wait_s, transport.abort)
        else:
            transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._pool.remove(self)
        self._end_wait()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.is_admitted:
            self._bytes_left -= len(data)
            if self._bytes_left < 0:
                self._transport.abort()
                return
        super().data_received(data)

    def admit(self, connections: Connections) -> bool:
        """Counts it among `connections`, with any number of requests from now on; False if those are all busy."""
        if not self.is_admitted:
            if not connections.add(self, self._address, self._transport.abort):
                return False
            self._pool.remove(self)
            self._pool, self.is_admitted = connections, True
            connections.occupy(self)
        return True

    def occupy(self) -> None:
        self._end_wait()
        self._pool.occupy(self)

    def release(self) -> None:
        self._pool.touch(self)

    def end(self, response: web.StreamResponse) -> None:
        response.force_close()
        self.close()

    def _end_wait(self) -> None:
        if self._deadline:
            self._deadline.cancel()

    @property
    def _address(self) -> str:
        peer = self._transport.get_extra_info("peername")
        return str(peer[0]) if peer else ""


class HttpServer(web.Server):
    """A new connection counts among `connections`. Bodies are not inflated, and refused if `body_bytes_max` is 0."""

    def __init__(
        self, handler: Handler, connections: Connections, *, body_bytes_max: int = 0, idle_s: float = IDLE_S
    ) -> None:
        super().__init__(self._answer, request_factory=self._request, handler_cancellation=True)
        self._handler, self._pool, self._body_bytes_max, self._idle_s = handler, connections, body_bytes_max, idle_s
        self._listeners: list[Listener] = []

    def __call__(self) -> HttpConnection:
        return HttpConnection(
            self,
            self._pool,
            HEAD_BYTES_MAX + (RECEIVE_BYTES if self._body_bytes_max else 0),
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=self._idle_s,
            lingering_time=LINGER_S,
            logger=HttpLog(),
            read_bufsize=READ_BUFFER_BYTES,
        )

    @property
    def address(self) -> tuple[str, int]:
        return self._listeners[0].address

    @property
    def sockets(self) -> list[socket.socket]:
        return [listener.socket for listener in self._listeners]

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None, *, is_shared: bool = False) -> None:
        """A `host` of "" is all addresses. `is_shared`: sockets have the port until they close. Raises ListenError."""
        try:
            bound = await asyncio.get_running_loop().create_server(
                asyncio.Protocol, host or None, port, start_serving=False, reuse_port=is_shared or None
            )
        except OSError as error:
            if error.errno is None:  # so asyncio says from CPython 3.13 on
                error = OSError(errno.EADDRNOTAVAIL, str(error))
            raise ListenError(join_host_port(host, port), bind_failure(error, port)) from error
        sockets = [sock.dup() for sock in bound.sockets]  # asyncio binds them, but accepts without a bound
        bound.close()
        self._listeners = [Listener(sock, self, tls, self._pool if tls else None) for sock in sockets]
        for sock in sockets if sys.platform != "win32" else ():  # listening takes the port once more
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)

    def listen_on(self, sock: socket.socket) -> None:
        self._listeners.append(Listener(sock, self))

    async def close(self) -> None:
        """Finishes the requests in flight."""
        while self._listeners:
            self._listeners.pop().close()
        await asyncio.sleep(0)
        self.pre_shutdown()
        await self.shutdown(SHUTDOWN_S)

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=self._body_bytes_max)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = connection_of(request)
        connection.occupy()
        try:
            _check_coding(request)
            if request.body_exists and not self._body_bytes_max:
                raise web.HTTPRequestEntityTooLarge(0, text="no body is read here\n")
            response = await self._handler(request)
        except web.HTTPException as refusal:
            if not connection.is_admitted or isinstance(refusal, web.HTTPNotImplemented):
                connection.end(refusal)
            raise
        else:
            if not connection.is_admitted:
                connection.end(response)
            return response
        finally:
            connection.release()


def connection_of(request: web.BaseRequest) -> HttpConnection:
    connection = request.protocol
    assert isinstance(connection, HttpConnection)  # noqa: S101 - the server makes no others
    return connection


def _check_coding(request: web.BaseRequest) -> None:
    """Any coding but chunks (RFC 9112 §6.1) is refused: a proxy may see the end of such a body elsewhere."""
    coding = request.headers.get(hdrs.TRANSFER_ENCODING)
    if coding is not None and (coding.strip().lower() != "chunked" or request.version < HttpVersion11):
        raise web.HTTPNotImplemented(text="of the transfer codings only chunked is supported, over HTTP/1.1\n")
