"""/health, /ready and /metrics: small HTTP sites, one for each address."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import aiohttp
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from kdns.aio.http.log import HttpLog
from kdns.aio.metrics import Histogram
from kdns.errors import InputError, ListenError
from kdns.net import HostPort, join_host_port

PROBE_BUCKETS_S: Final = tuple(0.00025 * 10**k for k in range(5))
PROBE_TIMEOUT_S: Final = 5.0

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.Response]]


def plain_page(page: Callable[[], tuple[int, str]]) -> Handler:
    """The handler of a page that is made of a status and a text."""

    async def answer(_request: web.Request) -> web.Response:
        status, text = page()
        return web.Response(text=text, status=status)

    return answer


def exposition(registry: CollectorRegistry) -> Handler:
    """The handler of /metrics: all metrics in the format that the scraper accepts."""

    async def metrics(request: web.Request) -> web.Response:
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


class Site:
    """An HTTP listener with some paths."""

    def __init__(self, runner: web.AppRunner) -> None:
        self._runner = runner

    @property
    def address(self) -> tuple[str, int]:
        """The bound address and port."""
        host, port = self._runner.addresses[0][:2]
        return str(host), int(port)

    async def close(self) -> None:
        """Finish the requests in flight, then close."""
        await self._runner.cleanup()


async def start_site(host: str, port: int, paths: dict[str, Handler]) -> Site:
    """A site on this address ("" is all addresses); ListenError where it cannot be bound."""
    app = web.Application()
    for path, handler in paths.items():
        app.router.add_get(path, handler)
    runner = web.AppRunner(app, access_log=None, logger=HttpLog(), shutdown_timeout=2)
    await runner.setup()
    try:
        await web.TCPSite(runner, host or None, port).start()
    except OSError as error:
        await runner.cleanup()
        number = error.errno or 0  # negative for a host name that does not resolve
        reason = os.strerror(number) if number > 0 else error.strerror or str(error)
        raise ListenError(join_host_port(host, port), reason) from error
    return Site(runner)


class Sites:
    """The pages of a process by address, and the listeners that serve them once they are started.

    A page that is added again takes the place of the one before, also in a listener that runs.
    """

    def __init__(self) -> None:
        self._pages: dict[HostPort, dict[str, Handler]] = {}
        self._sites: dict[HostPort, Site] = {}

    def add(self, address: HostPort, path: str, handler: Handler) -> None:
        """Serve a page; InputError where the listeners run and this page has not been among theirs."""
        if self._sites and path not in self._pages.get(address, {}):
            raise InputError(f"a new page {path} at {address}: wanted one that was there at the start")
        self._pages.setdefault(address, {})[path] = handler

    async def start(self) -> None:
        """Listen; ListenError for an address that cannot be had."""
        for address, pages in self._pages.items():
            handlers = {path: _current(pages, path) for path in pages}
            self._sites[address] = await start_site(address.host, address.port, handlers)

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Where each page is served, by its path."""
        return {path: site.address for address, site in self._sites.items() for path in self._pages[address]}

    async def close(self) -> None:
        """Finish what is being answered, then close."""
        for site in self._sites.values():
            await site.close()


def _current(pages: dict[str, Handler], path: str) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        return await pages[path](request)

    return answer
