"""Applies the plan to the node: changes are gathered, planned, and synced by the mode's proxier, by the schedule.

A failed sync, or one that ends by a defect, is retried as a full one, with the reason or the traceback in the log;
until then the kernel keeps its rules.
Services that the kernel rejects are the proxier's to find; they are named once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

from kdns import logs
from kdns.cluster.objects import EndpointSlice, Key, Node, Object, Service, ServiceCIDR
from kdns.cluster.state import Change, State
from kdns.errors import ApplyError
from kdns.net import Family
from kdns.proxy.plan.config import NodeView, ProxyConfig
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import Difference, Planner, affected_services
from kdns.proxy.sync.io.proxier import Proxier
from kdns.proxy.sync.io.stats import SyncStats
from kdns.proxy.sync.schedule import Schedule, Step, SyncTiming

log = logs.get(__name__)

PlanInputs: TypeAlias = tuple[NodeView, ProxyConfig]
"""The plan's inputs beside Services and endpoints."""


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The result of a sync: the plan, and the Services that were planned again.

    `differences` are from the plan before, None after a full sync. `refused` are the fronts that Services do not get
    from now on, as in `Plan.refusals`, and `limits` the warnings about Services from now on, as in `Plan.limits`.
    """

    plan: Plan
    services: Mapping[Key, None]
    differences: Mapping[Family, Difference] | None
    refused: Mapping[tuple[Key, str], str] = field(default_factory=dict)
    limits: Mapping[tuple[Key, str], str] = field(default_factory=dict)


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
    ) -> None:
        self.state, self.proxier, self.timing, self.schedule = state, proxier, timing, Schedule(timing)
        self.stats = SyncStats()
        self.rejected: Mapping[Key, str] = {}
        """The Services that the kernel rejects since the last sync, with the reason."""
        self._refusals: Mapping[tuple[Key, str], str] = {}
        self._limits: Mapping[tuple[Key, str], str] = {}
        self.established = asyncio.Event()
        self.subscribers: list[Callable[[SyncResult], None]] = []
        self.on_rejected: Callable[[Mapping[Key, str]], None] = lambda _: None
        """Gets the Services that the kernel rejects from now on, with the reason, also if the sync failed."""
        self._plan_inputs, self._kinds = inputs, kinds
        self._planner: Planner | None = None
        self._pending: dict[Key, None] = {}
        self._wake = asyncio.Event()

    @property
    def plan(self) -> Plan | None:
        """The plan that was applied last, or is being applied."""
        return self._planner.plan if self._planner else None

    @property
    def is_ready(self) -> bool:
        return self._kinds <= self.state.synced and self._plan_inputs() is not None

    def changed(self, changes: list[Change]) -> None:
        for change in changes:
            self._pending |= dict.fromkeys(affected_services(change))
            self.stats.changed(change)
        if self._pending:
            self.schedule.changed()
        if not changes or any(isinstance(change.new or change.old, Node | ServiceCIDR) for change in changes):
            self.inputs_changed()
        elif self._pending:
            self._queue()

    def inputs_changed(self) -> None:
        planned = self._planner and (self._planner.node, self._planner.config)
        if self._plan_inputs() != planned:
            self.schedule.inputs_changed()
        if self.schedule.is_pending:
            self._queue()

    def foreign_change(self, author: str) -> None:
        """Notes that another process changed the rules: a full sync repairs them."""
        self.stats.foreign_changes += 1
        if not self.schedule.is_foreign:
            log.warning("rules changed by another process", author=author, mode=self.proxier.name)
        self.schedule.foreign_change()
        self._queue()

    def _queue(self) -> None:
        if not self.is_ready:
            return
        self.stats.queued()
        self._wake.set()

    async def run(self) -> None:
        self.inputs_changed()
        while True:
            match self.schedule.due(time.monotonic()) if self.is_ready else None:
                case None:
                    await self._wait()
                case Step.SWEEP:
                    await self._sweep()
                case step:
                    await self._sync(step)
                    await asyncio.sleep(0)  # a proxier may not have waited for anything

    async def _wait(self) -> None:
        next_s = self.schedule.next_s if self.is_ready else inf
        try:
            async with asyncio.timeout(None if next_s == inf else max(next_s - time.monotonic(), 0.0)):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _sync(self, step: Step) -> None:
        started_s = time.monotonic()
        inputs = self._plan_inputs()
        assert inputs  # noqa: S101 - see is_ready
        services, self._pending = self._pending, {}
        waiting = self.stats.begin()
        self.schedule.begin(step, started_s)
        try:
            self._synced(await self._apply(services, inputs, is_full=step is Step.FULL), started_s)
            self.stats.succeeded(waiting)
        except Exception as error:  # noqa: BLE001 - a defect in planning one Service must not end the others' rules
            self.stats.failed(waiting)
            self.stats.failures += 1
            self._log_failure("rules not synced", error, retry_in_s=self.schedule.failed(time.monotonic()))
        except BaseException:
            self.stats.failed(waiting)
            self.schedule.cancelled()
            raise
        finally:
            self._note_rejected()
            self.stats.took(time.monotonic() - started_s, is_full=step is Step.FULL)

    def _note_rejected(self) -> None:
        before, self.rejected = self.rejected, self.proxier.rejected
        new = {key: reason for key, reason in self.rejected.items() if before.get(key) != reason}
        for key, reason in new.items():
            log.warning("rules of Service rejected", service="/".join(key), mode=self.proxier.name, reason=reason)
        if new:
            self.on_rejected(new)

    def _synced(self, result: SyncResult, started_s: float) -> None:
        """Notes and logs a sync, and tells the subscribers."""
        now_s, is_full = time.monotonic(), result.differences is None
        has_changed = result.differences is None or any(result.differences.values())
        self.schedule.succeeded(now_s, is_full=is_full, leaves_unused=has_changed and not is_full)
        if has_changed:
            (log.info if is_full else log.debug)(  # a partial sync is every change of endpoints
                "rules synced",
                mode=self.proxier.name,
                full=is_full,
                services=len(self.state.services) if is_full else len(result.services),
                took_s=round(now_s - started_s, 4),
            )
        self.established.set()
        for subscriber in self.subscribers:
            subscriber(result)

    async def _apply(self, services: Mapping[Key, None], inputs: PlanInputs, *, is_full: bool) -> SyncResult:
        """Plans and syncs these Services, or everything; returns what is new."""
        differences: Mapping[Family, Difference] | None = None
        if is_full or self._planner is None:
            self._planner = Planner(self.state, *inputs)
            await self.proxier.sync_full(self._planner.plan)
        else:
            differences = self._planner.update(services)
            if any(differences.values()):
                await self.proxier.sync_partial(self._planner.plan, differences)
        refused, self._refusals = self._refusals, self._planner.plan.refusals
        limited, self._limits = self._limits, self._planner.plan.limits
        return SyncResult(
            self._planner.plan,
            services,
            differences,
            {key: reason for key, reason in self._refusals.items() if refused.get(key) != reason},
            {key: event for key, event in self._limits.items() if key not in limited},
        )

    async def _sweep(self) -> None:
        try:
            await self.proxier.sweep()
        except ApplyError as error:
            self.schedule.sweep_failed(time.monotonic())
            self.stats.cleanup_failures += 1
            log.info("unused rules not removed yet", mode=self.proxier.name, reason=str(error))
        except Exception as error:  # noqa: BLE001 - a full sync removes what is unused
            self.schedule.cancelled()
            self.stats.cleanup_failures += 1
            self._log_failure("unused rules not removed", error)
        else:
            self.schedule.swept()

    def _log_failure(self, event: str, error: Exception, **facts: float) -> None:
        """Logs a failure; an error other than a refusal of the kernel is a defect, and is logged with its traceback."""
        reason = str(error) or type(error).__name__
        if isinstance(error, ApplyError):
            log.warning(event, mode=self.proxier.name, reason=reason, **facts)
        else:
            log.error(event, mode=self.proxier.name, reason=reason, **facts, exc_info=error)
