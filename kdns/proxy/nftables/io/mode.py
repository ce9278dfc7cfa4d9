"""Mode nftables on this machine: how it starts and cleans up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kdns.proxy.nftables.io.clean_up import remove_tables
from kdns.proxy.nftables.io.requirements import unsupported
from kdns.proxy.plan.plan import FamilyPlan, FrontKey
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Mode, RunningMode


async def _start(settings: Settings) -> RunningMode:
    from kdns.proxy.nftables.io.proxier import NftablesProxier  # noqa: PLC0415 - clean-ups need none of it

    del settings  # what the mode needs of them is in the plan
    return NftablesProxier()


async def _connections(family_plan: FamilyPlan) -> Mapping[FrontKey, int]:
    from kdns.proxy.nftables.io.counters import connections  # noqa: PLC0415 - clean-ups need none of it

    return await connections(family_plan)


MODE: Final = Mode(
    "nftables",
    unsupported=unsupported,
    start=_start,
    connections=_connections,
    cleanups=(remove_tables,),
    sync_failures="kubeproxy_sync_proxy_rules_nftables_sync_failures",
    cleanup_failures="kubeproxy_sync_proxy_rules_nftables_cleanup_failures",
)
