"""/health, /ready and /metrics: small HTTP sites, one for each address."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias

import aiohttp
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from kdns.aio.httplog import HttpLog
from kdns.corefile.address import HostPort
from kdns.errors import ListenError
from kdns.metrics import Histogram

PROBE_BUCKETS_S: Final = tuple(0.00025 * 10**k for k in range(5))
PROBE_TIMEOUT_S: Final = 5.0

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.Response]]


async def health(_request: web.Request) -> web.Response:
    """The process lives."""
    return web.Response(text="OK")


def readiness(unready: Callable[[], Iterable[str]], *, continuously: bool) -> Handler:
    """200, or 503 with the names of what is not ready; what was ready once stays so unless asked `continuously`."""
    was_ready = False

    async def ready(_request: web.Request) -> web.Response:
        nonlocal was_ready
        waiting = () if was_ready and not continuously else tuple(unready())
        was_ready = not waiting
        return web.Response(text="\n".join(waiting) or "OK", status=503 if waiting else 200)

    return ready


def exposition(registry: CollectorRegistry) -> Handler:
    """All metrics in the format the scraper accepts."""

    async def metrics(request: web.Request) -> web.Response:
        return scraped(registry, request.headers.get("Accept", ""))

    return metrics


def scraped(registry: CollectorRegistry, accept: str) -> web.Response:
    """What the metrics are now."""
    encode, content_type = choose_encoder(accept)
    return web.Response(body=encode(registry), headers={"Content-Type": content_type})


class HealthProbe:
    """Asks the own /health once a second: how long a process this busy takes to answer (CoreDNS's plugin/health)."""

    def __init__(self) -> None:
        self.durations = Histogram(PROBE_BUCKETS_S)
        self.failures = 0

    async def run(self, own: HostPort) -> None:
        """Ask there until cancelled."""
        timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                started_s = time.perf_counter()
                try:
                    async with session.get(f"http://{own}/health") as response:
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
        """Finish what is being answered, then close."""
        await self._runner.cleanup()


async def start_site(host: str, port: int, paths: dict[str, Handler]) -> Site:
    """A site on this address ("" means all); ListenError where it cannot be had."""
    app = web.Application()
    for path, handler in paths.items():
        app.router.add_get(path, handler)
    runner = web.AppRunner(app, access_log=None, logger=HttpLog(), shutdown_timeout=2)
    await runner.setup()
    try:
        await web.TCPSite(runner, host or None, port).start()
    except OSError as error:
        await runner.cleanup()
        number = error.errno or 0  # below 0 for a name that is not found
        reason = os.strerror(number) if number > 0 else error.strerror or str(error)
        raise ListenError(str(HostPort(host, port)), reason) from error
    return Site(runner)
