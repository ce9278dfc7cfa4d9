"""Mode nftables: the plan's two tables in the kernel."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain

from kdns import logs
from kdns.aio.dataplane.nftables import nft
from kdns.aio.dataplane.nftables.counters import NftablesCounters
from kdns.aio.dataplane.nftables.monitor import TablesMonitor
from kdns.aio.dataplane.proxier import ForeignChange, UdpTargets
from kdns.aio.netlink.nftables import object_names
from kdns.errors import ApplyError
from kdns.net import FAMILIES, Family
from kdns.proxy.nftables.objects import NFT_FAMILY, TABLE
from kdns.proxy.nftables.table import Table
from kdns.proxy.nftables.transaction import commands
from kdns.proxy.plan.plan import FamilyPlan, Plan
from kdns.proxy.plan.planner import Difference
from kdns.proxy.plan.stale_flows import serving

log = logs.get(__name__)


class NftablesProxier:
    """The proxier of mode nftables. `owner` is that of the tables, and is closed at the end; see `own_tables`."""

    name = "nftables"

    def __init__(self, owner: socket.socket | None = None) -> None:
        self._owner = owner
        self.counters = NftablesCounters()
        self._families = FAMILIES
        self._tables: dict[Family, Table] = {}

    async def sync_full(self, plan: Plan) -> None:
        """Replace both tables in one transaction. Established connections keep their endpoints.

        The sets of session affinity keep their clients, unless the kernel refuses to keep them while the rest of the
        table is replaced, as kernels before 6.2 may: then the sets are replaced too.
        """
        families = self._families = await supported_families()
        if not self._tables and families != FAMILIES:
            log.warning("virtual IPs of IPv6 are not served", reason="the kernel's nftables does not support IPv6")
        tables = {family: self._table(plan.of(family)) for family in families}
        names = {family: await object_names(family, TABLE) for family in families}
        takeovers = {family: tables[family].takeover(names[family]) for family in families}
        try:
            await nft.apply(*chain.from_iterable(takeovers.values()))
        except ApplyError as error:
            if not any(names.values()):
                raise
            log.info("tables replaced without the clients of session affinity", reason=error.stderr[:200])
            await nft.apply(*(table.whole() for table in tables.values()))
        for table in tables.values():
            table.started()
        self._tables = tables

    async def sync_partial(self, plan: Plan, differences: Mapping[Family, Difference]) -> None:
        """Apply the differences as one transaction."""
        changes = [table.follow(plan.of(family), differences[family]) for family, table in self._tables.items()]
        if any(changes):
            await nft.apply(*chain.from_iterable(map(commands, changes)))

    async def sweep(self) -> bool:
        """Remove unused chains and sets; True where some are left, since others led to them until now."""
        for table in self._tables.values():
            transaction = table.sweep()
            if transaction:
                await nft.apply(*commands(transaction))
                table.swept(transaction)
        return any(table.sweep() for table in self._tables.values())

    async def check(self, plan: Plan) -> str:
        """Why the kernel would reject these tables, in the families that it supported at the last full sync."""
        tables = (self._table(plan.of(family)).whole() for family in self._families)
        return await nft.check(*tables)

    @property
    def udp_targets(self) -> UdpTargets:
        """The endpoints that serve the front."""
        return lambda _family, front: serving(front)

    @contextmanager
    def watch(self, changed: ForeignChange) -> Iterator[None]:
        """Notice foreign changes of the tables."""
        monitor = TablesMonitor(changed)
        monitor.start()
        try:
            yield
        finally:
            monitor.close()

    async def close(self, *, keep_rules: bool) -> None:
        """Remove the tables, unless they are to stay: they work without this process."""
        try:
            if not keep_rules:
                await clean_up()
        finally:
            if self._owner:
                self._owner.close()

    def _table(self, half: FamilyPlan) -> Table:
        """One family's table. A capture has relays in place of endpoints."""
        return Table(half)


async def supported_families() -> tuple[Family, ...]:
    """The families of the kernel's nftables: both, unless the kernel was built without IPv6 in it."""
    reason = await nft.check(f"add table {NFT_FAMILY['IPv6']} {TABLE}")
    if reason and not await nft.check(f"add table {NFT_FAMILY['IPv4']} {TABLE}"):
        return FAMILIES[:1]
    return FAMILIES


async def clean_up() -> None:
    """Remove kdns's tables, whether they are there or not."""
    families = await supported_families()
    await nft.apply(*(f"{verb} table {NFT_FAMILY[each]} {TABLE}" for each in families for verb in ("add", "delete")))


async def require_nftables() -> None:
    """ApplyError where this process cannot, or may not, change the kernel's tables. The attempt leaves nothing."""
    await nft.apply(f"add table ip {TABLE}-check", f"delete table ip {TABLE}-check")
