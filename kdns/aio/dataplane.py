"""Carries the plan into the node: changes are gathered, planned, and applied by the mode's backend.

The first change after a quiet time is applied at once, later ones min_sync_s after the end of the run before. What
fails is tried again from scratch, with the reason in the log, and what was applied before keeps working meanwhile.
Services that the kernel refuses are found and left out, until they change or everything is made anew.
Once an hour everything is made anew, as kube-proxy does, in case that somebody's change was not noticed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from kdns import logs
from kdns.aio.refusals import refused
from kdns.aio.syncstats import SyncStats
from kdns.cluster.objects import EndpointSlice, Key, Node, Object, Service, ServiceCIDR
from kdns.cluster.state import AnyChange, State
from kdns.errors import ApplyError
from kdns.proxy.config import Family, NodeView, ProxyConfig
from kdns.proxy.plan import Plan
from kdns.proxy.planner import Difference, Planner, concerned

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

    async def tidy(self) -> bool:
        """Remove what the changes a moment ago left without use; True where some of it must wait for the next time."""
        ...

    async def refusal(self, plan: Plan) -> str:
        """Why the kernel would refuse to `establish` this, "" if it would not. Nothing is changed."""
        ...


@dataclass(frozen=True, slots=True)
class SyncTiming:
    """KubeProxyConfiguration's periods, in seconds."""

    min_sync_s: float = 1.0
    sync_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Synced:
    """What has just been applied: the plan, and the Services that were planned anew.

    `differences` are from the plan before; None where everything was made anew. `refused` are Services that are left
    out from now on, with the reason.
    """

    plan: Plan
    services: Mapping[Key, None]
    differences: Mapping[Family, Difference] | None
    refused: Mapping[Key, str] = field(default_factory=dict)


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
        self.stats = SyncStats(now_s, wall_s)
        self.refused: dict[Key, str] = {}
        self.established = asyncio.Event()
        self.followers: list[Callable[[Synced], None]] = []
        self._situation, self._kinds, self._now_s = situation, kinds, now_s
        self._planner: Planner | None = None
        self._pending: dict[Key, None] = {}
        self._everything = True
        self._distrusted = False
        self._healed_s, self._quarrels = float("-inf"), 0
        self._wanted = asyncio.Event()
        self._full_s = now_s()
        self._untidy_s: float | None = None
        self._retry_s: float | None = None

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
            self.stats.changed(change)
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
        self.stats.queued()
        self._wanted.set()

    async def run(self) -> None:
        """Apply what changes, for ever."""
        failures = 0
        self.look()
        while True:
            await self._work()
            if self._untidy_s is not None and self._now_s() >= self._untidy_s + TIDY_AFTER_S:
                await self._tidy()  # before what is new: what that leaves must stay for a moment
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
                delay_s = min(FIRST_RETRY_S * 2.0 ** min(failures - 1, 16), self.timing.sync_s)
                log.warning("rules not applied", backend=self.backend.name, reason=str(error), retry_in_s=delay_s)
                self._retry_s = self._now_s() + delay_s
                await asyncio.sleep(min(delay_s, FIRST_RETRY_S))
            else:
                failures, self._retry_s = 0, None
                await asyncio.sleep(self.timing.min_sync_s)

    def _heal_s(self) -> float:
        """When to make anew what somebody changed: at once, or later each time if it happens again and again.

        What the cluster changes does not wait for that.
        """
        wait_s = min(2.0 ** (self._quarrels - PATIENCE), self.timing.sync_s) if self._quarrels >= PATIENCE else 0.0
        return self._healed_s + wait_s

    async def _work(self) -> None:
        """Wait until there is something to do."""
        if self._retry_s is not None:  # what else is due is part of what is tried again
            due_s = [self._retry_s]
        else:
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
        waiting = self.stats.begin()
        is_full, self._everything = self._everything or self._planner is None, False
        if self._distrusted and is_full:
            self._quarrels = self._quarrels + 1 if started_s - self._healed_s < QUARREL_S else 0
            self._distrusted, self._healed_s = False, started_s
        try:
            synced = await self._carry_out(services, situation, is_full=is_full)
        except BaseException:
            self._everything = True
            self._untidy_s = None  # nobody knows what may go, until everything is made anew
            self.stats.failed(waiting)
            raise
        finally:
            self.stats.took(self._now_s() - started_s, is_full=is_full)
        self.stats.succeeded(waiting)
        if synced.differences is None:
            self._full_s = self._now_s()
        if synced.differences is None or any(synced.differences.values()):
            log.info(
                "rules applied",
                backend=self.backend.name,
                full=synced.differences is None,
                services=len(self.state.services) if synced.differences is None else len(services),
                took_s=round(self._now_s() - started_s, 4),
            )
        for key, reason in synced.refused.items():
            log.warning("a Service is left out", service="/".join(key), backend=self.backend.name, reason=reason)
        self.established.set()
        for follower in self.followers:
            follower(synced)

    async def _carry_out(self, services: Mapping[Key, None], situation: Situation, *, is_full: bool) -> Synced:
        """Apply; if the kernel refuses that for some of the Services, apply everything without these."""
        again = [key for key in (self.refused if is_full else services) if key in self.refused]
        refusals = {key: reason for key, reason in self.refused.items() if key not in again}
        refusals |= await self._refused(again, situation)
        differences: Mapping[Family, Difference] | None = None
        try:
            if is_full or self._planner is None:
                await self._establish(self._planned(situation, refusals))
            else:
                differences = await self._follow(self._planner, [key for key in services if key not in refusals])
        except ApplyError:
            self.stats.failures += 1
            suspects = [key for key in (self.state.services if is_full else services) if key not in refusals]
            found = await self._refused(suspects, situation)
            planner = self._planned(situation, refusals := refusals | found)
            if not found or not (planner.plan.ipv4.fronts or planner.plan.ipv6.fronts):
                raise
            await self._establish(planner)
        assert self._planner  # noqa: S101 - one of the above has made it
        new = {key: reason for key, reason in refusals.items() if self.refused.get(key) != reason}
        self.refused = refusals
        return Synced(self._planner.plan, services, differences, new)

    async def _establish(self, planner: Planner) -> None:
        self._planner = planner
        await self.backend.establish(planner.plan)

    async def _follow(self, planner: Planner, services: Iterable[Key]) -> Mapping[Family, Difference]:
        differences = planner.update(services)
        if any(differences.values()):
            await self.backend.follow(planner.plan, differences)
            if self._untidy_s is None:
                self._untidy_s = self._now_s()
        return differences

    def _planned(self, situation: Situation, refusals: Container[Key]) -> Planner:
        return Planner(self.state, *situation, services=[key for key in self.state.services if key not in refusals])

    async def _refused(self, suspects: Sequence[Key], situation: Situation) -> dict[Key, str]:
        async def ask(keys: Sequence[Key]) -> str:
            return await self.backend.refusal(Planner(self.state, *situation, services=keys).plan)

        return await refused(ask, suspects)

    async def _tidy(self) -> None:
        try:
            self._untidy_s = self._now_s() if await self.backend.tidy() else None
        except ApplyError as error:
            self._untidy_s = self._now_s()
            self.stats.tidy_failures += 1
            log.info("unused rules stay for now", backend=self.backend.name, reason=str(error))
