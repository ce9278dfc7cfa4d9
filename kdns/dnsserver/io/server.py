"""The DNS server: configuration → chains, watched clusters, listeners and HTTP pages.

Every listening address has its own server with its own answers; the wildcard is one address.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from math import inf
from typing import Final, NamedTuple, Protocol, TypeAlias

from kdns import logs
from kdns.cluster.io.cluster import Cluster
from kdns.cluster.io.clusters import Clusters
from kdns.cluster.source import Source
from kdns.dnsserver.io.interfaces import Sharing, reachable, usable_addresses
from kdns.dnsserver.io.listeners import Listeners, Listening
from kdns.dnsserver.io.metrics import Enabled, gauges, probe_metrics, registry
from kdns.dnsserver.io.request_metrics import listener_metrics, sent_metrics
from kdns.dnsserver.io.world import BlockWorld, SharedResources
from kdns.errors import InputError
from kdns.net import HostPort
from kdns.runtime.http.server import Handler, HttpServer
from kdns.runtime.http.sites import HealthProbe, Sites, exposition, plain_page
from kdns.runtime.metrics import COUNTER, Counters, Metric, MetricFamilies, Registry, Sample
from kdns.runtime.process import processors
from kdns.runtime.tasks import restarted
from kdns.serverblocks.block_options import BlockOptions, HealthPage, MetricsPage, Page, ReadyPage, StatusPage
from kdns.serverblocks.config import ListenAddress, ServerConfig, clashes, listen_addresses
from kdns.serverblocks.listener_options import listener_options
from kdns.upstream.io.metrics import gauges as upstream_gauges

log = logs.get(__name__)

Part: TypeAlias = tuple[BlockWorld, str]
"""A server block, and one of its zones."""


class Reload(NamedTuple):
    """A reload of the Corefile; `at_s` is Unix time, `error` is "" if it succeeded."""

    at_s: float
    error: str = ""


class StatusSite(Protocol):
    """The pages of the directive `status`, which outlive reloads."""

    def pages(self, server: DnsServer) -> Mapping[str, Handler]: ...

    async def run(self, server: DnsServer) -> None: ...


MAX_RELOADS: Final = 10
"""The most reloads that are remembered."""
HEALTH_PATH: Final = "/health"
READY_PATH: Final = "/ready"
METRICS_PATH: Final = "/metrics"
RETIRING: Final = "the server retires"


class DnsServer:
    """Starts the servers of a configuration; `start`, then `stop`."""

    def __init__(
        self,
        configs: tuple[ServerConfig, ...],
        *,
        dns_port: int = 53,
        default_source: Source | None = None,
        sha512: str = "",
        status: Callable[[], StatusSite] | None = None,
        sharing: Sharing = Sharing.NONE,
    ) -> None:
        self._configs = configs
        self.sha512 = sha512
        self.failed_reloads = 0
        self.reloads: deque[Reload] = deque(maxlen=MAX_RELOADS)
        """The last reloads, oldest first."""
        self._status = lru_cache(1)(status) if status else None
        self._gathering: asyncio.Task[None] | None = None
        self._dns_port = dns_port
        self._clusters = Clusters(default_source)
        self._listeners = Listeners(sharing)
        self.servers, self.requests = self._listeners.servers, self._listeners.requests
        self.sampling, self.generations = self._listeners.clients.sampling, self._listeners.generations
        self.sites = Sites()
        """The HTTP pages; may be replaced before the start."""
        self._probe = HealthProbe()
        self._probing: asyncio.Task[None] | None = None
        self._shared = SharedResources(self._clusters)
        self._worlds: list[BlockWorld] = []
        self.enabled: list[Enabled] = []
        self.is_listening = False
        self._is_retiring = False

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        return self._clusters.followed

    @property
    def reload_every_s(self) -> tuple[float, float]:
        return reload_every_s(world.options for world in self._worlds)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return self._listeners.addresses

    @property
    def listened(self) -> list[tuple[str, str, int]]:
        listeners = self._listeners.listening.items()
        return [(at.scheme, *address) for at, listening in listeners for address in listening.addresses]

    def address_with(self, directive: str) -> tuple[str, int]:
        """The first unencrypted address of a server block with this directive, or else any address."""
        labels = {enabled.server for enabled in self.enabled if directive in enabled.config.directives}
        for at, listening in self._listeners.listening.items():
            if at.scheme == "dns" and listening.server.label in labels:
                return listening.addresses[0]
        return self.addresses[0]

    @property
    def site_addresses(self) -> dict[str, tuple[str, int]]:
        return self.sites.addresses

    @property
    def is_synced(self) -> bool:
        return self._clusters.is_synced

    @property
    def lameduck_s(self) -> float:
        return max((page.lameduck_s for page in self._health_pages), default=0.0)

    def counters(self, name: str, text: str, labels: tuple[str, ...]) -> Counters:
        return self._shared.counters.setdefault(name, Counters(name, text, labels))

    def unready(self) -> tuple[str, ...]:
        """Directives that are not ready, the listeners, or RETIRING."""
        if self._is_retiring:
            return (RETIRING,)
        checks = (check for world in self._worlds for check in world.readiness_checks)
        waiting = tuple(dict.fromkeys(name for name, is_ready in checks if not is_ready()))
        return waiting or (() if self.is_listening else ("listeners",))

    async def start(self) -> None:
        """Lists the clusters, then listens; a cluster that is not listed in time answers SERVFAIL.

        Raises ListenError for an address that cannot be bound, InputError for unusable credentials, certificates or
        interfaces.
        """
        configs, self._configs = self._configs, ()
        await self.swap(configs, self.sha512)

    async def swap(self, configs: tuple[ServerConfig, ...], sha512: str = "") -> None:
        """Replaces the server blocks; new clusters are listed first. `sha512` is the hash of the Corefile.

        Addresses in both configurations keep their sockets. Raises InputError if the blocks cannot be built, and
        ListenError for an address that cannot be bound; then nothing changes. Pending queries are finished by the old
        blocks. At the start, HTTP pages such as /health are served while the clusters are listed.
        """
        old = self._worlds
        worlds, addresses = await self.build(configs)
        new_sites: dict[HostPort, HttpServer] = {}
        try:
            self._clusters.follow()
            await asyncio.gather(*(world.prepare_all() for world in worlds))
            pages = pages_of((world.options for world in worlds), self._handlers)
            if not self.is_listening:
                self._worlds = worlds
                self.sites.use(pages, await self.sites.bind(pages))
                self._start_probe()
            await self._clusters.wait()
            new_sites = await self.sites.bind(pages)
            options = {
                address: listener_options(world.options.listener for world, _ in parts)
                for address, parts in addresses.items()
            }
            bound = self._listeners.bind(options, self._shared.interfaces)
        except BaseException:
            await self.sites.unbind(new_sites)
            self._abandon(worlds)
            raise
        self.sha512 = sha512
        for world in old:
            world.release()
        self._worlds = worlds
        left_sites = self.sites.use(pages, new_sites)
        self._listen(addresses, bound)
        for world in worlds:
            world.start()
        self.is_listening = True
        self._start_probe()
        self._start_gathering()
        self._clusters.drop_unused()
        await self._listeners.leave(address for address in tuple(self._listeners.listening) if address not in addresses)
        await asyncio.gather(*(site.close() for site in left_sites))
        for world in old:
            await world.stop()

    def retire(self) -> None:
        """Makes /ready 503; queries are answered until `stop`.

        Differs: CoreDNS's /ready stays 200 during `lameduck`. Nodes then keep sending UDP flows to an ending Pod, and
        lose their queries when it is gone.
        """
        self._is_retiring = True

    async def stop(self) -> None:
        await self._listeners.close()
        for world in self._worlds:
            await world.stop()
        await self.sites.close()
        for task in (self._probing, self._gathering):
            if task:
                task.cancel()
        await self._clusters.stop()
        self._shared.upstreams.close()

    async def build(self, configs: Iterable[ServerConfig]) -> tuple[list[BlockWorld], dict[ListenAddress, list[Part]]]:
        """Builds the chains of all blocks; returns them, and for each address its blocks with one of their zones."""
        self._shared.interfaces = await usable_addresses()
        worlds: list[BlockWorld] = []
        for config in configs:
            world = BlockWorld(config, self._shared)
            worlds.append(world)
            try:
                world.build()
            except InputError as error:
                self._abandon(worlds)
                raise world.located(error) from error
        listening = [(world.config, world.hosts) for world in worlds]
        for clash in clashes(listening, self._dns_port):
            self._abandon(worlds)
            raise clash
        addresses = listen_addresses(listening, self._dns_port)
        return worlds, {
            address: [(worlds[number], zone) for number, zone in parts] for address, parts in addresses.items()
        }

    def _abandon(self, worlds: list[BlockWorld]) -> None:
        for world in worlds:
            world.abandon()
        self._clusters.drop_unused()

    def _listen(self, addresses: Mapping[ListenAddress, list[Part]], bound: Mapping[ListenAddress, Listening]) -> None:
        self.enabled.clear()
        for address, parts in addresses.items():
            blocks = tuple(world.block(zone) for world, zone in parts)
            server = self._listeners.listen(address, bound[address], blocks)
            for world, zone in parts:
                if server not in world.servers:
                    world.servers.append(server)
                self.enabled.append(Enabled(server.label, zone, world.chain.view_name, world.config))

    def _handlers(self, page: Page) -> dict[str, Handler]:
        match page:
            case HealthPage():
                return {HEALTH_PATH: plain_page(lambda: (200, "OK"))}
            case ReadyPage():
                return {READY_PATH: plain_page(readiness(self.unready, continuously=page.continuously))}
            case MetricsPage():
                return {METRICS_PATH: exposition(self.metrics(runtime=page.runtime))}
            case StatusPage():
                return dict(self._status().pages(self)) if self._status else {}

    def _start_gathering(self) -> None:
        has_page = any(isinstance(page, StatusPage) for world in self._worlds for page in world.options.pages)
        if has_page and self._status and not self._gathering:
            status = self._status()
            self._gathering = restarted(lambda: status.run(self), "status")
        elif not has_page and self._gathering:
            self._gathering.cancel()
            self._gathering = None

    def metrics(self, *, runtime: bool = False) -> Registry:
        metrics = MetricFamilies(
            lambda: sent_metrics(self.servers),
            lambda: listener_metrics(self.requests),
            lambda: probe_metrics(self._probe) if self._probing else (),
            self._shared.metrics,
            lambda: (metric for world in self._worlds for metric in world.metrics),
        )
        name, text = "coredns_reload_failed", "Reloads of the Corefile that failed."
        metrics.add(Metric(name, text, (), lambda: [Sample((), self.failed_reloads)], COUNTER))
        name, text = "coredns_reload_version_info", "The hash of the Corefile in use; the value is 1."
        version = ("hash", "value")
        metrics.add(Metric(name, text, version, lambda: [Sample(("sha512", self.sha512), 1)] * bool(self.sha512)))
        collectors = (
            metrics,
            gauges(lambda: self.clusters, self.enabled, self.servers),
            upstream_gauges(self._shared.upstreams),
        )
        return registry(*collectors, runtime_metrics=runtime)

    @property
    def _health_pages(self) -> list[HealthPage]:
        pages = (page for world in self._worlds for page in world.options.pages)
        return [page for page in pages if isinstance(page, HealthPage)]

    def _start_probe(self) -> None:
        """Starts, stops or moves the requests to the process's own /health."""
        if self._probing:
            self._probing.cancel()
        probed = next((page.address for page in self._health_pages), None)
        bound = probed and self.sites.address(probed)
        own = reachable(*bound) if bound else None
        self._probing = restarted(partial(self._probe.run, own, HEALTH_PATH), "health probe") if own else None


def pages_of(
    blocks: Iterable[BlockOptions], handlers: Callable[[Page], Mapping[str, Handler]]
) -> dict[HostPort, dict[str, Handler]]:
    pages: dict[HostPort, dict[str, Handler]] = {}
    for options in blocks:
        for page in options.pages:
            pages.setdefault(page.address, {}).update(handlers(page))
    return pages


def reload_every_s(blocks: Iterable[BlockOptions]) -> tuple[float, float]:
    """Interval and jitter of checks of the Corefile; 0 for never."""
    settings = [options.reload_s for options in blocks if options.reload_s is not None]
    return settings[-1] if settings else (0.0, 0.0)


def number_of_processes(configs: Iterable[ServerConfig], default: int) -> int:
    """The largest configured number, at most one for each CPU; elsewhere than on Linux 1."""
    configured = max((config.options.processes or default for config in configs), default=default)
    most = processors() if sys.platform == "linux" else 1
    if most < configured < inf:
        log.warning("fewer processes than configured", configured=configured, processors=most)
    return int(min(configured, most))


def readiness(unready: Callable[[], tuple[str, ...]], *, continuously: bool) -> Callable[[], tuple[int, str]]:
    was_ready = False

    def ready() -> tuple[int, str]:
        nonlocal was_ready
        waiting = unready()
        if was_ready and not continuously and waiting != (RETIRING,):
            waiting = ()
        was_ready = not waiting
        return (503, "\n".join(waiting)) if waiting else (200, "OK")

    return ready
