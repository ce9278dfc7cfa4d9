"""Mode iptables: the plan's chains in the tables of iptables, in the back end that the node uses."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from typing import Final

from kdns import logs
from kdns.errors import ApplyError, BusyError
from kdns.net import FAMILIES, Family
from kdns.netlink.io import xtables
from kdns.netlink.io.transactions import TransactionMonitor
from kdns.proxy.iptables.base_chains import JUMPS, Features, serves_loopback
from kdns.proxy.iptables.io.counters import IptablesCounters
from kdns.proxy.iptables.messages import changes_rules
from kdns.proxy.iptables.tables import Tables
from kdns.proxy.node.io.host_settings import set_sysctl
from kdns.proxy.plan.plan import FamilyPlan, Plan
from kdns.proxy.plan.planner import Difference
from kdns.proxy.sync.io.kernel_mode import LOOK_S, KernelMode
from kdns.proxy.sync.io.proxier import Footprint, ForeignChange
from kdns.proxy.xtables.io.clean_up import ROUTE_LOCALNET, marked, remove_chains
from kdns.proxy.xtables.io.programs import Programs
from kdns.proxy.xtables.io.restores import Restores
from kdns.proxy.xtables.names import FIXED, is_iptables_chain

log = logs.get(__name__)

POLL_S: Final = 5.0
"""How often the sizes of tables of iptables-legacy are read: the kernel does not report changes of them."""
_MESSAGE_BYTES: Final = 1 << 23
"""Room for messages about all tables of all programs: their restores may be large."""
_SERVICE: Final = re.compile(r'--comment "([^/ "]+)/([^:/ "]+)')
"""The Service that a rule's comment names."""


class IptablesProxier(KernelMode):
    """The proxier of mode iptables, in the families whose rules the kernel takes.

    While the kernel rejects rules, those of the last sync stay.

    Differs: jumps are made after the chains that they lead to have their rules, so no packet meets half a ruleset.
    """

    name = "iptables"

    def __init__(
        self,
        programs: Programs,
        families: tuple[Family, ...] = FAMILIES,
        features: Features | None = None,
    ) -> None:
        super().__init__()
        self._programs, self._families, self._features = programs, families, features or Features()
        self._tables: dict[Family, Tables] = {}
        self._restores = Restores(programs, families, JUMPS, is_iptables_chain)
        self.is_polled = programs.backend == "legacy"
        self.pause_s = POLL_S if self.is_polled else LOOK_S
        self._sizes: dict[tuple[Family, str], tuple[int, int]] = {}
        self._has_set_sysctl = False
        self._sysctl_reason = ""
        self.counters = IptablesCounters(self._restores.expected)
        self.footprint = Footprint((self._restores.part,))

    async def sync_full(self, plan: Plan) -> None:
        """Writes every chain, and adds the jumps that are not there. Clients with affinity keep their endpoints."""
        async with self._syncing():
            for family in self._families:
                await self._sync_full(plan.of(family))

    @asynccontextmanager
    async def _syncing(self) -> AsyncIterator[None]:
        async with self._turn:
            try:
                yield
            except BusyError:
                raise
            except ApplyError as error:
                self.rejected = {(named[1], named[2]): error.stderr for named in _SERVICE.finditer(error.stderr)}
                raise
            self.rejected = {}

    async def _sync_full(self, family_plan: FamilyPlan) -> None:
        family = family_plan.family
        tables, text = await asyncio.to_thread(self._whole, family_plan)
        await self._restores.restore(family, text)
        self._tables[family] = tables
        await self._restores.insert_missing_jumps(family)
        if family_plan.mode.routes_loopback and family == "IPv4" and serves_loopback(family_plan):
            self._route_loopback()

    def _whole(self, family_plan: FamilyPlan) -> tuple[Tables, str]:
        tables = Tables(family_plan, self._features)
        try:
            return tables, tables.whole(xtables.chains_by_table(self._programs.backend, family_plan.family))
        except OSError as error:
            raise ApplyError(("getsockopt",), f"tables of iptables-legacy cannot be read: {error.strerror}") from error

    async def sync_partial(self, plan: Plan, differences: Mapping[Family, Difference]) -> None:
        """Writes the chains of Service ports that differ, and single rules of the chains that all of them share."""
        async with self._syncing():
            for family, tables in self._tables.items():
                if differences[family]:
                    text = await asyncio.to_thread(tables.follow, plan.of(family), differences[family])
                    if text:
                        await self._restore_part(family, text)

    async def _restore_part(self, family: Family, text: str) -> None:
        try:
            await self._restores.restore(family, text, is_partial=True)
        except ApplyError:
            self.counters.partial_failures[family] += 1
            raise

    def _route_loopback(self) -> None:
        """Lets packets from 127.0.0.0/8 leave, for node ports there; the rules keep others from sending to it."""
        was_set, reason = set_sysctl(ROUTE_LOCALNET, 1)
        self._has_set_sysctl |= was_set
        if reason and reason != self._sysctl_reason:
            expected = "a writable /proc/sys/net, or localhostNodePorts: false"
            log.warning("node ports are not at 127.0.0.1", reason=reason, expected=expected)
        self._sysctl_reason = reason

    def _notices(self, changed: ForeignChange) -> AbstractContextManager[None]:
        if self.is_polled:
            return nullcontext()
        return TransactionMonitor(changes_rules, changed, self._unclear.set, room_bytes=_MESSAGE_BYTES)

    async def difference(self) -> str:
        return await asyncio.to_thread(self._difference)

    def _difference(self) -> str:
        """Tables of iptables-legacy are read if their sizes changed, also by a sync of our own."""
        sizes = self._table_sizes() if self.is_polled else {}
        if sizes and sizes == self._sizes:
            return ""
        difference = self._restores.difference()
        self._sizes = sizes
        return difference

    def _table_sizes(self) -> dict[tuple[Family, str], tuple[int, int]]:
        sizes = {}
        for family in self._families:
            for table in FIXED.keys() & set(xtables.legacy_tables(family)):
                with suppress(OSError):
                    sizes[family, table] = xtables.legacy_size(family, table)
        return sizes

    async def _remove_rules(self) -> None:
        await remove_chains(None, Footprint(keep_kube_proxy=True, marked=await marked()))
        if self._has_set_sysctl:
            set_sysctl(ROUTE_LOCALNET, 0)
