"""Mode nftables: the plan's two tables in the kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from kdns import logs
from kdns.errors import ApplyError
from kdns.net import FAMILIES, Family
from kdns.netlink.io.nftables import object_names, rule_counts
from kdns.netlink.io.transactions import TransactionMonitor
from kdns.netlink.transactions import changes_table
from kdns.proxy.nftables.elements import Request, element_requests, flushed
from kdns.proxy.nftables.io import nft
from kdns.proxy.nftables.io.clean_up import NftablesPart
from kdns.proxy.nftables.io.counters import nftables_counters
from kdns.proxy.nftables.objects import NFT_FAMILY, TABLE, Transaction, commands
from kdns.proxy.nftables.sets import NUMBERED
from kdns.proxy.nftables.table import Table
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import Difference
from kdns.proxy.settings.section import DEFAULT_MARK
from kdns.proxy.sync.io.kernel_mode import KernelMode
from kdns.proxy.sync.io.proxier import Footprint, ForeignChange
from kdns.runtime.tasks import uninterrupted

log = logs.get(__name__)


class NftablesProxier(KernelMode):
    """The proxier of mode nftables."""

    name = "nftables"
    footprint = Footprint((NftablesPart(),))

    def __init__(self, masquerade_mark: int = DEFAULT_MARK) -> None:
        super().__init__()
        self._masquerade_mark = masquerade_mark
        self.counters = nftables_counters()
        self._families = FAMILIES
        self._tables: dict[Family, Table] = {}

    async def sync_full(self, plan: Plan) -> None:
        """Replaces both tables. Established connections keep their endpoints, clients with affinity theirs.

        Rules come first, then all elements in one transaction, and then what makes a new table effective or is not used
        any more. So a packet meets the elements of before or those of the plan, with rules that are right for both.
        Numbers of earlier chains stay until the last step, for packets that have looked up one.
        Where the kernel refuses rules beside what is there, as that is of another kind, the tables are replaced in one
        transaction of text.
        """
        async with self._turn:
            await self._sync_full(plan)

    async def _sync_full(self, plan: Plan) -> None:
        families = self._families = await supported_families()
        if not self._tables and families != FAMILIES:
            log.warning("virtual IPs of IPv6 are not served", reason="the kernel's nftables does not support IPv6")
        tables = {family: Table(plan.of(family), self._masquerade_mark) for family in families}
        existing = {family: await object_names(family, TABLE) for family in families}
        requests: list[Request] = []
        for family, table in tables.items():
            sets = table.sets
            emptied = (old for name, old in sets.items() if not old.dynamic_size and name not in NUMBERED)
            requests += flushed(family, emptied)
            for change in table.loaded():
                requests += element_requests(change, sets)
        try:
            await nft.apply(*(line for family in families for line in tables[family].before_elements(existing[family])))
            await nft.apply_elements(requests)
        except ApplyError as error:
            if not any(existing.values()):
                raise
            log.info("tables replaced without the clients of session affinity", reason=error.stderr[:200])
            tables = {family: Table(plan.of(family), self._masquerade_mark) for family in families}
            await nft.apply(*(table.whole() for table in tables.values()))
        else:
            if last := [line for family in families for line in tables[family].after_elements(existing[family])]:
                await nft.apply_elements([request for table in tables.values() for request in _chain_numbers(table)])
                await nft.apply(*last)
        self._tables = tables

    async def sync_partial(self, plan: Plan, differences: Mapping[Family, Difference]) -> None:
        """Applies the differences: new chains, to which nothing leads yet, and then all elements in one transaction."""
        async with self._turn:
            await self._sync_partial(plan, differences)

    async def _sync_partial(self, plan: Plan, differences: Mapping[Family, Difference]) -> None:
        changes = [table.follow(plan.of(family), differences[family]) for family, table in self._tables.items()]
        if any(table.has_many_unused for table in self._tables.values()):
            await self._sync_full(plan)
            return
        if chains := [
            line for change in changes for line in commands(Transaction(change.family, chains=change.chains))
        ]:
            await nft.apply(*chains)
        await nft.apply_elements(
            [request for change in changes for request in element_requests(change, self._tables[change.family].sets)]
        )

    async def sweep(self) -> None:
        """Deletes the elements that no packet looks up any more.

        It comes to its end even when the calling task is cancelled: what is deleted must not be deleted again.
        """
        await uninterrupted(self._sweep())

    async def _sweep(self) -> None:
        async with self._turn:
            for table in self._tables.values():
                if transaction := table.sweep():
                    await nft.apply_elements(list(element_requests(transaction, table.sets)))
                    table.swept()

    def _notices(self, changed: ForeignChange) -> TransactionMonitor:
        return TransactionMonitor(changes_table(TABLE), changed, self._unclear.set, table=TABLE)

    async def difference(self) -> str:
        """Elements are not compared."""
        for family, table in self._tables.items():
            names = await object_names(family, TABLE)
            rules = await asyncio.to_thread(rule_counts, family, TABLE)
            if difference := table.difference(names, rules):
                return f"{NFT_FAMILY[family]} {TABLE} {difference}"
        return ""

    async def _remove_rules(self) -> None:
        await clean_up()


def _chain_numbers(table: Table) -> Iterator[Request]:
    """Replaces all numbers of chains by those that the fronts use."""
    change = table.chain_numbers()
    yield from flushed(change.family, (table.sets[name] for name in NUMBERED))
    yield from element_requests(change, table.sets)


async def supported_families() -> tuple[Family, ...]:
    """Both, unless the kernel was built without IPv6 in its nftables."""
    reason = await nft.check(f"add table {NFT_FAMILY['IPv6']} {TABLE}")
    if reason and not await nft.check(f"add table {NFT_FAMILY['IPv4']} {TABLE}"):
        return FAMILIES[:1]
    return FAMILIES


async def clean_up() -> None:
    families = await supported_families()
    tables = [f"table {NFT_FAMILY[family]} {TABLE}" for family in families]
    await nft.apply(*(f"{verb} {table}" for table in tables for verb in ("add", "delete")))
