"""The DNS server whole: a configuration to chains, followed clusters, listeners and HTTP pages.

Every listening address has a server of its own with its own answers; the wildcard counts as one address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from kdns.aio.dns.clusters import Cluster, Clusters
from kdns.aio.dns.interfaces import WILDCARD, reachable, usable_addresses
from kdns.aio.dns.listeners import Listeners
from kdns.aio.dns.metrics import Enabled, Registry
from kdns.aio.dns.request_metrics import Requests
from kdns.aio.dns.setup import BlockSetup, Page, Process
from kdns.aio.http.server import Handler
from kdns.aio.http.sites import HealthProbe, Sites, exposition
from kdns.aio.metrics import Counters, Gauges
from kdns.aio.tasks import observed
from kdns.cluster.source import Source
from kdns.errors import InputError
from kdns.net import join_host_port
from kdns.plugins.server import Server
from kdns.plugins.server_config import Place, ServerConfig, refuse_clashes


class DnsServer:
    """Starts what the configuration asks for; `start`, then `stop`."""

    def __init__(
        self, configs: tuple[ServerConfig, ...], *, dns_port: int = 53, default_source: Source | None = None
    ) -> None:
        self._configs = configs
        self._dns_port = dns_port
        self._clusters = Clusters(default_source)
        self._listeners = Listeners()
        self._sites = Sites()
        self._probe = HealthProbe()
        self._probing: asyncio.Task[None] | None = None
        self._gauges = Gauges()
        self._process = Process(self._clusters, self.unready, self._metrics_page)
        self._setups: list[BlockSetup] = []
        self._enabled: list[Enabled] = []
        self._is_listening = False
        self.servers: list[Server] = []

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """The followed clusters."""
        return self._clusters.followed

    @property
    def requests(self) -> dict[str, list[Requests]]:
        """What the listeners saw, by the label of their server."""
        return self._listeners.requests

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The addresses and ports that are listened on."""
        return self._listeners.addresses

    @property
    def site_addresses(self) -> dict[str, tuple[str, int]]:
        """Where each HTTP page is served, by its path."""
        return self._sites.addresses

    @property
    def is_synced(self) -> bool:
        """Whether every cluster has been listed in full."""
        return self._clusters.is_synced

    @property
    def lameduck_s(self) -> float:
        """How long a stopping server goes on answering, in seconds."""
        return max((setup.lameduck_s for setup in self._setups), default=0.0)

    def counters(self, name: str, text: str, labels: tuple[str, ...]) -> Counters:
        """A family of counters in the process's metrics; to be called before the start."""
        return self._process.counters.setdefault(name, Counters(text, labels))

    def unready(self) -> tuple[str, ...]:
        """The directives that cannot answer yet."""
        checks = (check for setup in self._setups for check in setup.readiness_checks)
        waiting = tuple(dict.fromkeys(name for name, is_ready in checks if not is_ready()))
        return waiting or (() if self._is_listening else ("listeners",))

    async def start(self) -> None:
        """Follow the clusters, then listen; a cluster that does not answer in time is answered for with SERVFAIL.

        Raises ListenError for an address that cannot be had, InputError for credentials or interfaces that cannot.
        """
        places = await self.build()
        self._clusters.follow()
        await self._sites.start()
        self._start_probe()
        await self._clusters.wait()
        for place, parts in places.items():
            blocks = tuple(setup.block(zone) for setup, zone in parts)
            server = await self._listeners.listen(place, blocks, self._process.interfaces)
            self.servers.append(server)
            self._attach(server, parts)
        for setup in self._setups:
            setup.start()
        self._is_listening = True

    async def build(self) -> dict[Place, list[tuple[BlockSetup, str]]]:
        """Build the chains of all blocks, and say which blocks answer where, each with one of its zones."""
        self._process.interfaces = await usable_addresses()
        setups, places = self._built(self._configs)
        self._use(setups)
        return places

    async def swap(self, configs: tuple[ServerConfig, ...]) -> None:
        """Answer as other server blocks say, on the sockets that are bound; the new clusters are listed first.

        Raises InputError where the blocks cannot be built or listen elsewhere; then everything stays as it was.
        """
        setups, places = self._built(configs)
        try:
            self._refuse_moves(setups, places)
            self._clusters.follow()
            await self._clusters.wait()
        except BaseException:
            self._abandon(setups)
            raise
        old, self._configs = self._setups, configs
        for setup in old:
            setup.release()
        self._use(setups)
        self._enabled.clear()
        for place, parts in places.items():
            self._attach(self._listeners.servers[place], parts)
            self._listeners.swap(place, tuple(setup.block(zone) for setup, zone in parts))
        for setup in setups:
            setup.start()
        self._clusters.drop_unused()
        for setup in old:
            await setup.stop()

    async def stop(self) -> None:
        """Answer what has arrived, then close everything."""
        await self._listeners.close()
        for setup in self._setups:
            await setup.stop()
        await self._sites.close()
        if self._probing:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)
        await self._clusters.stop()
        self._process.upstreams.close()

    def _built(
        self, configs: Iterable[ServerConfig]
    ) -> tuple[list[BlockSetup], dict[Place, list[tuple[BlockSetup, str]]]]:
        setups: list[BlockSetup] = []
        places: dict[Place, list[tuple[BlockSetup, str]]] = {}
        for config in configs:
            setup = BlockSetup(config, self._process)
            setups.append(setup)
            try:
                setup.build()
            except InputError as error:
                self._abandon(setups)
                raise setup.located(error) from error
            groups = [setup.hosts] if setup.hosts == WILDCARD else [(host,) for host in setup.hosts]
            for address in config.addresses:
                port = address.port_or_default(self._dns_port)
                for group in groups:
                    places.setdefault((group, port), []).append((setup, address.zone))
        try:
            refuse_clashes({place: [(setup.config, zone) for setup, zone in parts] for place, parts in places.items()})
        except InputError:
            self._abandon(setups)
            raise
        return setups, places

    def _abandon(self, setups: list[BlockSetup]) -> None:
        """Leave no trace of blocks that are not used."""
        for setup in setups:
            setup.abandon()
        self._clusters.drop_unused()

    def _use(self, setups: list[BlockSetup]) -> None:
        """The pages and metrics of the process are those of these blocks."""
        self._setups = setups
        self._gauges.clear()
        for name, counters in self._process.counters.items():
            self._gauges.add(name, counters.text, counters.labels, counters.samples, counter=True)
        for name, histograms in self._process.histograms.items():
            self._gauges.add_histogram(name, histograms.text, histograms.labels, histograms.samples)
        for setup in setups:
            for (address, path), handler in setup.pages.items():
                self._sites.add(address, path, handler)
            for family in setup.families:
                self._gauges.add(family.name, family.text, family.labels, family.samples, counter=family.counter)

    def _refuse_moves(self, setups: list[BlockSetup], places: Iterable[Place]) -> None:
        """InputError for blocks that listen at other addresses, or serve other pages, than those in use."""
        before = {*map(_dns_place, self._listeners.servers), *_http_places(self._setups)}
        after = {*map(_dns_place, places), *_http_places(setups)}
        if before != after:
            moves = [f"+{each}" for each in sorted(after - before)] + [f"-{each}" for each in sorted(before - after)]
            raise InputError(f"other listening addresses need a restart: {', '.join(moves)}")

    def _attach(self, server: Server, parts: list[tuple[BlockSetup, str]]) -> None:
        """The server answers with these blocks: their changes reach its table."""
        for setup, zone in parts:
            if server not in setup.servers:
                setup.servers.append(server)
            self._enabled.append(Enabled(server.label, zone, setup.config))

    def _metrics_page(self, runtime: bool) -> Handler:
        registry = Registry(
            self.servers,
            self.requests,
            lambda: self.clusters,
            self._enabled,
            lambda: self._probe if self._probed else None,
            self._gauges,
            runtime_metrics=runtime,
        )
        return exposition(registry)

    @property
    def _probed(self) -> Page | None:
        return next((setup.probed for setup in self._setups if setup.probed), None)

    def _start_probe(self) -> None:
        if self._probed:
            _, path = self._probed
            own = reachable(*self.site_addresses[path])
            self._probing = observed(self._probe.run(own, path), "health probe")


def _dns_place(place: Place) -> str:
    hosts, port = place
    return f"dns://:{port}" if hosts == WILDCARD else f"dns://{join_host_port(hosts[0], port)}"


def _http_places(setups: Iterable[BlockSetup]) -> Iterator[str]:
    return (f"http://{address}{path}" for setup in setups for address, path in setup.pages)
