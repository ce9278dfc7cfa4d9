"""Carries the plan into the node: changes are gathered, planned, and applied by the mode's backend.

The first change after a quiet time is applied at once, later ones min_sync_s after the end of the run before. What
fails is tried again from scratch, with the reason in the log, and what was applied before keeps working meanwhile.
Once an hour everything is made anew, as kube-proxy does, in case that somebody's change was not noticed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol, TypeAlias

from kdns import logs
from kdns.cluster.objects import EndpointSlice, Key, Node, Object, Service, ServiceCIDR
from kdns.cluster.state import AnyChange, State
from kdns.errors import ApplyError
from kdns.metrics import Histogram
from kdns.proxy.config import Family, NodeView, ProxyConfig
from kdns.proxy.plan import Plan
from kdns.proxy.planner import Difference, Planner, concerned

SYNC_BUCKETS_S: Final = tuple(0.001 * 2**k for k in range(15))
PROGRAMMING_BUCKETS_S: Final = (0.25, 0.5, *range(1, 60), *range(60, 120, 5), *range(120, 301, 30))
TIDY_AFTER_S: Final = 1.0
FIRST_RETRY_S: Final = 1.0
FULL_EVERY_S: Final = 3600.0
QUARREL_S: Final = 60.0
PATIENCE: Final = 3
"""How often rules that somebody changed are made anew at once, until kdns begins to wait longer each time."""

log = logs.get(__name__)

Situation: TypeAlias = tuple[NodeView, ProxyConfig]
"""What the plan needs beside Services and endpoints."""


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


@dataclass(frozen=True, slots=True)
class Synced:
    """What has just been applied: the plan, and the Services that were planned anew.

    `differences` are from the plan before; None where everything was made anew.
    """

    plan: Plan
    services: Mapping[Key, None]
    differences: Mapping[Family, Difference] | None


@dataclass(slots=True)
class Changes:
    """How often objects of one kind changed: since the last success, and ever."""

    pending: int = 0
    total: int = 0

    def add(self) -> None:
        """Count one."""
        self.pending += 1
        self.total += 1


@dataclass(slots=True)
class SyncStats:
    """What /metrics and /healthz tell. `last_…_s` are since 1970, `oldest_pending_s` is monotonic."""

    runs: Histogram = field(default_factory=lambda: Histogram(SYNC_BUCKETS_S))
    full: Histogram = field(default_factory=lambda: Histogram(SYNC_BUCKETS_S))
    partial: Histogram = field(default_factory=lambda: Histogram(SYNC_BUCKETS_S))
    programming: Histogram = field(default_factory=lambda: Histogram(PROGRAMMING_BUCKETS_S))
    failures: int = 0
    tidy_failures: int = 0
    distrusts: int = 0
    last_sync_s: float = 0.0
    last_queued_s: float = 0.0
    oldest_pending_s: float | None = None
    services: Changes = field(default_factory=Changes)
    endpoints: Changes = field(default_factory=Changes)


class Dataplane:
    """One node's virtual IPs. `run` works until it is cancelled and leaves the rules where they are.

    Nothing is applied before all of `kinds` have been listed in full and the `situation` is known (None: not yet).
    """

    def __init__(
        self,
        state: State,
        backend: Backend,
        situation: Callable[[], Situation | None],
        timing: SyncTiming,
        *,
        kinds: frozenset[type[Object]] = frozenset({Service, EndpointSlice}),
        now_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self.state, self.backend, self.timing = state, backend, timing
        self.stats = SyncStats()
        self.established = asyncio.Event()
        self.followers: list[Callable[[Synced], None]] = []
        self._situation, self._kinds, self._now_s, self._wall_s = situation, kinds, now_s, wall_s
        self._planner: Planner | None = None
        self._pending: dict[Key, None] = {}
        self._triggers: list[float] = []
        self._everything = True
        self._distrusted = False
        self._healed_s, self._quarrels = float("-inf"), 0
        self._wanted = asyncio.Event()
        self._began_s, self._full_s = wall_s(), now_s()
        self._untidy_s: float | None = None

    @property
    def plan(self) -> Plan | None:
        """The plan that was applied last, or is being applied."""
        return self._planner.plan if self._planner else None

    @property
    def is_ready(self) -> bool:
        """Whether enough is known to plan."""
        return self._kinds <= self.state.synced and self._situation() is not None

    def changed(self, changes: list[AnyChange]) -> None:
        """Note what changed in the state."""
        for change in changes:
            self._pending |= dict.fromkeys(concerned(change))
            obj = change.new or change.old
            if isinstance(obj, Service):
                self.stats.services.add()
            elif isinstance(obj, EndpointSlice):
                self.stats.endpoints.add()
                self._triggered(change.old, change.new)
        if not changes or any(isinstance(change.new or change.old, Node | ServiceCIDR) for change in changes):
            self.look()
        elif self._pending:
            self._queue()

    def look(self) -> None:
        """The situation may have changed."""
        planned = self._planner and (self._planner.node, self._planner.config)
        if self._situation() != planned:
            self._everything = True
        if self._everything or self._pending or self._distrusted:
            self._queue()

    def distrust(self, reason: str) -> None:
        """Somebody else changed the rules: make everything anew, at once or when it is time again."""
        self.stats.distrusts += 1
        if not self._distrusted:
            log.warning("the rules were changed by somebody else", who=reason, backend=self.backend.name)
        self._distrusted = True
        self._queue()

    def _queue(self) -> None:
        if not self.is_ready:
            return
        self.stats.last_queued_s = self._wall_s()
        if self.stats.oldest_pending_s is None:
            self.stats.oldest_pending_s = self._now_s()
        self._wanted.set()

    async def run(self) -> None:
        """Apply what changes, for ever."""
        failures = 0
        self.look()
        while True:
            await self._work()
            if self._untidy_s is not None and self._now_s() >= self._untidy_s + TIDY_AFTER_S:
                await self._tidy()
            if self.established.is_set() and self._now_s() >= self._full_s + FULL_EVERY_S:
                self._everything = True
            if self._distrusted and self._now_s() >= self._heal_s():
                self._everything = True
            if not (self._pending or self._everything) or not self.is_ready:
                continue
            try:
                await self._sync()
            except ApplyError as error:
                failures += 1
                self.stats.failures += 1
                delay_s = min(FIRST_RETRY_S * 2.0 ** min(failures - 1, 16), self.timing.sync_s)
                log.warning("rules not applied", backend=self.backend.name, reason=str(error), retry_in_s=delay_s)
                self._wanted.set()
                await asyncio.sleep(delay_s)
            else:
                failures = 0
                await asyncio.sleep(self.timing.min_sync_s)

    def _heal_s(self) -> float:
        """When to make anew what somebody changed: at once, or later each time if it happens again and again.

        What the cluster changes does not wait for that.
        """
        wait_s = min(2.0 ** (self._quarrels - PATIENCE), self.timing.sync_s) if self._quarrels >= PATIENCE else 0.0
        return self._healed_s + wait_s

    async def _work(self) -> None:
        """Wait until there is something to do."""
        due_s = [self._full_s + FULL_EVERY_S] if self.established.is_set() else []
        due_s += [self._untidy_s + TIDY_AFTER_S] if self._untidy_s is not None else []
        due_s += [self._heal_s()] if self._distrusted else []
        try:
            async with asyncio.timeout(max(min(due_s) - self._now_s(), 0.0) if due_s and self.is_ready else None):
                await self._wanted.wait()
        except TimeoutError:
            return
        self._wanted.clear()

    async def _sync(self) -> None:
        started_s = self._now_s()
        situation = self._situation()
        assert situation  # noqa: S101 - asked for by is_ready
        services, self._pending = self._pending, {}
        triggers, self._triggers = self._triggers, []
        pending = self.stats.services.pending, self.stats.endpoints.pending
        since_s, self.stats.oldest_pending_s = self.stats.oldest_pending_s, None
        is_full, self._everything = self._everything or self._planner is None, False
        if self._distrusted and is_full:
            self._quarrels = self._quarrels + 1 if started_s - self._healed_s < QUARREL_S else 0
            self._distrusted, self._healed_s = False, started_s
        try:
            differences = await self._carry_out(services, situation, is_full=is_full)
        except BaseException:
            self._everything = True
            self._triggers = triggers + self._triggers
            self.stats.oldest_pending_s = started_s if since_s is None else since_s
            raise
        finally:
            took_s = self._now_s() - started_s
            for histogram in (self.stats.runs, self.stats.full if is_full else self.stats.partial):
                histogram.add(took_s)
        self._succeeded(pending, triggers)
        if is_full:
            self._full_s = self._now_s()
        if is_full or any((differences or {}).values()):
            log.info(
                "rules applied",
                backend=self.backend.name,
                full=is_full,
                services=len(self.state.services) if is_full else len(services),
                took_s=round(took_s, 4),
            )
        self.established.set()
        assert self._planner  # noqa: S101 - made by _carry_out
        for follower in self.followers:
            follower(Synced(self._planner.plan, services, differences))

    async def _carry_out(
        self, services: Mapping[Key, None], situation: Situation, *, is_full: bool
    ) -> Mapping[Family, Difference] | None:
        if is_full or self._planner is None:
            self._planner = Planner(self.state, *situation)
            await self.backend.establish(self._planner.plan)
            return None
        differences = self._planner.update(services)
        if any(differences.values()):
            await self.backend.follow(self._planner.plan, differences)
            if self._untidy_s is None:
                self._untidy_s = self._now_s()
        return differences

    def _succeeded(self, pending: tuple[int, int], triggers: list[float]) -> None:
        now_s = self.stats.last_sync_s = self._wall_s()
        self.stats.services.pending -= pending[0]
        self.stats.endpoints.pending -= pending[1]
        for trigger_s in triggers:
            self.stats.programming.add(max(now_s - trigger_s, 0.0))

    async def _tidy(self) -> None:
        try:
            await self.backend.tidy()
            self._untidy_s = None
        except ApplyError as error:
            self._untidy_s = self._now_s()
            self.stats.tidy_failures += 1
            log.info("unused rules stay for now", backend=self.backend.name, reason=str(error))

    def _triggered(self, old: Object | None, new: Object | None) -> None:
        """Remember when the change happened that led to this slice, unless kdns was not there yet."""
        when = _trigger_time(new)
        if not when or when == _trigger_time(old):
            return
        try:
            trigger_s = datetime.fromisoformat(when).timestamp()
        except ValueError:
            return
        if trigger_s >= self._began_s:
            self._triggers.append(trigger_s)


def _trigger_time(obj: Object | None) -> str:
    annotations = obj.metadata.annotations if isinstance(obj, EndpointSlice) else None
    return annotations.trigger_time if annotations else ""
