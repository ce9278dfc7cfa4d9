"""Applies the plan to the node: changes are gathered, planned, and synced by the mode's proxier.

The first change after a quiet time is synced at once, later ones min_sync_s after the end of the run before. A sync
that fails is retried as a full one, with the reason in the log; until then the kernel keeps the rules it has.
Services that the kernel rejects are found and left out, until they change or the next full sync.
There is a full sync once an hour, as in kube-proxy, in case that a foreign change was not noticed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kdns import logs
from kdns.aio.dataplane.proxier import Proxier
from kdns.aio.dataplane.rejections import rejected_services
from kdns.aio.dataplane.sync_stats import SyncStats
from kdns.cluster.objects import EndpointSlice, Key, Node, Object, Service, ServiceCIDR
from kdns.cluster.state import AnyChange, State
from kdns.errors import ApplyError
from kdns.net import Family
from kdns.proxy.plan.config import NodeView, ProxyConfig
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import Difference, Planner, affected_services

SWEEP_DELAY_S: Final = 1.0
"""How long what a partial sync left unused has to stay; see `Table.sweep`."""
FIRST_RETRY_S: Final = 1.0
FULL_SYNC_S: Final = 3600.0
CONFLICT_S: Final = 60.0
"""A foreign change within this time of the last repair counts as one in a row with it."""
IMMEDIATE_REPAIRS: Final = 3
"""How many foreign changes in a row are repaired at once; from then on kdns waits longer each time."""

log = logs.get(__name__)

PlanInputs: TypeAlias = tuple[NodeView, ProxyConfig]
"""What the plan needs beside Services and endpoints."""


@dataclass(frozen=True, slots=True)
class SyncTiming:
    """KubeProxyConfiguration's periods, in seconds."""

    min_sync_s: float = 1.0
    sync_s: float = 30.0


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What has just been applied: the plan, and the Services that were planned again.

    `differences` are from the plan before, None after a full sync. `rejected` are Services that are left out from now
    on, with the reason. `refused` are the fronts that Services do not get from now on, as in `Plan.refusals`.
    """

    plan: Plan
    services: Mapping[Key, None]
    differences: Mapping[Family, Difference] | None
    rejected: Mapping[Key, str] = field(default_factory=dict)
    refused: Mapping[tuple[Key, str], str] = field(default_factory=dict)


class SyncRunner:
    """Keeps the proxier in sync with the state. `run` works until it is cancelled, and leaves the rules as they are.

    Nothing is applied before all of `kinds` have been listed and `inputs` returns something other than None.
    """

    def __init__(
        self,
        state: State,
        proxier: Proxier,
        inputs: Callable[[], PlanInputs | None],
        timing: SyncTiming,
        *,
        kinds: frozenset[type[Object]] = frozenset({Service, EndpointSlice}),
        now_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self.state, self.proxier, self.timing = state, proxier, timing
        self.stats = SyncStats(now_s, wall_s)
        self.rejected: dict[Key, str] = {}
        self._refusals: Mapping[tuple[Key, str], str] = {}
        self.established = asyncio.Event()
        self.subscribers: list[Callable[[SyncResult], None]] = []
        self._plan_inputs, self._kinds, self._now_s = inputs, kinds, now_s
        self._planner: Planner | None = None
        self._pending: dict[Key, None] = {}
        self._full_pending = True
        self._foreign_pending = False
        self._repaired_s, self._conflicts = float("-inf"), 0
        self._wake = asyncio.Event()
        self._last_full_s = now_s()
        self._sweep_due_from_s: float | None = None
        self._retry_s: float | None = None

    @property
    def plan(self) -> Plan | None:
        """The plan that was applied last, or is being applied."""
        return self._planner.plan if self._planner else None

    @property
    def is_ready(self) -> bool:
        """Whether all that the plan needs is there."""
        return self._kinds <= self.state.synced and self._plan_inputs() is not None

    def changed(self, changes: list[AnyChange]) -> None:
        """Note what changed in the state."""
        for change in changes:
            self._pending |= dict.fromkeys(affected_services(change))
            self.stats.changed(change)
        if not changes or any(isinstance(change.new or change.old, Node | ServiceCIDR) for change in changes):
            self.inputs_changed()
        elif self._pending:
            self._queue()

    def inputs_changed(self) -> None:
        """Note that node or configuration may have changed."""
        planned = self._planner and (self._planner.node, self._planner.config)
        if self._plan_inputs() != planned:
            self._full_pending = True
        if self._full_pending or self._pending or self._foreign_pending:
            self._queue()

    def foreign_change(self, author: str) -> None:
        """Note that another process changed the rules: a full sync repairs them."""
        self.stats.foreign_changes += 1
        if not self._foreign_pending:
            log.warning("rules changed by another process", author=author, mode=self.proxier.name)
        self._foreign_pending = True
        self._queue()

    def _queue(self) -> None:
        if not self.is_ready:
            return
        self.stats.queued()
        self._wake.set()

    async def run(self) -> None:
        """Sync whenever something is due, until cancelled."""
        failures = 0
        self.inputs_changed()
        while True:
            await self._wait()
            if self._sweep_due_from_s is not None and self._now_s() >= self._sweep_due_from_s + SWEEP_DELAY_S:
                await self._sweep()  # before the sync: what that leaves unused has to stay for SWEEP_DELAY_S
            if self.established.is_set() and self._now_s() >= self._last_full_s + FULL_SYNC_S:
                self._full_pending = True
            if self._foreign_pending and self._now_s() >= self._repair_s():
                self._full_pending = True
            if not (self._pending or self._full_pending) or not self.is_ready:
                continue
            try:
                await self._sync()
            except ApplyError as error:
                failures += 1
                delay_s = min(FIRST_RETRY_S * 2.0 ** min(failures - 1, 16), self.timing.sync_s)
                log.warning("rules not synced", mode=self.proxier.name, reason=str(error), retry_in_s=delay_s)
                self._retry_s = self._now_s() + delay_s
                await asyncio.sleep(min(delay_s, FIRST_RETRY_S))
            else:
                failures, self._retry_s = 0, None
                await asyncio.sleep(self.timing.min_sync_s)

    def _repair_s(self) -> float:
        """When foreign changes are to be repaired: at once, or later each time while they go on.

        Changes of the cluster are synced meanwhile.
        """
        repeated = self._conflicts - IMMEDIATE_REPAIRS
        return self._repaired_s + (min(2.0**repeated, self.timing.sync_s) if repeated >= 0 else 0.0)

    async def _wait(self) -> None:
        """Wait until something is due."""
        if self._retry_s is not None:  # the retry is a full sync, which includes whatever else is due
            due_s = [self._retry_s]
        else:
            due_s = [self._last_full_s + FULL_SYNC_S] if self.established.is_set() else []
            due_s += [self._sweep_due_from_s + SWEEP_DELAY_S] if self._sweep_due_from_s is not None else []
            due_s += [self._repair_s()] if self._foreign_pending else []
        try:
            async with asyncio.timeout(max(min(due_s) - self._now_s(), 0.0) if due_s and self.is_ready else None):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _sync(self) -> None:
        started_s = self._now_s()
        inputs = self._plan_inputs()
        assert inputs  # noqa: S101 - see is_ready
        services, self._pending = self._pending, {}
        waiting = self.stats.begin()
        is_full, self._full_pending = self._full_pending or self._planner is None, False
        if self._foreign_pending and is_full:
            self._conflicts = self._conflicts + 1 if started_s - self._repaired_s < CONFLICT_S else 0
            self._foreign_pending, self._repaired_s = False, started_s
        try:
            result = await self._apply(services, inputs, is_full=is_full)
        except BaseException:
            self._full_pending = True
            self._sweep_due_from_s = None  # what is unused is known again after a full sync
            self.stats.failed(waiting)
            raise
        finally:
            self.stats.took(self._now_s() - started_s, is_full=is_full)
        self.stats.succeeded(waiting)
        if result.differences is None:
            self._last_full_s = self._now_s()
        if result.differences is None or any(result.differences.values()):
            log.info(
                "rules synced",
                mode=self.proxier.name,
                full=result.differences is None,
                services=len(self.state.services) if result.differences is None else len(services),
                took_s=round(self._now_s() - started_s, 4),
            )
        for key, reason in result.rejected.items():
            log.warning("Service left out of the rules", service="/".join(key), mode=self.proxier.name, reason=reason)
        self.established.set()
        for subscriber in self.subscribers:
            subscriber(result)

    async def _apply(self, services: Mapping[Key, None], inputs: PlanInputs, *, is_full: bool) -> SyncResult:
        """Sync; where the kernel rejects some of the Services, sync fully without them."""
        rechecked = [key for key in (self.rejected if is_full else services) if key in self.rejected]
        rejections = {key: reason for key, reason in self.rejected.items() if key not in rechecked}
        rejections |= await self._rejections(rechecked, inputs)
        differences: Mapping[Family, Difference] | None = None
        try:
            if is_full or self._planner is None:
                await self._sync_full(self._new_planner(inputs, rejections))
            else:
                accepted = [key for key in services if key not in rejections]
                differences = await self._sync_partial(self._planner, accepted)
        except ApplyError:
            self.stats.failures += 1
            suspects = [key for key in (self.state.services if is_full else services) if key not in rejections]
            new = await self._rejections(suspects, inputs)
            planner = self._new_planner(inputs, rejections := rejections | new)
            if not new or not (planner.plan.ipv4.fronts or planner.plan.ipv6.fronts):
                raise
            await self._sync_full(planner)
        assert self._planner  # noqa: S101 - _sync_full has set it
        unreported = {key: reason for key, reason in rejections.items() if self.rejected.get(key) != reason}
        self.rejected = rejections
        known, self._refusals = self._refusals, self._planner.plan.refusals
        refused = {key: reason for key, reason in self._refusals.items() if known.get(key) != reason}
        return SyncResult(self._planner.plan, services, differences, unreported, refused)

    async def _sync_full(self, planner: Planner) -> None:
        self._planner = planner
        await self.proxier.sync_full(planner.plan)

    async def _sync_partial(self, planner: Planner, services: Iterable[Key]) -> Mapping[Family, Difference]:
        differences = planner.update(services)
        if any(differences.values()):
            await self.proxier.sync_partial(planner.plan, differences)
            if self._sweep_due_from_s is None:
                self._sweep_due_from_s = self._now_s()
        return differences

    def _new_planner(self, inputs: PlanInputs, without: Container[Key]) -> Planner:
        return Planner(self.state, *inputs, services=[key for key in self.state.services if key not in without])

    async def _rejections(self, suspects: Sequence[Key], inputs: PlanInputs) -> dict[Key, str]:
        async def check(keys: Sequence[Key]) -> str:
            return await self.proxier.check(Planner(self.state, *inputs, services=keys).plan)

        return await rejected_services(check, suspects)

    async def _sweep(self) -> None:
        try:
            self._sweep_due_from_s = self._now_s() if await self.proxier.sweep() else None
        except ApplyError as error:
            self._sweep_due_from_s = self._now_s()
            self.stats.cleanup_failures += 1
            log.info("unused rules not removed yet", mode=self.proxier.name, reason=str(error))
