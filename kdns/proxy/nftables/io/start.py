"""Starts mode nftables."""

from __future__ import annotations

from typing import Final

from kdns.proxy.nftables.io.counters import connections
from kdns.proxy.nftables.io.proxier import NftablesProxier
from kdns.proxy.nftables.io.requirements import unsupported
from kdns.proxy.nftables.mode import MODE, NftablesSettings
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import Runtime


async def start(settings: Settings) -> NftablesProxier:
    return NftablesProxier(settings.section(NftablesSettings).mark)


RUNTIME: Final = Runtime(MODE, unsupported, start, connections)
