"""Totals of Service ports that survive the deletion of the kernel's elements from which they are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from heapq import nlargest
from typing import Final

from kdns.net import Family
from kdns.proxy.plan.plan import FamilyPlan, FrontKey, Plan, PortName

MAX_SERVICE_PORTS: Final = 5000
"""Service ports that have samples of their own: those with the highest counts."""
LABELS: Final = ("namespace", "service", "port", "protocol", "ip_family")


class FrontCounters:
    """Totals by Service port, from readings of the counters of its fronts.

    A counter that is lower than at the last reading started again from zero. What it had counted between that reading
    and its reset is lost.
    """

    def __init__(self) -> None:
        self._readings: dict[Family, Mapping[FrontKey, int]] = {}
        self._totals: Counter[tuple[PortName, Family]] = Counter()

    def read(self, family_plan: FamilyPlan, counts: Mapping[FrontKey, int]) -> None:
        before = self._readings.get(family_plan.family) or {}
        for key, count in counts.items():
            front = family_plan.fronts.get(key)
            if front:
                since = before.get(key, 0)
                self._totals[front.port.name, family_plan.family] += count - since if count >= since else count
        self._readings[family_plan.family] = counts

    def highest(self, plan: Plan) -> list[tuple[tuple[str, ...], int]]:
        """Returns the highest totals with the values of LABELS, those of MAX_SERVICE_PORTS at most."""
        for name, family in [key for key in self._totals if key[0] not in plan.of(key[1]).ports]:
            del self._totals[name, family]
        highest = nlargest(MAX_SERVICE_PORTS, self._totals.items(), key=lambda row: row[1])
        return [((*name, family), count) for (name, family), count in highest]
