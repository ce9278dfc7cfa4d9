"""`kdns proxy`: a node's dataplane, from settings to running tasks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kdns import logs
from kdns.aio import nftablesmode
from kdns.aio.addresses import own_addresses, watch_addresses
from kdns.aio.conntrack import FlowKeeper
from kdns.aio.dataplane import Dataplane, Situation, SyncTiming
from kdns.aio.follow import FollowStats, NodeScope, follow
from kdns.aio.hostsettings import apply_oom_score, apply_sysctls
from kdns.aio.loading import loading
from kdns.aio.modes import BACKENDS, Running
from kdns.aio.nftmonitor import TablesMonitor
from kdns.aio.nodeevents import Events, Refusals
from kdns.aio.nodehealth import NodeHealth, ServiceHealth, serve_for_ever
from kdns.aio.nodesites import sites
from kdns.aio.process import give_back
from kdns.aio.proxyconfigs import other_settings
from kdns.aio.proxymetrics import Watched
from kdns.aio.source import Source
from kdns.cluster.objects import Node
from kdns.cluster.state import AnyChange, State
from kdns.cluster.watching import Timing
from kdns.errors import InputError, KdnsError
from kdns.proxy.config import Address
from kdns.proxy.node import node_view, proxy_config
from kdns.proxy.settings import ClientConnection, Settings
from kdns.proxy.sparse import SparseState

POD_CIDRS_S: Final = 300.0
"""How long a node with detectLocalMode NodeCIDR may take to get its podCIDRs, as in kube-proxy."""
LOADING_S: Final = 30.0

log = logs.get(__name__)


@dataclass(slots=True)
class NodeProxy:
    """One node's dataplane with everything around it. `run` works until it is cancelled.

    `owns_host` says that limits of the kernel and of the process are its business too, and that its rules stay at the
    end; otherwise they are removed. `flags` are told to those who ask for /flagz.
    """

    settings: Settings
    source: Source
    owns_host: bool = True
    flags: Mapping[str, str] = field(default_factory=dict)
    state: State = field(default_factory=SparseState)
    established: asyncio.Event = field(default_factory=asyncio.Event)
    _addresses: tuple[Address, ...] | None = None
    _last_node: Node | None = None
    _missing: str = ""
    _known: tuple[object, Situation | None] = (None, None)

    @property
    def name(self) -> str:
        """The node's name."""
        return self.settings.node_name or os.uname().nodename.strip().lower()

    @property
    def node(self) -> Node | None:
        """The Node object, as long as there is one."""
        return self.state.nodes.get(("", self.name))

    def situation(self) -> Situation | None:
        """The node as it is now; None as long as its podCIDRs are wanted and not known.

        A Node that is deleted leaves everything as it was.
        """
        node = self.node or self._last_node
        seen = node, tuple(self.state.service_cidrs.values()), self._addresses
        if self._known[0] != seen or self._known[1] is None:
            self._last_node = node
            self._known = seen, self._situation(node)
        return self._known[1]

    def _situation(self, node: Node | None) -> Situation | None:
        if self.settings.detect_local_mode == "NodeCIDR" and not (node and node.pod_cidrs):
            return None
        ranges = [cidr for each in self.state.service_cidrs.values() for cidr in each.spec.cidrs or ()]
        view = node_view(node, self.name, bind_address=self.settings.bind_address, addresses=self._addresses)
        return view, proxy_config(self.settings, node, sorted(ranges))

    async def run(self) -> None:
        """Work. ApplyError where the mode cannot, InputError for settings that cannot be used."""
        settings = usable(self.settings)
        if self.owns_host:
            apply_oom_score(settings.oom_score_adj)
        async with AsyncExitStack() as leaving:
            running = await BACKENDS[settings.mode](settings)
            for undo in (running.close, None if self.owns_host else running.remove):
                if undo:
                    leaving.push_async_callback(undo)
            self._addresses = await _addresses()
            await self._work(running, leaving)

    async def _work(self, running: Running, leaving: AsyncExitStack) -> None:
        settings, part, scope = self.settings, self.settings.part[1], NodeScope(node=self.name)
        dataplane = Dataplane(
            self.state,
            running.backend,
            self.situation,
            SyncTiming(part.min_sync_period_s, part.sync_period_s),
            kinds=frozenset(scope.kinds),
        )
        events, flows, stats = Events(self.source, self.name), FlowKeeper(), FollowStats()
        leaving.push_async_callback(events.close)
        node_health = NodeHealth(dataplane, lambda: self.node)
        services = ServiceHealth(self.state, self.name, node_health, events)
        refusals = Refusals(events)
        dataplane.followers += [flows.synced, services.synced, refusals.synced, lambda _: self.established.set()]
        watched = Watched(dataplane, node_health, stats, flows.stats, running.counters)
        monitor = TablesMonitor(dataplane.distrust)
        leaving.callback(monitor.close)
        if running.has_rules:
            monitor.start()

        def addressed(addresses: tuple[Address, ...]) -> None:
            self._addresses = addresses
            dataplane.look()

        def changed(changes: list[AnyChange]) -> None:
            self.tell_missing()
            dataplane.changed(changes)

        timing = Timing(page_objects=2000, verify_s=max(settings.config_sync_period_s, 60.0))
        works = {
            "follow": follow(self.source, self.state, changed, stats, scope=scope, timing=timing),
            "dataplane": dataplane.run(),
            "addresses": watch_addresses(addressed),
            "flows": flows.run(),
            "service health": services.run(),
            "refusals": refusals.run(),
            "first rules": self._first(dataplane),
            **self._servers(node_health, watched),
        }
        try:
            async with asyncio.TaskGroup() as tasks:
                for name, work in works.items():
                    tasks.create_task(work, name=name)
        except* KdnsError as failed:
            raise failed.exceptions[0] from None

    def tell_missing(self) -> None:
        """Say in the log, once the Node is listed, what is not there of it."""
        if Node not in self.state.synced:
            return
        node, missing = self.node, ""
        if node is None:
            missing = "the Node itself; --hostname-override says which it is"
        elif self.settings.detect_local_mode == "NodeCIDR" and not node.pod_cidrs:
            missing = "its podCIDRs, for which detectLocalMode NodeCIDR waits"
        if missing and missing != self._missing:
            log.warning("something of the Node is missing", node=self.name, missing=missing)
        self._missing = missing

    async def _first(self, dataplane: Dataplane) -> None:
        """Load without the garbage collector, and give up on a node that never gets podCIDRs.

        Limits of connection tracking come after the rules, which make the kernel load it.
        """
        waits = self.settings.detect_local_mode == "NodeCIDR"
        with loading(), suppress(TimeoutError):
            async with asyncio.timeout(LOADING_S):
                await dataplane.established.wait()
        try:
            async with asyncio.timeout(POD_CIDRS_S - LOADING_S if waits else None):
                await dataplane.established.wait()
        except TimeoutError:
            if self.situation() is None:
                wanted = f"spec.podCIDRs of Node {self.name}, for detectLocalMode NodeCIDR"
                raise KdnsError(f"not there within {POD_CIDRS_S:g} s: {wanted}") from None
        if self.owns_host:
            apply_sysctls(self.settings.conntrack)
        give_back()

    def _servers(self, node_health: NodeHealth, watched: Watched) -> dict[str, Any]:
        settings = self.settings
        return {
            name: serve_for_ever(*host_port(address), paths, hard_fail=settings.bind_address_hard_fail)
            for name, (address, paths) in sites(settings, self.flags, node_health, watched).items()
            if address
        }


def usable(settings: Settings) -> Settings:
    """The settings; InputError where there is no such mode."""
    if settings.mode not in BACKENDS:
        raise InputError(f"mode {settings.mode} is not built yet; there are {', '.join(BACKENDS)}")
    return settings


def host_port(text: str) -> tuple[str, int]:
    """127.0.0.1:10249 or [::1]:10249, as the settings' check has let it pass."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def api_source(settings: Settings, master: str = "") -> Source:
    """Where the API is: the kubeconfig's cluster, at `master` if that is given; without both, the Pod's own.

    Differs: requests are limited only where the settings say other than kube-proxy's defaults, 5 a second. kdns asks
    for each kind once and then watches.
    """
    client, usual = settings.client_connection, ClientConnection()
    limits = (
        {} if (client.qps, client.burst) == (usual.qps, usual.burst) else {"qps": client.qps, "burst": client.burst}
    )
    if client.kubeconfig:
        return Source(client.kubeconfig, server=master, **limits)  # type: ignore[arg-type]
    return Source(endpoint=master, **limits)  # type: ignore[arg-type]


async def _addresses() -> tuple[Address, ...] | None:
    try:
        return await own_addresses()
    except OSError as error:
        log.warning("own addresses not known: the Node's count", reason=error.strerror)
        return None


async def clean_up() -> None:
    """Remove the rules of every mode; ApplyError where that is not allowed."""
    await nftablesmode.clean_up()


def initialise(settings: Settings) -> None:
    """Do what needs more rights than CAP_NET_ADMIN."""
    apply_sysctls(settings.conntrack)


async def supervise(
    read: Callable[[], Settings],
    start: Callable[[Settings], NodeProxy],
    stop: asyncio.Event,
    *,
    file: Path | None,
    say: Callable[[str], None],
    every_s: float = 2.0,
) -> None:
    """Run a node until `stop`; begin anew, with the rules in place, whenever the configuration file says otherwise.

    Differs: kube-proxy exits when its file changes, and whoever restarts it meets the new one, right or wrong. Here a
    file that cannot be used is told, and the settings before stay.
    """
    settings = read()
    while not stop.is_set():
        node = start(settings)
        tasks = {
            "node": asyncio.create_task(node.run()),
            "stop": asyncio.create_task(stop.wait()),
            "file": asyncio.create_task(other_settings(read, settings, file, every_s)),
            "said": asyncio.create_task(_said(node, say)),
        }
        ending = {tasks[name] for name in ("node", "stop", "file")}
        try:
            await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks.values():
                task.cancel()
            results = dict(zip(tasks, await asyncio.gather(*tasks.values(), return_exceptions=True), strict=True))
        for failed in (results["node"], results["file"]):
            if isinstance(failed, Exception):
                raise failed
        if isinstance(results["file"], Settings):
            settings = results["file"]
            log.info("settings changed", file=str(file), mode=settings.mode)


async def _said(node: NodeProxy, say: Callable[[str], None]) -> None:
    await node.established.wait()
    say("ready")
