"""Capture for relays by iptables, where nftables is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kdns.net import FAMILIES, Address, Family
from kdns.netlink.io import xtables
from kdns.proxy.iptables.capture import CHAINS, JUMPS, CaptureTables
from kdns.proxy.iptables.io.clean_up import remove_stale
from kdns.proxy.iptables.io.programs import Programs, choose, families
from kdns.proxy.iptables.io.proxier import IptablesProxier, RuleTables
from kdns.proxy.iptables.names import CANARY
from kdns.proxy.plan.plan import FamilyPlan
from kdns.proxy.sync.io.proxier import Footprint
from kdns.proxy.userspace.relays import RelayKey


class IptablesCapture(IptablesProxier):
    """See `kdns.proxy.userspace.io.capture.Capture`."""

    _jumps = JUMPS

    def __init__(self, programs: Programs, families: tuple[Family, ...] = FAMILIES) -> None:
        super().__init__(programs, families)
        self.relay_ports: Mapping[RelayKey, int] = {}
        self.relay_addresses: dict[Family, Address | None] = {}

    def prepare(self) -> None:
        """Nothing: the programs are processes of their own."""

    async def close(self, *, keep_rules: bool) -> None:
        """Removes the rules that capture, unless they are to stay.

        Where their jumps are gone, another mode has removed them, and what is there is that mode's.
        """
        if keep_rules:
            return
        async with self._turn:
            for family in self._families:
                if any([await self._programs.has(family, jump) for jump in self._jumps]):
                    await self._remove(family)

    async def _remove(self, family: Family) -> None:
        """Removes every jump, also those that others have doubled, and the chains."""
        existing = await asyncio.to_thread(xtables.chains_by_table, self._programs.backend, family)
        own = {table: [name for name in names if self._keeps(table, name)] for table, names in existing.items()}
        await remove_stale(
            self._programs, family, {table: names for table, names in own.items() if names}, existing, Footprint()
        )

    def _made(self, family_plan: FamilyPlan) -> RuleTables:
        return CaptureTables(family_plan, self.relay_ports, self.relay_addresses[family_plan.family])

    def _keeps(self, table: str, chain: str) -> bool:
        return chain == CANARY or chain in CHAINS.get(table, ())


async def iptables_capture() -> tuple[IptablesCapture | None, str]:
    """Returns the capture, or None and the reason why iptables cannot do it here."""
    programs, reason = await choose()
    return (IptablesCapture(programs, await families(programs)), "") if programs else (None, reason)
