"""The counters of mode nftables: packets that elements of maps counted in the kernel, by Service port."""

from __future__ import annotations

from collections.abc import Iterable

from kdns.net import FAMILIES, Family
from kdns.netlink.io.nftables import counters
from kdns.proxy.nftables.objects import TABLE, Set
from kdns.proxy.nftables.sets import NO_ENDPOINTS, SERVICES
from kdns.proxy.plan.plan import FamilyPlan, FrontKey, Plan
from kdns.proxy.sync.io.service_counters import ServiceCounters, ServiceMetric


async def _packets(family: Family, maps: Iterable[Set]) -> dict[FrontKey, int]:
    """Without those of 0."""
    elements = [element for counting in maps for element in await counters(family, TABLE, counting.name)]
    return {FrontKey(*element[:3]): element.packets for element in elements if element.packets}


async def connections(family_plan: FamilyPlan) -> dict[FrontKey, int]:
    return await _packets(family_plan.family, SERVICES)


async def _connections(_plan: Plan) -> dict[Family, dict[FrontKey, int]]:
    return {family: await _packets(family, SERVICES) for family in FAMILIES}


async def _refused(_plan: Plan) -> dict[Family, dict[FrontKey, int]]:
    return {family: await _packets(family, NO_ENDPOINTS) for family in FAMILIES}


def nftables_counters() -> ServiceCounters:
    return ServiceCounters(
        ServiceMetric("kdns_service_connections", "Connections to a Service port; UDP: clients.", _connections),
        ServiceMetric(
            "kdns_service_refused_packets",
            "Packets to a Service port that were rejected or dropped for want of endpoints.",
            _refused,
        ),
    )
