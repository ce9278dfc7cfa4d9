"""/health, /ready and /metrics: small HTTP sites, one for each address."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

import aiohttp
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from kdns.aio.connections import Connections, Kind
from kdns.aio.http.server import Handler, HttpServer
from kdns.aio.metrics import Histogram
from kdns.errors import InputError
from kdns.net import HostPort

PROBE_BUCKETS_S: Final = tuple(0.00025 * 10**k for k in range(5))
PROBE_TIMEOUT_S: Final = 5.0

METHODS: Final = ("GET", "HEAD")
ANY_PATH: Final = "*"


def plain_page(page: Callable[[], tuple[int, str]]) -> Handler:
    """The handler of a page that is made of a status and a text."""

    async def answer(_request: web.BaseRequest) -> web.Response:
        status, text = page()
        return web.Response(text=text, status=status)

    return answer


def exposition(registry: CollectorRegistry) -> Handler:
    """The handler of /metrics: all metrics in the format that the scraper accepts."""
    turns = asyncio.Lock()

    async def metrics(request: web.BaseRequest) -> web.Response:
        async with turns:
            await asyncio.sleep(0)  # to write them takes milliseconds: others have their turn between two scrapes
            return scraped(registry, request.headers.get("Accept", ""))

    return metrics


def scraped(registry: CollectorRegistry, accept: str) -> web.Response:
    """A response with the current metrics."""
    encode, content_type = choose_encoder(accept)
    return web.Response(body=encode(registry), headers={"Content-Type": content_type})


class HealthProbe:
    """Requests an own page each second, which measures how late a busy process answers (CoreDNS plugin/health)."""

    def __init__(self) -> None:
        self.durations = Histogram(PROBE_BUCKETS_S)
        self.failures = 0

    async def run(self, own: HostPort, path: str) -> None:
        """Send requests until cancelled."""
        timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                started_s = time.perf_counter()
                try:
                    async with session.get(f"http://{own}{path}") as response:
                        await response.read()
                except (OSError, TimeoutError, aiohttp.ClientError):
                    self.failures += 1
                self.durations.add(time.perf_counter() - started_s)
                await asyncio.sleep(1.0)


async def start_site(host: str, port: int, paths: Mapping[str, Handler], connections: Connections) -> HttpServer:
    """A site on this address ("" is all addresses); ListenError where it cannot be bound.

    Its connections are counted among `connections`. `paths` are looked up at each request: they may change. The handler
    of ANY_PATH gets what has no path of its own.
    """

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        handler = paths.get(request.path) or paths.get(ANY_PATH)
        if handler is None:
            raise web.HTTPNotFound
        if request.method not in METHODS:
            raise web.HTTPMethodNotAllowed(request.method, METHODS)
        return await handler(request)

    server = HttpServer(answer, connections)
    await server.listen(host, port)
    return server


class Sites:
    """The pages of a process by address, and the listeners that serve them once they are started.

    A page that is added again takes the place of the one before, also in a listener that runs.
    """

    def __init__(self) -> None:
        self._pages: dict[HostPort, dict[str, Handler]] = {}
        self._sites: dict[HostPort, HttpServer] = {}
        self._connections = Connections(Kind.SITES)

    def add(self, address: HostPort, path: str, handler: Handler) -> None:
        """Serve a page; InputError where the listeners run and this page has not been among theirs."""
        if self._sites and path not in self._pages.get(address, {}):
            raise InputError(f"a new page {path} at {address}: wanted one that was there at the start")
        self._pages.setdefault(address, {})[path] = handler

    async def start(self) -> None:
        """Listen; ListenError for an address that cannot be had."""
        for address, pages in self._pages.items():
            self._sites[address] = await start_site(address.host, address.port, pages, self._connections)

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Where each page is served, by its path."""
        return {path: site.address for address, site in self._sites.items() for path in self._pages[address]}

    async def close(self) -> None:
        """Finish what is being answered, then close."""
        for site in self._sites.values():
            await site.close()
