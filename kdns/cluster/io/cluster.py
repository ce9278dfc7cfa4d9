"""A watched cluster: an API, its State, and the listeners to its changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from kdns.cluster.io.informer import FollowStats
from kdns.cluster.objects import EndpointSlice, Object, Service
from kdns.cluster.snapshot import SnapshotStats, identity
from kdns.cluster.source import ClusterSpec
from kdns.cluster.state import Change, OnChange, State
from kdns.cluster.watch import RESOURCES
from kdns.errors import InputError
from kdns.runtime.metrics import Histogram

PROGRAMMING_BUCKETS_S: Final = tuple(0.001 * 2**k for k in range(20))


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
    snapshot: SnapshotStats = field(default_factory=SnapshotStats)

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
