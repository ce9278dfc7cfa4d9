"""The counters of mode ipvs: connections that virtual servers have scheduled, by Service port, and what drains."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from kdns.net import FAMILIES, family_of_text
from kdns.netlink.io.ipvs import ipvs
from kdns.netlink.ipvs import VirtualServerKey
from kdns.proxy.ipvs.draining import Draining
from kdns.proxy.plan.front_counters import LABELS, FrontCounters
from kdns.proxy.plan.plan import FamilyPlan, FrontKey, Plan
from kdns.runtime.metrics import COUNTER, Metric, MetricFamilies, Sample


class IpvsCounters:
    """Connections by Service port, the number of virtual servers, and of destinations that drain."""

    def __init__(self, draining: Draining) -> None:
        self._draining = draining
        self._totals = FrontCounters()
        self._lock = asyncio.Lock()
        self._samples: list[Sample] = []
        self._servers = 0

    def register(self, metrics: MetricFamilies) -> None:
        """Adds `kdns_service_connections` and `kdns_ipvs_…`."""
        text = "Connections to a Service port; UDP: clients."
        metrics.add(Metric("kdns_service_connections", text, LABELS, lambda: self._samples, COUNTER))
        text = "Virtual servers of the kernel."
        metrics.add(Metric("kdns_ipvs_virtual_servers", text, (), lambda: [Sample((), self._servers)]))
        text = "Destinations without new connections, which are deleted when theirs have ended."
        metrics.add(Metric("kdns_ipvs_draining_destinations", text, (), lambda: [Sample((), len(self._draining))]))

    async def read(self, plan: Plan) -> None:
        """Asks the kernel; where it does not answer, the counts stay."""
        async with self._lock:
            with suppress(OSError):
                servers = await asyncio.to_thread(_connections)
                self._servers = len(servers)
                self._read(plan, servers)

    def _read(self, plan: Plan, servers: dict[VirtualServerKey, int]) -> None:
        for family in FAMILIES:
            self._totals.read(plan.of(family), "servers", _by_front(plan.of(family), servers))
        self._samples = [Sample(*each) for each in self._totals.highest(plan)]


def _by_front(family_plan: FamilyPlan, servers: Mapping[VirtualServerKey, int]) -> Counter[FrontKey]:
    counts = Counter[FrontKey]()
    for (address, port, protocol), scheduled in servers.items():
        if scheduled and family_of_text(address) == family_plan.family:
            key = FrontKey(address, protocol, port)
            counts[key if key in family_plan.fronts else FrontKey("", protocol, port)] += scheduled
    return counts


async def connections(family_plan: FamilyPlan) -> Counter[FrontKey]:
    return _by_front(family_plan, await asyncio.to_thread(_connections))


def _connections() -> dict[VirtualServerKey, int]:
    with ipvs() as kernel:
        return kernel.connections()
