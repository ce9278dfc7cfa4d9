"""What the kernel counts for fronts, as totals of Service ports in /metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from kdns.errors import ApplyError
from kdns.net import FAMILIES, Family
from kdns.proxy.plan.front_counters import LABELS, FrontCounters
from kdns.proxy.plan.plan import FrontKey, Plan
from kdns.runtime.metrics import COUNTER, Metric, MetricFamilies, Sample


class ServiceMetric(NamedTuple):
    """A counter of Service ports. `read` returns what the kernel counted, by family and front."""

    name: str
    text: str
    read: Callable[[Plan], Awaitable[Mapping[Family, Mapping[FrontKey, int]]]]


class ServiceCounters:
    """The totals as of the last reading. What cannot be read keeps its counts."""

    def __init__(self, *counted: ServiceMetric) -> None:
        self._counted = {metric: FrontCounters() for metric in counted}
        self._samples: dict[str, list[Sample]] = {metric.name: [] for metric in counted}
        self._lock = asyncio.Lock()

    def register(self, metrics: MetricFamilies) -> None:
        for metric in self._counted:
            samples = partial(self._samples.__getitem__, metric.name)
            metrics.add(Metric(metric.name, metric.text, LABELS, samples, COUNTER))

    async def read(self, plan: Plan) -> None:
        async with self._lock:
            for metric, totals in self._counted.items():
                with suppress(ApplyError, OSError):
                    counts = await metric.read(plan)
                    for family in FAMILIES:
                        totals.read(plan.of(family), counts[family])
                self._samples[metric.name] = [Sample(*row) for row in totals.highest(plan)]
