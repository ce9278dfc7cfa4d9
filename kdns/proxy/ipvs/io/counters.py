"""The counters of mode ipvs: connections that virtual servers have scheduled, by Service port, and what drains."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from kdns.net import FAMILIES, Family, family_of_text
from kdns.netlink.io.ipvs import ipvs
from kdns.netlink.ipvs import VirtualServerKey
from kdns.proxy.ipvs.draining import Draining
from kdns.proxy.plan.plan import FamilyPlan, FrontKey, Plan
from kdns.proxy.sync.io.service_counters import ServiceCounters, ServiceMetric
from kdns.runtime.metrics import Metric, MetricFamilies, Sample


class IpvsCounters(ServiceCounters):
    """Connections by Service port, the number of virtual servers, and of destinations that drain."""

    def __init__(self, draining: Draining) -> None:
        text = "Connections to a Service port; UDP: clients."
        super().__init__(ServiceMetric("kdns_service_connections", text, self._connections))
        self._draining = draining
        self._servers = 0

    def register(self, metrics: MetricFamilies) -> None:
        super().register(metrics)
        text = "Virtual servers of the kernel."
        metrics.add(Metric("kdns_ipvs_virtual_servers", text, (), lambda: [Sample((), self._servers)]))
        text = "Destinations without new connections, which are deleted when theirs have ended."
        metrics.add(Metric("kdns_ipvs_draining_destinations", text, (), lambda: [Sample((), len(self._draining))]))

    async def _connections(self, plan: Plan) -> dict[Family, Counter[FrontKey]]:
        servers = await asyncio.to_thread(_scheduled)
        self._servers = len(servers)
        return {family: _by_front(plan.of(family), servers) for family in FAMILIES}


def _by_front(family_plan: FamilyPlan, servers: Mapping[VirtualServerKey, int]) -> Counter[FrontKey]:
    counts = Counter[FrontKey]()
    for (address, port, protocol), scheduled in servers.items():
        if scheduled and family_of_text(address) == family_plan.family:
            key = FrontKey(address, protocol, port)
            counts[key if key in family_plan.fronts else FrontKey("", protocol, port)] += scheduled
    return counts


async def connections(family_plan: FamilyPlan) -> Counter[FrontKey]:
    return _by_front(family_plan, await asyncio.to_thread(_scheduled))


def _scheduled() -> dict[VirtualServerKey, int]:
    with ipvs() as kernel:
        return kernel.connections()
