"""Mode nftables on this machine: how it starts and cleans up."""

from __future__ import annotations

from typing import Final

from kdns.proxy.nftables.io.clean_up import remove_tables
from kdns.proxy.nftables.io.requirements import unsupported
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Mode, RunningMode


async def _start(settings: Settings) -> RunningMode:
    from kdns.proxy.nftables.io.proxier import NftablesProxier  # noqa: PLC0415 - clean-ups need none of it

    del settings  # what the mode needs of them is in the plan
    return NftablesProxier()


MODE: Final = Mode(
    "nftables",
    unsupported=unsupported,
    start=_start,
    cleanups=(remove_tables,),
    sync_failures="kubeproxy_sync_proxy_rules_nftables_sync_failures",
    cleanup_failures="kubeproxy_sync_proxy_rules_nftables_cleanup_failures",
)
