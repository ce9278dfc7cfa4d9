"""The DNS server whole: a configuration to sockets, followed clusters, and the sites for health and metrics.

Every listening address has a server of its own with its own answers; the wildcard counts as one address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from kdns import logs
from kdns.aio.admin import Handler, HealthProbe, Site, exposition, health, readiness, start_site
from kdns.aio.clusters import Cluster, options_of, scope_of, source_of
from kdns.aio.dnsmetrics import Enabled, Registry
from kdns.aio.follow import Scope, follow
from kdns.aio.interfaces import (
    InterfaceAddress,
    addressed_sockets,
    bound_addresses,
    dns_sockets,
    interface_addresses,
    own_addresses,
    reachable,
)
from kdns.aio.querylog import QueryLog, ServerLog
from kdns.aio.source import Source
from kdns.aio.tcp import TcpListener, listen_tcp
from kdns.aio.udp import UdpListener
from kdns.aio.weights import Balance
from kdns.corefile.address import HostPort
from kdns.errors import CorefileError, InputError
from kdns.metrics import Requests
from kdns.plugins.cluster_zones import ClusterZones, fallthrough_labels
from kdns.plugins.places import Place, refuse_clashes
from kdns.plugins.registry import ServerConfig
from kdns.plugins.server import Block, Server

log = logs.get(__name__)

WILDCARD: Final = ("0.0.0.0", "::")
POLL_S: Final = 0.01


class DnsServer:
    """Starts what the configuration asks for; `start`, then `stop`."""

    def __init__(
        self, configs: tuple[ServerConfig, ...], *, dns_port: int = 53, default_source: Source | None = None
    ) -> None:
        self._configs = configs
        self._default_source = default_source
        self._dns_port = dns_port
        self._clusters: dict[tuple[Source, Scope], Cluster] = {}
        self._asks: dict[Source, ServerConfig] = {}
        self._servers: dict[Place, list[tuple[ServerConfig, Block]]] = {}
        self._listeners: list[UdpListener | TcpListener] = []
        self._observers: list[ServerLog] = []
        self._sites: list[Site] = []
        self._probe = HealthProbe() if any(config.health for config in configs) else None
        self._listening = False
        self._known: tuple[InterfaceAddress, ...] = ()
        self._tasks: list[asyncio.Task[None]] = []
        self._enabled: list[Enabled] = []
        self.servers: list[Server] = []
        self.requests: dict[str, list[Requests]] = {}
        self.addresses: list[tuple[str, int]] = []
        self.site_addresses: dict[str, tuple[str, int]] = {}

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """The followed clusters."""
        return tuple(self._clusters.values())

    @property
    def is_synced(self) -> bool:
        """Whether every cluster has been listed in full."""
        return all(cluster.is_synced for cluster in self.clusters)

    def unready(self) -> Iterable[str]:
        """The directives that cannot answer yet."""
        if not self.is_synced:
            return ("kubernetes",)
        return () if self._listening else ("listeners",)

    async def start(self) -> None:
        """Follow the clusters, then listen; a cluster that does not answer in time is answered for with SERVFAIL.

        Raises ListenError for an address that cannot be had, InputError for credentials or interfaces that cannot.
        """
        await self._build()
        self._tasks += [asyncio.create_task(self._follow(cluster)) for cluster in self.clusters]
        await self._start_sites()
        await self._wait_for_clusters()
        for (hosts, port), parts in self._servers.items():
            await self._listen(hosts, port, parts)
        self._listening = True

    async def stop(self) -> None:
        """Answer what has arrived, then close everything."""
        for listener in self._listeners:
            await listener.close()
        for observer in self._observers:
            observer.close()
        for site in self._sites:
            await site.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def lameduck_s(self) -> float:
        """How long a stopping server goes on answering, in seconds."""
        return max((config.health.lameduck_s for config in self._configs if config.health), default=0.0)

    async def _build(self) -> None:
        self._known = known = await interface_addresses()
        for config in self._configs:
            try:
                hosts = [h for bind in config.bind for h in bound_addresses(bind.hosts, bind.exclude, known)]
            except InputError as error:
                raise located(config, error) from error
            if config.bind and not hosts:
                raise CorefileError(config.path, config.line, "", "bind: `except` leaves no address to listen on")
            groups: list[tuple[str, ...]] = [(host,) for host in dict.fromkeys(hosts)] or [WILDCARD]
            ports = {address.port_or_default(self._dns_port) for address in config.addresses}
            balance = Balance(config.loadbalance) if config.loadbalance else None
            if balance and balance.is_followed:
                self._tasks.append(asyncio.create_task(balance.follow()))
            for group in groups:
                for port in ports:
                    zones = self._zones(config, own_addresses(group, known))
                    if zones and balance:
                        balance.add(zones)
                    for address in config.addresses:
                        if address.port_or_default(self._dns_port) == port:
                            block = Block(address.zone, zones, sees_every_query=bool(config.log))
                            self._servers.setdefault((group, port), []).append((config, block))
        refuse_clashes(self._servers)

    def _zones(self, config: ServerConfig, own: tuple[bytes, ...]) -> ClusterZones | None:
        directive = config.kubernetes
        if directive is None:
            return None
        source = source_of(directive)
        if self._default_source and not (source.kubeconfig or source.endpoint):
            source = self._default_source
        key = (source, scope_of(directive))
        cluster = self._clusters.setdefault(key, Cluster(*key))
        self._asks.setdefault(source, config)
        fallthrough = fallthrough_labels(directive.fallthrough)
        zones = ClusterZones(cluster.state, options_of(directive, own), fallthrough=fallthrough)
        cluster.zones.append(zones)
        return zones

    async def _follow(self, cluster: Cluster) -> None:
        try:
            await follow(cluster.source, cluster.state, cluster.changed, cluster.stats, scope=cluster.scope)
        except InputError as error:
            failure = located(self._asks[cluster.source], error)
            if self.addresses:  # until then, `start` raises it
                log.error("api server cannot be followed", error=str(failure))  # noqa: TRY400 - the text says it all
            raise failure from error

    async def _wait_for_clusters(self) -> None:
        patience_s = max((c.kubernetes.startup_timeout_s for c in self._configs if c.kubernetes), default=0.0)
        deadline_s = asyncio.get_running_loop().time() + patience_s
        while not self.is_synced and asyncio.get_running_loop().time() < deadline_s:
            for task in self._tasks:
                if task.done():
                    await task
            await asyncio.sleep(POLL_S)
        if not self.is_synced:
            log.warning("starting without the api server", answers="SERVFAIL until everything is listed")

    async def _listen(self, hosts: tuple[str, ...], port: int, parts: list[tuple[ServerConfig, Block]]) -> None:
        sockets = dns_sockets(hosts, port)
        port = sockets[0].port
        label = f"dns://:{port}" if hosts == WILDCARD else f"dns://{HostPort(hosts[0], port)}"
        stacktrace = any(config.errors and config.errors.stacktrace for config, _ in parts)
        server = Server(label, tuple(block for _, block in parts), stacktrace)
        observer = self._observer(server, hosts[0], parts)
        for pair in sockets:
            requests = Requests(zone=parts[0][1].zone if len(parts) == 1 else "")
            udp = UdpListener(pair.udp, server, requests, observer)
            self._listeners += [udp, await listen_tcp(pair.tcp, server, requests, observer)]
            if hosts == WILDCARD:
                closer = addressed_sockets(pair.udp, self._known)
                self._listeners += [UdpListener(sock, server, requests, observer) for sock in closer]
            self.requests.setdefault(server.label, []).append(requests)
            self.addresses.append(udp.address)
        self.servers.append(server)
        self._enabled += [Enabled(label, block.zone, config) for config, block in parts]

    def _observer(self, server: Server, local: str, parts: list[tuple[ServerConfig, Block]]) -> ServerLog | None:
        later = asyncio.get_running_loop().call_later
        wanted = {
            block.zone: QueryLog(config.log, config.errors, local, later)
            for config, block in parts
            if config.log or config.errors
        }
        if not wanted:
            return None
        self._observers.append(ServerLog(server, wanted))
        return self._observers[-1]

    async def _start_sites(self) -> None:
        sites: dict[HostPort, dict[str, Handler]] = {}
        names: dict[HostPort, list[str]] = {}

        def add(address: HostPort, path: str, handler: Handler) -> None:
            sites.setdefault(address, {})[path] = handler
            names.setdefault(address, []).append(path)

        for config in self._configs:
            if config.health:
                add(config.health.address, "/health", health)
            if config.ready:
                continuously = config.ready.monitor == "continuously"
                add(config.ready.address, "/ready", readiness(self.unready, continuously=continuously))
            if config.prometheus:
                registry = Registry(
                    self.servers,
                    self.requests,
                    self.clusters,
                    self._enabled,
                    self._probe,
                    runtime_metrics=config.prometheus.runtime_metrics,
                )
                add(config.prometheus.address, "/metrics", exposition(registry))
        for address, paths in sites.items():
            site = await start_site(address.host, address.port, paths)
            self._sites.append(site)
            self.site_addresses |= dict.fromkeys(names[address], site.address)
        if self._probe:
            own = reachable(*self.site_addresses["/health"])
            self._tasks.append(asyncio.create_task(self._probe.run(own)))


def located(config: ServerConfig, error: InputError) -> InputError:
    """The error with the server block that led to it."""
    return error if isinstance(error, CorefileError) else CorefileError(config.path, config.line, "", str(error))
