"""The counters of mode nftables: packets that elements of maps counted in the kernel, by Service port."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from kdns.errors import ApplyError
from kdns.net import FAMILIES, Family
from kdns.netlink.io.nftables import counters
from kdns.proxy.nftables.objects import TABLE, Set
from kdns.proxy.nftables.sets import NO_ENDPOINTS, SERVICES
from kdns.proxy.plan.front_counters import LABELS, FrontCounters
from kdns.proxy.plan.plan import FamilyPlan, FrontKey, Plan
from kdns.runtime.metrics import COUNTER, Metric, MetricFamilies, Sample


async def _packets(family: Family, counting: Set) -> dict[FrontKey, int]:
    """Returns the packets that the elements of a map counted, without those of 0."""
    elements = await counters(family, TABLE, counting.name)
    return {FrontKey(*each[:3]): each.packets for each in elements if each.packets}


async def connections(family_plan: FamilyPlan) -> dict[FrontKey, int]:
    """Returns the connections to fronts with endpoints that the kernel counted."""
    found = [await _packets(family_plan.family, each) for each in SERVICES]
    return {key: count for each in found for key, count in each.items()}


@dataclass(slots=True)
class _MapCounters:
    """The counters of some maps' elements, by Service port, as of the last reading."""

    maps: tuple[Set, ...]
    front_counters: FrontCounters = field(default_factory=FrontCounters)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    samples: list[Sample] = field(default_factory=list)

    async def read(self, plan: Plan) -> None:
        async with self.lock:
            for family in FAMILIES:
                for each in self.maps:
                    with suppress(ApplyError):
                        self.front_counters.read(plan.of(family), each.name, await _packets(family, each))
            self.samples = [Sample(*each) for each in self.front_counters.highest(plan)]

    def current(self) -> Iterable[Sample]:
        """Yields the samples of the last reading."""
        return self.samples


class NftablesCounters:
    """Connections, and packets that were rejected or dropped since no endpoint was there."""

    def __init__(self) -> None:
        self._connections = _MapCounters(SERVICES)
        self._rejected = _MapCounters(NO_ENDPOINTS)

    def register(self, metrics: MetricFamilies) -> None:
        """Adds `kdns_service_…`."""
        text = "Connections to a Service port; UDP: clients."
        metrics.add(Metric("kdns_service_connections", text, LABELS, self._connections.current, COUNTER))
        text = "Packets to a Service port that were rejected or dropped for want of endpoints."
        metrics.add(Metric("kdns_service_refused_packets", text, LABELS, self._rejected.current, COUNTER))

    async def read(self, plan: Plan) -> None:
        """Asks the kernel. A map that cannot be read keeps its counts."""
        for each in (self._connections, self._rejected):
            await each.read(plan)
