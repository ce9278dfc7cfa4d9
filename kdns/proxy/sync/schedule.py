"""When the rules are synced: what is due at a time, from what happened until then.

Changes are synced at once. While changes go on, syncs rest as long as the last one took, for minSyncPeriod at most,
and what arrives meanwhile is synced together. Full syncs are minSyncPeriod apart.

Differs: kube-proxy lets minSyncPeriod pass between all syncs. Here a sync of few changes takes milliseconds.

A failed sync is retried as a full one, with pauses that double up to syncPeriod. Changes and foreign changes do not
wait for the retry, but for a rest after the failure. The same rest comes before the next repair in a series of foreign
changes; changes of the cluster are synced meanwhile. So repeated failures and repairs use at most 25 % of the time.

A full sync runs once an hour, as in kube-proxy, in case a foreign change was missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from math import inf
from typing import Final

SWEEP_DELAY_S: Final = 1.0
"""How long what a partial sync left unused has to stay; see `Table.sweep`."""
FIRST_RETRY_S: Final = 1.0
FULL_SYNC_S: Final = 3600.0
CONFLICT_S: Final = 60.0
"""Foreign changes within this time of the last repair form a series."""
IMMEDIATE_REPAIRS: Final = 3
"""How many foreign changes in a row are repaired at once, however long the repairs take."""
BACKOFF_FACTOR: Final = 3.0
"""How long syncs rest after failures and repairs in a row, as a multiple of how long the last one took."""


class Step(IntEnum):
    """What may be due. Of several, the first one comes first: a full sync includes a partial one."""

    SWEEP = 0
    FULL = 1
    PARTIAL = 2


@dataclass(frozen=True, slots=True)
class SyncTiming:
    """KubeProxyConfiguration's periods, in seconds."""

    min_sync_s: float = 1.0
    sync_s: float = 30.0


class Schedule:
    """What is due when. All times are monotonic seconds; `-inf` is at once, `inf` never. The first sync is a full one.

    A sync begins by `begin` and ends by one of `succeeded`, `failed` and `cancelled`, a sweep by one of `swept` and
    `sweep_failed`.
    """

    def __init__(self, timing: SyncTiming) -> None:
        self._timing = timing
        self._needs_full, self._has_changes = True, False
        self.is_foreign = False
        """Whether a foreign change waits for its repair."""
        self._is_urgent = False
        """Whether anything is new since the last sync began: then a retry may come early."""
        self._is_repair = False
        self._started_s = 0.0
        self._rest_s = self._full_rest_s = -inf
        self._next_full_s = self._sweep_s = self._retry_s = inf
        self._failures = 0
        self._repaired_s, self._repair_took_s, self._conflicts = -inf, 0.0, 0

    @property
    def is_pending(self) -> bool:
        return self._needs_full or self._has_changes or self.is_foreign

    def changed(self) -> None:
        self._has_changes = self._is_urgent = True

    def inputs_changed(self) -> None:
        self._needs_full = self._is_urgent = True

    def foreign_change(self) -> None:
        """Notes that another process changed the rules: a full sync repairs them."""
        self.is_foreign = self._is_urgent = True

    def due(self, now_s: float) -> Step | None:
        """Returns what is to be done now; None if there is nothing to do before `next_s`."""
        return min((step for step, at_s in self._steps() if at_s <= now_s), default=None)

    @property
    def next_s(self) -> float:
        return min((at_s for _, at_s in self._steps()), default=inf)

    def _steps(self) -> Iterator[tuple[Step, float]]:
        yield Step.SWEEP, self._sweep_s
        if self._retry_s != inf:  # which includes whatever else is due
            yield Step.FULL, self._rest_s if self._is_urgent else self._retry_s
        elif self._needs_full:
            yield Step.FULL, self._full_rest_s
        else:
            yield Step.FULL, self._next_full_s
            if self.is_foreign:
                yield Step.FULL, max(self._repair_s, self._full_rest_s)
            if self._has_changes:
                yield Step.PARTIAL, self._rest_s

    @property
    def _repair_s(self) -> float:
        is_series = self._conflicts >= IMMEDIATE_REPAIRS
        rest_s = min(BACKOFF_FACTOR * self._repair_took_s, self._timing.sync_s) if is_series else 0.0
        return self._repaired_s + rest_s

    def begin(self, step: Step, now_s: float) -> None:
        """A sync begins, with everything that was noted until now."""
        self._started_s, self._is_urgent, self._has_changes = now_s, False, False
        self._is_repair = step is Step.FULL and self.is_foreign
        if step is Step.FULL:
            self._needs_full = self.is_foreign = False
        if self._is_repair:
            self._conflicts = self._conflicts + 1 if now_s - self._repaired_s < CONFLICT_S else 0

    def succeeded(self, now_s: float, *, is_full: bool, leaves_unused: bool = False) -> None:
        """The sync that began last has succeeded, as a full one if a partial one was not possible."""
        took_s = self._ended(now_s)
        self._failures, self._retry_s = 0, inf
        self._rest_s = now_s + min(self._timing.min_sync_s, took_s)
        if is_full:
            self._next_full_s, self._full_rest_s = now_s + FULL_SYNC_S, now_s + self._timing.min_sync_s
        if leaves_unused:
            self._sweep_s = min(self._sweep_s, now_s + SWEEP_DELAY_S)

    def failed(self, now_s: float) -> float:
        """The sync that began last has failed; returns in how many seconds it is retried if nothing new is noted."""
        took_s = self._ended(now_s)
        self.cancelled()
        self._failures += 1
        delay_s = min(FIRST_RETRY_S * 2.0 ** min(self._failures - 1, 16), self._timing.sync_s)
        self._retry_s = now_s + delay_s
        self._rest_s = now_s + min(delay_s, max(FIRST_RETRY_S, BACKOFF_FACTOR * took_s))
        return delay_s

    def cancelled(self) -> None:
        """The sync did not come to its end: only a full one finds out what is unused."""
        self._needs_full, self._sweep_s = True, inf

    def _ended(self, now_s: float) -> float:
        took_s = now_s - self._started_s
        if self._is_repair:
            self._repaired_s, self._repair_took_s = now_s, took_s
        return took_s

    def swept(self) -> None:
        self._sweep_s = inf

    def sweep_failed(self, now_s: float) -> None:
        self._sweep_s = now_s + SWEEP_DELAY_S
