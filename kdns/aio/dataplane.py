"""Carries the plan into the node: changes are gathered, planned, and applied by the mode's backend.

The first change after a quiet time is applied at once, later ones min_sync_s after the end of the run before. What
fails is tried again from scratch, with the reason in the log, and what was applied before keeps working meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from kdns import logs
from kdns.cluster.objects import EndpointSlice, Key, Node, Service
from kdns.cluster.state import AnyChange, State
from kdns.errors import ApplyError
from kdns.metrics import Histogram
from kdns.proxy.config import Family, NodeView, ProxyConfig
from kdns.proxy.plan import Plan
from kdns.proxy.planner import Difference, Planner, concerned

SYNC_BUCKETS_S: Final = tuple(0.001 * 2**k for k in range(15))
TIDY_AFTER_S: Final = 1.0
FIRST_RETRY_S: Final = 1.0

log = logs.get(__name__)


class Backend(Protocol):
    """A mode: carries plans into the kernel. Everything raises ApplyError when the kernel refuses."""

    @property
    def name(self) -> str:
        """The mode."""
        ...

    async def establish(self, plan: Plan) -> None:
        """Make everything as the plan says, whatever is there."""
        ...

    async def follow(self, plan: Plan, differences: Mapping[Family, Difference]) -> None:
        """Change what differs from the plan before."""
        ...

    async def tidy(self) -> None:
        """Remove what the changes a moment ago left without use."""
        ...


@dataclass(frozen=True, slots=True)
class SyncTiming:
    """KubeProxyConfiguration's periods, in seconds."""

    min_sync_s: float = 1.0
    sync_s: float = 30.0


@dataclass(slots=True)
class SyncStats:
    """What /metrics and /healthz tell. Times are of the clock the dataplane was given."""

    full: Histogram = field(default_factory=lambda: Histogram(SYNC_BUCKETS_S))
    partial: Histogram = field(default_factory=lambda: Histogram(SYNC_BUCKETS_S))
    failures: int = 0
    last_sync_s: float = 0.0
    last_queued_s: float = 0.0
    oldest_pending_s: float | None = None
    service_changes: int = 0
    endpoint_changes: int = 0


class Dataplane:
    """One node's virtual IPs. `run` works until it is cancelled and leaves the rules where they are."""

    def __init__(
        self,
        state: State,
        backend: Backend,
        config: ProxyConfig,
        node_view: Callable[[Node | None], NodeView],
        timing: SyncTiming,
        *,
        node_name: str = "",
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state, self.backend, self.config, self.timing = state, backend, config, timing
        self.stats = SyncStats()
        self.established = asyncio.Event()
        self._node_view, self._node_name, self._now_s = node_view, node_name, now_s
        self._planner: Planner | None = None
        self._pending: dict[Key, None] = {}
        self._everything = True
        self._wanted = asyncio.Event()

    @property
    def plan(self) -> Plan | None:
        """The plan that was applied last, or is being applied."""
        return self._planner.plan if self._planner else None

    @property
    def is_synced(self) -> bool:
        """Whether Services and EndpointSlices have been listed in full."""
        return {Service, EndpointSlice} <= self.state.synced

    def changed(self, changes: list[AnyChange]) -> None:
        """Note what changed in the state; nothing is applied before everything has been listed once."""
        for change in changes:
            self._pending |= dict.fromkeys(concerned(change))
            node = change.new or change.old
            if isinstance(node, Node) and node.metadata.name == self._node_name:
                self._everything = self._everything or self._view() != (self._planner and self._planner.node)
            self.stats.service_changes += isinstance(node, Service)
            self.stats.endpoint_changes += isinstance(node, EndpointSlice)
        if self.is_synced and (self._pending or self._everything):
            now_s = self._now_s()
            self.stats.last_queued_s = now_s
            if self.stats.oldest_pending_s is None:
                self.stats.oldest_pending_s = now_s
            self._wanted.set()

    def distrust(self, reason: str) -> None:
        """Somebody else changed the rules: make everything anew."""
        log.warning("the rules were changed by somebody else", reason=reason, backend=self.backend.name)
        self._everything = True
        self._wanted.set()

    async def run(self) -> None:
        """Apply what changes, for ever."""
        failures, is_tidy = 0, True
        while True:
            try:
                async with asyncio.timeout(None if is_tidy else TIDY_AFTER_S):
                    await self._wanted.wait()
            except TimeoutError:
                await self._tidy()
                is_tidy = True
                continue
            self._wanted.clear()
            try:
                await self._sync()
            except ApplyError as error:
                failures += 1
                self.stats.failures += 1
                self._everything = True
                delay_s = min(FIRST_RETRY_S * 2.0 ** (failures - 1), self.timing.sync_s)
                log.warning("rules not applied", backend=self.backend.name, reason=str(error), retry_in_s=delay_s)
                self._wanted.set()
                await asyncio.sleep(delay_s)
                continue
            failures = 0
            await asyncio.sleep(self.timing.min_sync_s)
            is_tidy = self.timing.min_sync_s >= TIDY_AFTER_S
            if is_tidy:
                await self._tidy()

    async def _sync(self) -> None:
        started_s = self._now_s()
        keys, self._pending = self._pending, {}
        pending_s, self.stats.oldest_pending_s = self.stats.oldest_pending_s, None
        everything, self._everything = self._everything, False
        try:
            if everything or self._planner is None:
                self._planner = Planner(self.state, self._view(), self.config)
                await self.backend.establish(self._planner.plan)
            else:
                differences = self._planner.update(keys)
                if not any(differences.values()):
                    return
                await self.backend.follow(self._planner.plan, differences)
        except ApplyError:
            self.stats.oldest_pending_s = pending_s
            raise
        finally:
            took_s = round(self._now_s() - started_s, 4)
            (self.stats.full if everything else self.stats.partial).add(took_s)
        self.stats.last_sync_s = self._now_s()
        self.established.set()
        log.info("rules applied", backend=self.backend.name, full=everything, services=len(keys), took_s=took_s)

    async def _tidy(self) -> None:
        try:
            await self.backend.tidy()
        except ApplyError as error:
            log.info("unused rules stay for now", backend=self.backend.name, reason=str(error))

    def _view(self) -> NodeView:
        return self._node_view(self.state.nodes.get(("", self._node_name)))
