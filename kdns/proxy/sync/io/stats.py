"""The figures of a sync runner, for /metrics and /healthz: runs, failures, and pending changes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from kdns.cluster.objects import EndpointSlice, Object, Service
from kdns.cluster.state import Change
from kdns.runtime.metrics import Histogram

SYNC_BUCKETS_S: Final = tuple(0.001 * 2**k for k in range(15))
PROGRAMMING_BUCKETS_S: Final = (0.25, 0.5, *range(1, 60), *range(60, 120, 5), *range(120, 301, 30))


@dataclass(slots=True)
class Changes:
    """Changes of objects of one kind: since the last successful sync, and in total."""

    pending: int = 0
    total: int = 0

    def add(self) -> None:
        self.pending += 1
        self.total += 1


class PendingChanges(NamedTuple):
    """Pending changes at the start of a run: their number, their trigger times, and since when."""

    services: int
    endpoints: int
    triggers: list[float]
    since_s: float


@dataclass(slots=True)
class SyncStats:
    """The figures of one sync runner. `last_…_s` are seconds since 1970, `oldest_pending_s` is monotonic."""

    runs: Histogram = field(default_factory=lambda: Histogram(SYNC_BUCKETS_S))
    full: Histogram = field(default_factory=lambda: Histogram(SYNC_BUCKETS_S))
    partial: Histogram = field(default_factory=lambda: Histogram(SYNC_BUCKETS_S))
    programming: Histogram = field(default_factory=lambda: Histogram(PROGRAMMING_BUCKETS_S))
    failures: int = 0
    cleanup_failures: int = 0
    foreign_changes: int = 0
    last_sync_s: float = 0.0
    last_queued_s: float = 0.0
    oldest_pending_s: float | None = None
    services: Changes = field(default_factory=Changes)
    endpoints: Changes = field(default_factory=Changes)
    _triggers: list[float] = field(default_factory=list)
    _started_s: float = field(default_factory=time.time)

    def changed(self, change: Change) -> None:
        """Counts a change, and notes its trigger time unless that is before kdns started."""
        obj = change.new or change.old
        if isinstance(obj, Service):
            self.services.add()
        elif isinstance(obj, EndpointSlice):
            self.endpoints.add()
            trigger_s = _trigger_s(change.old, change.new)
            if trigger_s is not None and trigger_s >= self._started_s:
                self._triggers.append(trigger_s)

    def queued(self) -> None:
        self.last_queued_s = time.time()
        if self.oldest_pending_s is None:
            self.oldest_pending_s = time.monotonic()

    def begin(self) -> PendingChanges:
        since_s = time.monotonic() if self.oldest_pending_s is None else self.oldest_pending_s
        pending = PendingChanges(self.services.pending, self.endpoints.pending, self._triggers, since_s)
        self._triggers, self.oldest_pending_s = [], None
        return pending

    def took(self, took_s: float, *, is_full: bool) -> None:
        for histogram in (self.runs, self.full if is_full else self.partial):
            histogram.add(took_s)

    def failed(self, pending: PendingChanges) -> None:
        self._triggers = pending.triggers + self._triggers
        self.oldest_pending_s = pending.since_s

    def succeeded(self, pending: PendingChanges) -> None:
        now_s = self.last_sync_s = time.time()
        self.services.pending -= pending.services
        self.endpoints.pending -= pending.endpoints
        for trigger_s in pending.triggers:
            self.programming.add(max(now_s - trigger_s, 0.0))


def _trigger_s(old: Object | None, new: Object | None) -> float | None:
    """Returns the trigger time of this change of a slice (annotation endpoints.kubernetes.io/last-change-trigger-time).

    None without an annotation, or if it is that of the previous change.
    """
    annotations = [obj.metadata.annotations if isinstance(obj, EndpointSlice) else None for obj in (old, new)]
    before, when = (annotation.trigger_time if annotation else "" for annotation in annotations)
    if not when or when == before:
        return None
    try:
        return datetime.fromisoformat(when).timestamp()
    except ValueError:
        return None
