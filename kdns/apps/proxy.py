"""`kdns proxy`: the dataplane of a node, from settings to running tasks."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kdns import logs
from kdns.cluster.io.api_servers import SocketAddresses, api_servers, watch_api_servers
from kdns.cluster.io.informer import FollowStats, follow
from kdns.cluster.io.kubeconfig import server_url
from kdns.cluster.objects import Node
from kdns.cluster.source import NodeScope, Source
from kdns.cluster.state import Change, State
from kdns.cluster.watch import Timing
from kdns.errors import InputError, KdnsError
from kdns.net import Address, parse_port, split_host_port
from kdns.netlink.io.addresses import node_addresses, primary_addresses, watch_node_addresses
from kdns.proxy.node.io.conntrack_room import ConntrackRoom
from kdns.proxy.node.io.events import FALLBACK, EventRecorder
from kdns.proxy.node.io.health import ProxyHealth, ServiceHealthServers
from kdns.proxy.node.io.host_settings import apply_oom_score, apply_sysctls
from kdns.proxy.node.io.http_servers import http_servers, serve
from kdns.proxy.node.io.metrics import MetricSources
from kdns.proxy.plan.state import ProxyState
from kdns.proxy.settings.io.files import other_settings
from kdns.proxy.settings.plan_config import node_view, proxy_config
from kdns.proxy.settings.settings import ClientConnection, Settings
from kdns.proxy.status.io.site import ProxyStatus
from kdns.proxy.sync.io.conntrack import ConntrackReconciler
from kdns.proxy.sync.io.proxier import RunningMode, Runtime
from kdns.proxy.sync.io.runner import PlanInputs, SyncRunner
from kdns.proxy.sync.schedule import SyncTiming
from kdns.proxy.takeover.io.choice import Choice, choice
from kdns.proxy.takeover.io.modes import clean_ups, runtime
from kdns.proxy.takeover.io.takeover import Takeover
from kdns.runtime.connections import ConnectionKind, Connections
from kdns.runtime.process import gc_paused, trim_memory
from kdns.status.io.watched import Watched

POD_CIDRS_TIMEOUT_S: Final = 300.0
"""A node with detectLocalMode NodeCIDR may take so long to get its podCIDRs, as in kube-proxy."""
LOADING_S: Final = 30.0
"""The garbage collector is off at most this long, while the first objects are loaded."""

log = logs.get(__name__)


@dataclass(slots=True)
class NodeProxy:
    """A node's dataplane. If it `owns_host`, it sets the kernel's limits, and rules stay at the end."""

    settings: Settings
    source: Source
    owns_host: bool = True
    flags: Mapping[str, str] = field(default_factory=dict)
    state: State = field(default_factory=ProxyState)
    established: asyncio.Event = field(default_factory=asyncio.Event)
    _addresses: tuple[Address, ...] | None = None
    _api_servers: SocketAddresses = ()
    _last_node: Node | None = None
    _missing: str = ""
    chosen: Choice | None = None
    status: ProxyStatus | None = None
    _last_inputs: tuple[object, PlanInputs | None] = (None, None)

    @property
    def name(self) -> str:
        return self.settings.node_name or platform.node().strip().lower()

    @property
    def node(self) -> Node | None:
        return self.state.nodes.get(("", self.name))

    def plan_inputs(self) -> PlanInputs | None:
        """None while detectLocalMode waits for podCIDRs; a deleted Node stays in use."""
        node = self.node or self._last_node
        depends_on = node, tuple(self.state.service_cidrs.values()), self._addresses, self._api_servers
        if self._last_inputs[0] != depends_on or self._last_inputs[1] is None:
            self._last_node = node
            self._last_inputs = depends_on, self._plan_inputs(node)
        return self._last_inputs[1]

    def _plan_inputs(self, node: Node | None) -> PlanInputs | None:
        if self.settings.detect_local_mode == "NodeCIDR" and not (node and node.pod_cidrs):
            return None
        ranges = [cidr for service_cidr in self.state.service_cidrs.values() for cidr in service_cidr.spec.cidrs or ()]
        settings = self.chosen.settings if self.chosen else self.settings
        view = node_view(
            node,
            self.name,
            bind_address=settings.bind_address,
            addresses=self._addresses,
            defaults=primary_addresses(self._addresses or ()),
        )
        config = proxy_config(settings, node, sorted(ranges), self._api_servers)
        return view, replace(config, is_whole_cluster=not self.owns_host)

    async def run(self) -> None:
        """Raises ApplyError if the mode cannot work here."""
        chosen = self.chosen = await choice(self.settings, runtime)
        if chosen.reasons:
            names = {"mode": chosen.mode.name, "configured": self.settings.mode}
            log.warning("fallback to another mode", **names, reasons=chosen.reasons)
        if self.owns_host:
            apply_oom_score(self.settings.oom_score_adj)
        async with AsyncExitStack() as stack:
            takeover = await stack.enter_async_context(Takeover(clean_ups(), keep_rules=self.owns_host))
            mode = await takeover.start(chosen.runtime, chosen.settings)
            self._addresses, self._api_servers = await _addresses(), await api_servers(self.source)
            await self._run_tasks(mode, chosen, takeover, stack)

    async def _run_tasks(self, mode: RunningMode, chosen: Choice, takeover: Takeover, stack: AsyncExitStack) -> None:
        settings, scope = chosen.settings, NodeScope(node=self.name)
        periods = settings.section(chosen.mode.periods)
        sync_runner = SyncRunner(
            self.state,
            mode,
            self.plan_inputs,
            SyncTiming(periods.min_sync_period_s, periods.sync_period_s),
            kinds=frozenset(scope.kinds),
        )
        events, conntrack, stats = (
            EventRecorder(self.source, self.name),
            ConntrackReconciler(mode.udp_targets),
            FollowStats(),
        )
        health = ProxyHealth(sync_runner, lambda: self.node)
        connections = Connections(ConnectionKind.NODE_SITES)
        service_health = ServiceHealthServers(self.state, self.name, health, events, connections)
        sync_runner.subscribers += [conntrack.synced, service_health.synced, events.synced]
        sync_runner.on_rejected = events.rejected
        sync_runner.subscribers.append(lambda _: self.established.set())
        if chosen.fallback:
            events.warn_node(FALLBACK, chosen.fallback)
        sources = MetricSources(chosen.mode, self.settings.mode, mode.counters, sync_runner, health, stats, conntrack)
        stack.enter_context(mode.watch(sync_runner.foreign_change))

        def addressed(addresses: tuple[Address, ...]) -> None:
            self._addresses = addresses
            sync_runner.inputs_changed()

        def moved(servers: SocketAddresses) -> None:
            self._api_servers = servers
            sync_runner.inputs_changed()

        def changed(changes: list[Change]) -> None:
            self.log_missing()
            sync_runner.changed(changes)

        timing = Timing(page_objects=2000, verify_s=max(settings.config_sync_period_s, 60.0))
        coroutines = {
            "follow": follow(self.source, self.state, changed, stats, scope=scope, timing=timing),
            "sync runner": sync_runner.run(),
            "API servers": watch_api_servers(self.source, moved),
            "addresses": watch_node_addresses(addressed),
            "conntrack": conntrack.run(),
            "conntrack room": ConntrackRoom().run(),
            "service health": service_health.run(),
            "events": events.run(),
            "first sync": self._first_sync(sync_runner),
            "takeover": self._clean_up(takeover, settings, conntrack),
            **self._http_servers(health, sources, connections, stats),
        }
        await _together(coroutines)

    def log_missing(self) -> None:
        """Logs once which parts of this node's object are missing, after Nodes were listed."""
        if Node not in self.state.synced:
            return
        node, missing = self.node, ""
        if node is None:
            missing = "the Node itself; --hostname-override says which it is"
        elif self.settings.detect_local_mode == "NodeCIDR" and not node.pod_cidrs:
            missing = "its podCIDRs, for which detectLocalMode NodeCIDR waits"
        if missing and missing != self._missing:
            log.warning("Node incomplete", node=self.name, missing=missing)
        self._missing = missing

    async def _first_sync(self, sync_runner: SyncRunner) -> None:
        """The garbage collector is off meanwhile. Raises KdnsError if the node does not get podCIDRs in time."""
        waits = self.settings.detect_local_mode == "NodeCIDR"
        with gc_paused(), suppress(TimeoutError):
            async with asyncio.timeout(LOADING_S):
                await sync_runner.established.wait()
        try:
            async with asyncio.timeout(POD_CIDRS_TIMEOUT_S - LOADING_S if waits else None):
                await sync_runner.established.wait()
        except TimeoutError:
            if self.plan_inputs() is None:
                expected = f"expected spec.podCIDRs of Node {self.name}, for detectLocalMode NodeCIDR"
                raise KdnsError(f"timed out after {POD_CIDRS_TIMEOUT_S:g} s; {expected}") from None
        if self.owns_host:
            apply_sysctls(self.settings.conntrack)
        trim_memory()

    async def _clean_up(self, takeover: Takeover, settings: Settings, conntrack: ConntrackReconciler) -> None:
        """Removes earlier rules once the new rules exist, and the UDP flows of the earlier rules."""
        await self.established.wait()
        await takeover.clean_up(settings, conntrack.examine)
        await takeover.watch_kube_proxy(settings)

    def _http_servers(
        self, health: ProxyHealth, sources: MetricSources, connections: Connections, stats: FollowStats
    ) -> dict[str, Any]:
        """Only configured addresses are served; the status page is served with the metrics."""
        settings, hard_fail = self.settings, self.settings.bind_address_hard_fail
        status = self.status = ProxyStatus(self.name, Watched(self.source, self.state, stats), sources)
        servers = http_servers(settings, self.flags, health, sources, status.pages())
        coroutines = {
            name: serve(*listen_address(address), paths, connections, hard_fail=hard_fail)
            for name, (address, paths) in servers.items()
            if address
        }
        return coroutines | ({"status": status.run()} if settings.metrics_bind_address else {})


async def _together(coroutines: Mapping[str, Coroutine[Any, Any, None]]) -> None:
    """Runs tasks by name until one fails. Raises its KdnsError alone, not as a group."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for name, coroutine in coroutines.items():
                tasks.create_task(coroutine, name=name)
    except* KdnsError as failed:
        raise failed.exceptions[0] from None


def listen_address(text: str) -> tuple[str, int]:
    """Raises InputError for other text than 127.0.0.1:10249 or [::1]:10249."""
    host, port_text = split_host_port(text) or ("", "")
    port = parse_port(port_text)
    if port is None:
        raise InputError(f"{text!r} is not IP:port")
    return host, port


def api_source(settings: Settings, master: str = "") -> Source:
    """The kubeconfig's API, at `master` if that is set; without both, the Pod's own cluster.

    Raises InputError for a `master` that is not a URL. Differs: requests are limited only if the settings are not
    kube-proxy's defaults, 5 a second. kdns lists each kind once and then watches.
    """
    client, defaults = settings.client_connection, ClientConnection()
    master = server_url("--master", master) if master else ""
    is_limited = (client.qps, client.burst) != (defaults.qps, defaults.burst)
    limits = (client.qps, client.burst) if is_limited else (0.0, 0)
    if client.kubeconfig:
        return Source(client.kubeconfig, server=master, qps=limits[0], burst=limits[1])
    others = "--kubeconfig FILE or --master URL"
    return Source(endpoint=master, others=others, qps=limits[0], burst=limits[1])


async def _addresses() -> tuple[Address, ...] | None:
    try:
        return await node_addresses()
    except OSError as error:
        log.warning(
            "node's addresses not listed by the kernel: those of the Node object are used", reason=error.strerror
        )
        return None


async def supervise(
    read: Callable[[], Settings],
    start: Callable[[Settings], NodeProxy],
    stop: asyncio.Event,
    reload: asyncio.Event,
    *,
    file: Path | None,
    say: Callable[[str], None],
    every_s: float = 2.0,
    runtime_of: Callable[[str], Runtime] = runtime,
) -> bool:
    """Runs a node until `stop`, or until the settings change; `reload` reads the file at once.

    Returns whether the settings have changed, so that the program must start again. Differs: kube-proxy exits when its
    file changes, and starts with the new file, valid or not. Here a file with mistakes, or with a mode that cannot work
    here, is logged, and the settings stay.
    """
    settings = read()
    node = start(settings)
    ready = asyncio.create_task(_say_ready(node, say))
    ending = (
        asyncio.create_task(node.run()),
        asyncio.create_task(_next_settings(read, settings, file, every_s, reload, runtime_of)),
        asyncio.create_task(stop.wait()),
    )
    try:
        await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (*ending, ready):
            task.cancel()
        _, changed, _, _ = results = await asyncio.gather(*ending, ready, return_exceptions=True)
    for failed in results[:2]:
        if isinstance(failed, Exception):
            raise failed
    if not isinstance(changed, Settings):
        return False
    log.info("settings changed", file=str(file), mode=changed.mode)
    return True


async def _next_settings(
    read: Callable[[], Settings],
    settings: Settings,
    file: Path | None,
    every_s: float,
    reload: asyncio.Event,
    runtime_of: Callable[[str], Runtime],
) -> Settings:
    """Waits for other settings whose mode can work here."""
    while True:
        changed = await other_settings(read, settings, file, every_s, reload)
        try:
            await choice(changed, runtime_of)
        except KdnsError as error:
            log.warning("mode of the configuration file cannot work, settings unchanged", reason=str(error))
        else:
            return changed


async def _say_ready(node: NodeProxy, say: Callable[[str], None]) -> None:
    await node.established.wait()
    say("ready")
