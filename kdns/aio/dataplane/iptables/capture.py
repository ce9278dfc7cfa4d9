"""Capture for relays by iptables, where nftables is missing."""

from __future__ import annotations

from collections.abc import Mapping

from kdns.aio.dataplane.iptables.programs import Programs, choose, families
from kdns.aio.dataplane.iptables.proxier import IptablesProxier, RuleTables
from kdns.net import FAMILIES, Address, Family
from kdns.proxy.iptables.capture import CHAINS, JUMPS, CaptureTables, removal
from kdns.proxy.iptables.names import CANARY
from kdns.proxy.plan.plan import FamilyPlan
from kdns.proxy.userspace.relays import RelayKey


class IptablesCapture(IptablesProxier):
    """See `kdns.aio.dataplane.userspace.capture.Capture`."""

    _jumps = JUMPS

    def __init__(self, programs: Programs, families: tuple[Family, ...] = FAMILIES) -> None:
        super().__init__(programs, families)
        self.relay_ports: Mapping[RelayKey, int] = {}
        self.relay_addresses: dict[Family, Address | None] = {}

    def prepare(self) -> None:
        """Nothing: the programs are processes of their own."""

    async def close(self, *, keep_rules: bool) -> None:
        """Remove the rules that capture, unless they are to stay.

        Where their jumps are gone, another mode has removed them, and what is there is that mode's.
        """
        if keep_rules:
            return
        async with self._turn:
            for family in self._families:
                if jumps := [jump for jump in self._jumps if await self._programs.has(family, jump)]:
                    await self._programs.restore(family, removal(jumps))

    def _made(self, half: FamilyPlan) -> RuleTables:
        return CaptureTables(half, self.relay_ports, self.relay_addresses[half.family])

    def _keeps(self, table: str, chain: str) -> bool:
        return chain == CANARY or chain in CHAINS.get(table, ())


async def iptables_capture() -> tuple[IptablesCapture | None, str]:
    """The capture, or None and the reason why iptables cannot do it here."""
    programs, reason = await choose()
    return (IptablesCapture(programs, await families(programs)), "") if programs else (None, reason)
