"""The watched clusters: an API, its State, and the listeners to its changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final

from kdns import logs
from kdns.cluster.io.informer import FollowStats, follow
from kdns.cluster.io.snapshots import SnapshotKeeper
from kdns.cluster.objects import EndpointSlice, Object, Service
from kdns.cluster.snapshot import identity
from kdns.cluster.source import ClusterSpec, Source
from kdns.cluster.state import Change, OnChange, State
from kdns.cluster.watch import RESOURCES
from kdns.errors import InputError
from kdns.runtime.metrics import Histogram
from kdns.runtime.tasks import restarted

log = logs.get(__name__)

PROGRAMMING_BUCKETS_S: Final = tuple(0.001 * 2**k for k in range(20))
POLL_S: Final = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Listener:
    """A server block that uses a cluster; `error_at` locates an error in the block's configuration."""

    changed: OnChange
    error_at: Callable[[InputError], InputError] = lambda error: error
    startup_timeout_s: float = 0.0


@dataclass(slots=True, eq=False)
class Cluster:
    """One watched API; `programming` is the SLI "DNS programming latency" by kind. It outlives reloads."""

    spec: ClusterSpec
    state: State = field(default_factory=State)
    stats: FollowStats = field(default_factory=FollowStats)
    listeners: list[Listener] = field(default_factory=list)
    programming: dict[str, Histogram] = field(default_factory=dict)
    noticed: asyncio.Event = field(default_factory=asyncio.Event)
    keeper: SnapshotKeeper | None = field(init=False)

    def __post_init__(self) -> None:
        self.keeper = SnapshotKeeper(self, self.spec.snapshot) if self.spec.snapshot else None

    @property
    def kinds(self) -> tuple[type[Object], ...]:
        return self.spec.scope.kinds

    @property
    def identity(self) -> str:
        return identity(self.spec.source, self.spec.scope)

    @property
    def is_synced(self) -> bool:
        """Whether all kinds were listed once, or are from a snapshot."""
        return set(self.kinds) <= self.state.synced

    @property
    def is_connected(self) -> bool:
        """Whether the watches of all kinds that are not optional are connected."""
        required = [stats for kind, stats in self.stats.kinds.items() if not RESOURCES[kind].is_optional]
        return bool(required) and all(stats.connected for stats in required)

    def changed(self, changes: list[Change]) -> None:
        """Passes the changes to all listeners.

        If the clock went back, each change is a second later than the one before, because SOA serials never go back.
        """
        now_s, state = time.time(), self.state
        state.changed_s = now_s if now_s >= state.changed_s else state.changed_s + 1
        for listener in self.listeners:
            listener.changed(changes, state.changed_s)
        for change in changes:
            if isinstance(change.new, EndpointSlice):
                self._observe(change.new, now_s)
            elif change.new is None and isinstance(change.old, Service):
                state.note_deleted(change.key, now_s)
        self.noticed.set()

    def _observe(self, endpoint_slice: EndpointSlice, now_s: float) -> None:
        annotations = endpoint_slice.metadata.annotations
        service = self.state.services.get(endpoint_slice.service_key or ("", ""))
        if annotations and annotations.trigger_time and service and self.is_synced:
            try:
                took_s = now_s - datetime.fromisoformat(annotations.trigger_time).timestamp()
            except ValueError:
                return
            kind = "headless_with_selector" if service.is_headless else "cluster_ip"
            self.programming.setdefault(kind, Histogram(PROGRAMMING_BUCKETS_S)).add(max(took_s, 0.0))


class Clusters:
    """All watched clusters; server blocks with the same specification share one.

    `default_source` replaces the Pod's service account.
    """

    def __init__(self, default_source: Source | None = None) -> None:
        self._default_source = default_source
        self._clusters: dict[ClusterSpec, Cluster] = {}
        self._tasks: dict[Cluster, asyncio.Task[None]] = {}
        self._is_started = False

    @property
    def followed(self) -> tuple[Cluster, ...]:
        return tuple(self._clusters.values())

    @property
    def is_synced(self) -> bool:
        return all(cluster.is_synced for cluster in self.followed)

    @property
    def startup_timeout_s(self) -> float:
        listeners = (listener for cluster in self.followed for listener in cluster.listeners)
        return max((listener.startup_timeout_s for listener in listeners), default=0.0)

    def of(self, spec: ClusterSpec) -> Cluster:
        """Call `follow` afterwards: the cluster may be new."""
        if self._default_source and not (spec.source.kubeconfig or spec.source.endpoint):
            spec = replace(spec, source=self._default_source)
        return self._clusters.setdefault(spec, Cluster(spec))

    def follow(self) -> None:
        for cluster in self.followed:
            if cluster not in self._tasks:
                work = partial(self._follow, cluster)
                self._tasks[cluster] = restarted(work, "follow the api server", ended_by=(InputError,))

    def drop_unused(self) -> None:
        for cluster in self.followed:
            if not cluster.listeners:
                del self._clusters[cluster.spec]
                if task := self._tasks.pop(cluster, None):
                    task.cancel()

    async def wait(self) -> None:
        """Until all clusters are listed, or up to `startup_timeout_s`. Raises InputError for an unusable source."""
        deadline_s = asyncio.get_running_loop().time() + self.startup_timeout_s
        while not self.is_synced and asyncio.get_running_loop().time() < deadline_s:
            for task in self._tasks.values():
                if task.done():
                    await task
            await asyncio.sleep(POLL_S)
        if not self.is_synced:
            log.warning("starting without the api server", answers="SERVFAIL until everything is listed")
        self._is_started = True

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _follow(self, cluster: Cluster) -> None:
        keeping = restarted(cluster.keeper.run, "snapshot") if cluster.keeper else None
        try:
            spec, state = cluster.spec, cluster.state
            await follow(spec.source, state, cluster.changed, cluster.stats, scope=spec.scope)
        except InputError as error:
            failure = cluster.listeners[0].error_at(error) if cluster.listeners else error
            if self._is_started:  # until then, `wait` raises it
                log.error("api server cannot be watched", error=str(failure))  # noqa: TRY400 - the text says it all
            raise failure from error
        finally:
            if keeping:
                keeping.cancel()
