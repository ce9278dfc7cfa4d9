"""Counters of Service ports that go on when the kernel's elements they are read from are made anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, TypeAlias

from kdns.proxy.config import Family
from kdns.proxy.plan import FamilyPlan, FrontKey, Plan, PortName

Counted: TypeAlias = tuple[PortName, Family]
_START: Final[Mapping[FrontKey, int]] = {}


class Tally:
    """Adds up what counters of fronts have gained from one reading to the next.

    One that shows less than before began anew in between: what it shows has come since, and only what it counted
    between the last reading and that moment is lost.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[Family, str], Mapping[FrontKey, int]] = {}
        self._totals: Counter[Counted] = Counter()

    def read(self, half: FamilyPlan, map_name: str, counts: Mapping[FrontKey, int]) -> None:
        """Take what the elements of a map count now."""
        before = self._seen.get((half.family, map_name), _START)
        for key, count in counts.items():
            front = half.fronts.get(key)
            if front:
                since = before.get(key, 0)
                self._totals[front.port.name, half.family] += count - since if count >= since else count
        self._seen[half.family, map_name] = counts

    def totals(self, plan: Plan) -> Mapping[Counted, int]:
        """What each Service port of the plan has counted; others are forgotten."""
        for name, family in [each for each in self._totals if each[0] not in plan.of(each[1]).ports]:
            del self._totals[name, family]
        return self._totals
