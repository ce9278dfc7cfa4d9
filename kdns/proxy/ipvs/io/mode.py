"""Mode ipvs on this machine: how it starts and cleans up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kdns.proxy.ipvs.io.clean_up import remove_ipvs
from kdns.proxy.plan.plan import FamilyPlan, FrontKey
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Mode, RunningMode
from kdns.proxy.xtables.io.clean_up import remove_chains


async def _unsupported(settings: Settings) -> str:
    from kdns.proxy.ipvs.io.probe import unsupported  # noqa: PLC0415 - clean-ups need none of it

    return await unsupported(settings)


async def _start(settings: Settings) -> RunningMode:
    from kdns.proxy.ipvs.io.start import start  # noqa: PLC0415 - clean-ups need none of it

    return await start(settings)


async def _connections(family_plan: FamilyPlan) -> Mapping[FrontKey, int]:
    from kdns.proxy.ipvs.io.counters import connections  # noqa: PLC0415 - clean-ups need none of it

    return await connections(family_plan)


MODE: Final = Mode(
    "ipvs",
    unsupported=_unsupported,
    start=_start,
    connections=_connections,
    cleanups=(remove_chains, remove_ipvs),
    sync_failures="kubeproxy_sync_proxy_rules_iptables_restore_failures",
    cleanup_failures="kdns_proxy_ipvs_cleanup_failures",
    fallbacks=("iptables", "nftables"),
)
