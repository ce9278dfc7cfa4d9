"""What the modes have in common whose rules work in the kernel without this process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kdns.cluster.objects import Key
from kdns.net import Family
from kdns.netlink.conntrack import SocketAddress
from kdns.proxy.plan.plan import Front
from kdns.proxy.plan.stale_flows import serving


class KernelMode:
    """The part of a `RunningMode` that does not depend on the kind of rules."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        """Held while rules change or are compared."""
        self.rejected: Mapping[Key, str] = {}
        """The Services that the kernel rejects rules of, with the reason; all others are served."""

    async def sweep(self) -> None:
        """Nothing: partial syncs leave nothing unused."""

    def udp_targets(self, family: Family, front: Front) -> frozenset[SocketAddress]:
        """Returns the endpoints that serve the front."""
        del family
        return serving(front)

    async def close(self, *, keep_rules: bool) -> None:
        if not keep_rules:
            async with self._turn:
                await self._remove_rules()

    async def _remove_rules(self) -> None:
        raise NotImplementedError
