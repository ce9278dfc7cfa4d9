"""Mode nftables: the plan's two tables in the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from kdns import logs
from kdns.aio import nft, nftread
from kdns.errors import ApplyError
from kdns.proxy.config import FAMILIES, Family
from kdns.proxy.nftables import NFT_FAMILY, TABLE
from kdns.proxy.nftchange import lines
from kdns.proxy.nfttable import Table
from kdns.proxy.plan import FamilyPlan, Plan
from kdns.proxy.planner import Difference

log = logs.get(__name__)


class NftablesMode:
    """The backend of mode nftables. `mark` is the bit that says that a packet is to be masqueraded."""

    name = "nftables"

    def __init__(self, *, mark: int = 0x4000) -> None:
        self._mark = mark
        self._families = FAMILIES
        self._tables: dict[Family, Table] = {}

    async def establish(self, plan: Plan) -> None:
        """Both tables anew, in one transaction: connections that are under way stay, and so does who is sent where.

        The sets of affinity keep their clients, if the kernel can do without the rest of the table for a moment: those
        before 6.2 may not, and begin anew.
        """
        families = self._families = await known()
        if not self._tables and families != FAMILIES:
            log.warning("virtual IPs of IPv6 are not served", reason="the kernel's nftables know nothing of IPv6")
        tables = {family: self._table(plan.of(family)) for family in families}
        there = {family: await nftread.names(family) for family in families}
        kept = {family: tables[family].takeover(there[family], mark=self._mark) for family in families}
        try:
            await nft.apply(*chain.from_iterable(kept.values()))
        except ApplyError as error:
            if not any(there.values()):
                raise
            log.info("tables begin anew, without the affinity of clients", reason=error.stderr[:200])
            await nft.apply(*(table.whole(mark=self._mark) for table in tables.values()))
        for table in tables.values():
            table.started()
        self._tables = tables

    async def follow(self, plan: Plan, differences: Mapping[Family, Difference]) -> None:
        """The differences as one transaction."""
        changes = [table.follow(plan.of(family), differences[family]) for family, table in self._tables.items()]
        if any(changes):
            await nft.apply(*chain.from_iterable(map(lines, changes)))

    async def tidy(self) -> bool:
        """Remove chains and sets that are not used any more; True where some lead to others, which go after them."""
        for table in self._tables.values():
            done = table.sweep()
            if done:
                await nft.apply(*lines(done))
                table.swept(done)
        return any(table.sweep() for table in self._tables.values())

    async def refusal(self, plan: Plan) -> str:
        """What the kernel has against these tables, of the families that it knew at the last `establish`."""
        tables = (self._table(plan.of(family)).whole(mark=self._mark) for family in self._families)
        return await nft.refusal(*tables)

    def _table(self, half: FamilyPlan) -> Table:
        """One family's table; other modes have other steps at its end."""
        return Table(half)


async def known() -> tuple[Family, ...]:
    """The families that the kernel's nftables know: both, but where the kernel was built without IPv6 in them."""
    missing = await nft.refusal(f"add table {NFT_FAMILY['IPv6']} {TABLE}")
    if missing and not await nft.refusal(f"add table {NFT_FAMILY['IPv4']} {TABLE}"):
        return FAMILIES[:1]
    return FAMILIES


async def clean_up() -> None:
    """Remove kdns's tables, whether they are there or not."""
    families = await known()
    await nft.apply(*(f"{verb} table {NFT_FAMILY[each]} {TABLE}" for each in families for verb in ("add", "delete")))


async def check() -> None:
    """ApplyError where this process may not change the kernel's tables, or cannot: nothing is left of the attempt."""
    await nft.apply(f"add table ip {TABLE}-check", f"delete table ip {TABLE}-check")
