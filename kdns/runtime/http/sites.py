"""/health, /ready and /metrics: small HTTP sites, one for each address."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, TypeAlias

import aiohttp
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from kdns.net import HostPort
from kdns.runtime.connections import ConnectionKind, Connections, shared_ports
from kdns.runtime.http.server import Handler, HttpServer
from kdns.runtime.http.zpages import HealthChecks
from kdns.runtime.metrics import COUNTER, Histogram, Metric, MetricFamilies

PROBE_BUCKETS_S: Final = tuple(0.00025 * 10**k for k in range(5))
PROBE_TIMEOUT_S: Final = 5.0

METHODS: Final = ("GET", "HEAD")
ANY_PATH: Final = "*"


def plain_page(page: Callable[[], tuple[int, str]]) -> Handler:
    async def answer(_request: web.BaseRequest) -> web.Response:
        status, text = page()
        return web.Response(text=text, status=status)

    return answer


def exposition(registry: CollectorRegistry) -> Handler:
    """The handler of /metrics, in the format that the scraper accepts."""
    turns = asyncio.Lock()

    async def metrics(request: web.BaseRequest) -> web.Response:
        async with turns:
            await asyncio.sleep(0)  # they take milliseconds: other work has its turn between two scrapes
            return scraped(registry, request.headers.get("Accept", ""))

    return metrics


def scraped(registry: CollectorRegistry, accept: str) -> web.Response:
    encode, content_type = choose_encoder(accept)
    return web.Response(body=encode(registry), headers={"Content-Type": content_type})


def slis(checks: HealthChecks) -> Handler:
    registry = CollectorRegistry()
    registry.register(sli_metrics(checks))
    return exposition(registry)


def sli_metrics(checks: HealthChecks) -> MetricFamilies:
    """In the form of k8s.io/component-base."""
    rows = MetricFamilies()
    text, by_type = "1 if the health check passed the last time.", ("name", "type")
    rows.add(Metric("kubernetes_healthcheck", text, by_type, checks.passes.items))
    text, by_status = "Results of health checks.", ("name", "status", "type")
    rows.add(Metric("kubernetes_healthchecks", text, by_status, checks.results.items, COUNTER))
    return rows


class HealthProbe:
    """Requests an own page each second, which measures how late a busy process answers (CoreDNS plugin/health)."""

    def __init__(self) -> None:
        self.durations = Histogram(PROBE_BUCKETS_S)
        self.failures = 0

    async def run(self, own: HostPort, path: str) -> None:
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


async def start_site(
    host: str, port: int, paths: Mapping[str, Handler], connections: Connections, *, is_shared: bool = False
) -> HttpServer:
    """`paths` may change; the handler of ANY_PATH has all others. Raises ListenError. "" is all addresses."""
    server = HttpServer(partial(answer_from, paths), connections)
    await server.listen(host, port, is_shared=is_shared)
    return server


async def answer_from(paths: Mapping[str, Handler], request: web.BaseRequest) -> web.StreamResponse:
    """Raises 404 for an unknown path, 405 for any method but METHODS."""
    handler = paths.get(request.path) or paths.get(ANY_PATH)
    if handler is None:
        raise web.HTTPNotFound
    if request.method not in METHODS:
        raise web.HTTPMethodNotAllowed(request.method, METHODS)
    return await handler(request)


Pages: TypeAlias = Mapping[HostPort, Mapping[str, Handler]]


class Sites:
    """The pages of a process by address, and the listeners that serve them."""

    def __init__(self) -> None:
        self._pages: dict[HostPort, dict[str, Handler]] = {}
        self._sites: dict[HostPort, HttpServer] = {}
        self._connections = Connections(ConnectionKind.SITES)

    async def bind(self, addresses: Collection[HostPort]) -> dict[HostPort, HttpServer]:
        """Listeners for new addresses, without pages yet; a leaving one may have the port too. Raises ListenError."""
        bound: dict[HostPort, HttpServer] = {}
        leaving = [site for address, site in self._sites.items() if address not in addresses]
        ports = {sock.getsockname()[1] for site in leaving for sock in site.sockets}
        with shared_ports(sock for site in leaving for sock in site.sockets):
            try:
                for address in dict.fromkeys(addresses):
                    if address not in self._sites:
                        pages: dict[str, Handler] = {}
                        bound[address] = await start_site(
                            address.host, address.port, pages, self._connections, is_shared=address.port in ports
                        )
                        self._pages[address] = pages
            except BaseException:
                await self.unbind(bound)
                raise
        return bound

    async def unbind(self, bound: Mapping[HostPort, HttpServer]) -> None:
        for address, site in bound.items():
            del self._pages[address]
            await site.close()

    def use(self, pages: Pages, bound: Mapping[HostPort, HttpServer]) -> list[HttpServer]:
        """Serves these pages from now on; returns the listeners that have none any more, to be closed."""
        self._sites |= bound
        for address, handlers in pages.items():
            self._pages[address].clear()
            self._pages[address].update(handlers)
        leaving = [address for address in self._sites if address not in pages]
        for address in leaving:
            self._pages.pop(address).clear()
        return [self._sites.pop(address) for address in leaving]

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        return {path: site.address for address, site in self._sites.items() for path in self._pages[address]}

    def address(self, of: HostPort) -> tuple[str, int] | None:
        """The bound address of one in a Corefile, whose port may be 0; None if it is not bound here."""
        site = self._sites.get(of)
        return site.address if site else None

    async def close(self) -> None:
        for site in self._sites.values():
            await site.close()
