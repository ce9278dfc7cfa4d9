"""The HTTP pages of a process that has no address for them: its parent serves them and relays each request.

Both talk HTTP over a Unix socket that the parent binds and the child inherits, so it outlives a child that is replaced.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Collection, Mapping
from typing import Final

import aiohttp
from aiohttp import hdrs, web

from kdns.net import HostPort
from kdns.runtime.http.server import Handler, HttpServer
from kdns.runtime.http.sites import Pages, Sites, answer_from

PAGE: Final = "Kdns-Page"
"""The request header that names the page's address: the same path may be served at several."""
OK: Final = 200
STATE: Final = "/state"
"""What the parent needs to know of the child; a page of no address."""
_NOT_PASSED_ON: Final = frozenset(
    {hdrs.CONTENT_LENGTH, hdrs.TRANSFER_ENCODING, hdrs.CONNECTION, hdrs.DATE, hdrs.SERVER}
)
_CREDENTIALS: Final = struct.Struct("=iii")
"""struct ucred: pid, uid, gid (unix(7))."""


class RelayedSites(Sites):
    """Pages over a Unix socket, for processes of the same user; `state` answers requests for STATE."""

    def __init__(self, fd: int, state: Handler) -> None:
        super().__init__()
        self._own = {STATE: state}
        self._by_name: dict[str, Mapping[str, Handler]] = {}
        self._server = HttpServer(self._answer, self._connections)
        self._server.listen_on(socket.socket(fileno=fd))

    async def bind(self, addresses: Collection[HostPort]) -> dict[HostPort, HttpServer]:
        del addresses
        return {}

    def use(self, pages: Pages, bound: Mapping[HostPort, HttpServer]) -> list[HttpServer]:
        del bound
        self._by_name = {str(address): handlers for address, handlers in pages.items()}
        return []

    async def close(self) -> None:
        await self._server.close()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        peer = request.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(peer)[1] != os.geteuid():
            raise web.HTTPForbidden
        page = request.headers.get(PAGE)
        return await answer_from(self._own if page is None else self._by_name.get(page, {}), request)


class Relay:
    """The parent's end. The socket's name is abstract (unix(7)): a container's file system may be read-only."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind("")
        self.socket.listen()
        connector = aiohttp.UnixConnector(self.socket.getsockname().decode(), force_close=True)
        self._session = aiohttp.ClientSession("http://worker", connector=connector, auto_decompress=False)

    async def get(
        self, path: str, page: HostPort | None = None, *, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> web.Response | None:
        """None if there is no response within `timeout_s`; requests wait while a new child starts."""
        headers = {**(headers or {}), **({PAGE: str(page)} if page else {})}
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.get(path, headers=headers, timeout=timeout, allow_redirects=False) as response:
                passed_on = {name: text for name, text in response.headers.items() if name not in _NOT_PASSED_ON}
                return web.Response(status=response.status, headers=passed_on, body=await response.read())
        except (OSError, TimeoutError, aiohttp.ClientError):
            return None

    async def close(self) -> None:
        await self._session.close()
        self.socket.close()
