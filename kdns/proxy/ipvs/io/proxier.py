"""Mode ipvs: the plan's virtual servers, the addresses of kube-ipvs0, the sets, and the iptables rules around them.

A full sync reads the kernel's objects and changes the differences, so established connections survive a restart. Its
order lets no connection fail: sets, virtual servers with their destinations, addresses, and then the rules of iptables,
which may replace those of mode iptables. These serve connections until then, IPVS afterwards. Surplus entries of sets
are deleted last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from kdns.errors import ApplyError
from kdns.net import FAMILIES, Family, family_of_text
from kdns.netlink.addresses import VIRTUAL_LINK
from kdns.netlink.io.addresses import is_link_up, link_addresses
from kdns.netlink.io.ipset import ipsets
from kdns.netlink.io.ipvs import ipvs
from kdns.netlink.ipvs import VirtualServer, VirtualServerKey
from kdns.proxy.ipvs.base_chains import JUMPS
from kdns.proxy.ipvs.draining import CHECK_S
from kdns.proxy.ipvs.io import link, sets
from kdns.proxy.ipvs.io.clean_up import IpvsPart, remove_ipvs, stop_draining
from kdns.proxy.ipvs.io.counters import IpvsCounters
from kdns.proxy.ipvs.io.kernel import VirtualServers, changed_servers
from kdns.proxy.ipvs.ipvs import DEFAULTS, Change, Entries, Ipvs, IpvsOptions
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import Difference
from kdns.proxy.sync.io.kernel_mode import KernelMode, and_more, in_thread, rejected_services
from kdns.proxy.sync.io.proxier import Footprint
from kdns.proxy.xtables.io.clean_up import remove_chains
from kdns.proxy.xtables.io.programs import Programs
from kdns.proxy.xtables.io.restores import Restores
from kdns.proxy.xtables.names import is_ipvs_chain

SAMPLE: Final = 16
"""Virtual servers that are compared at a time."""
POLL_S: Final = 2.0
BACKOFF_FACTOR: Final = 200.0
"""The pause is a multiple of the CPU time of a comparison, so comparisons use half a percent of the time."""
MAX_PAUSE_S: Final = 10.0


class IpvsProxier(KernelMode):
    """The proxier of mode ipvs. `families` are those of the kernel's iptables."""

    name = "ipvs"
    is_polled = True
    pause_s = POLL_S

    def __init__(
        self,
        programs: Programs,
        families: tuple[Family, ...] = FAMILIES,
        options: IpvsOptions = DEFAULTS,
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._families, self._options = families, options
        self._now_s = now_s
        self._contents: dict[Family, Ipvs] = {}
        self._servers = VirtualServers(now_s)
        self._link = 0
        self._restores = Restores(programs, families, JUMPS, is_ipvs_chain)
        self._round: list[VirtualServerKey] = []
        self._drained_s = 0.0
        self.counters = IpvsCounters(self._servers.draining)
        self.footprint = Footprint((self._restores.part, IpvsPart()))

    async def sync_full(self, plan: Plan) -> None:
        """Makes everything as the plan has it; what is so already is left alone."""
        await stop_draining()
        async with self._turn:
            # in a thread: 10,000 Services take at least a tenth of a second
            contents = {
                family: await asyncio.to_thread(Ipvs, plan.of(family), self._options) for family in self._families
            }
            self._contents = {}  # if this fails, a partial sync has nothing to start from
            surplus = await in_thread(lambda: self._load(contents))
            for family, content in contents.items():
                await self._restores.restore(family, content.base_chains)
                await self._restores.insert_missing_jumps(family)
            await in_thread(lambda: _delete_entries(surplus))
            self._contents = contents
            self._report_refusals()

    async def sync_partial(self, plan: Plan, differences: Mapping[Family, Difference]) -> None:
        """Carries out what changes: what is new from the sets on, what is old from the addresses on."""
        async with self._turn:
            for family, content in self._contents.items():
                change = content.follow(plan.of(family), differences[family])
                if not change:
                    continue
                if change.restore:
                    await in_thread(partial(self._add_entries, change.new_entries))
                    await self._restores.restore(family, change.restore, is_partial=True)
                await in_thread(partial(self._change, change))
            self._report_refusals()

    async def difference(self) -> str:
        """Deletes drained destinations too."""
        if not self._contents:
            return ""
        sample = self._sample()
        if self._now_s() >= self._drained_s + CHECK_S:
            self._drained_s = self._now_s()
            await in_thread(partial(self._servers.check_draining, self._is_wanted, self._link))
        return await in_thread(lambda: self._compare(sample))

    def _sample(self) -> dict[VirtualServerKey, VirtualServer]:
        if not self._round:
            self._round = [key for content in self._contents.values() for key in content.virtual_servers]
        keys, self._round = self._round[-SAMPLE:], self._round[:-SAMPLE]
        families = [content.virtual_servers for content in self._contents.values()]
        return {key: servers[key] for servers in families for key in keys if key in servers}

    def _is_wanted(self, address: str) -> bool:
        """Whether a desired virtual server has this address."""
        content = self._contents.get(family_of_text(address))
        return content is not None and address in content.addresses

    def _compare(self, sample: Mapping[VirtualServerKey, VirtualServer]) -> str:
        started_s = time.thread_time()
        try:
            return self._look(sample) or self._look_at_addresses()
        finally:
            took_s = time.thread_time() - started_s
            self.pause_s = min(max(POLL_S, BACKOFF_FACTOR * took_s), MAX_PAUSE_S)

    def _look(self, sample: Mapping[VirtualServerKey, VirtualServer]) -> str:
        if not is_link_up(self._link):
            return f"link {VIRTUAL_LINK} is gone or down"
        with ipvs() as kernel:
            if reason := changed_servers(kernel, sample):
                return reason
        expected = {name: len(one.entries) for content in self._contents.values() for name, one in content.sets.items()}
        with ipsets() as kernel_of_sets:
            if reason := sets.changed_sets(kernel_of_sets.headers(), expected):
                return reason
        return self._restores.difference()

    def _look_at_addresses(self) -> str:
        missing = _addresses(self._contents) - link_addresses(self._link) - self._refused_addresses
        return f"address {min(missing)} of {VIRTUAL_LINK} is gone" if missing else ""

    @property
    def _refused_addresses(self) -> set[str]:
        refused = (str(name[0]) for name in self._servers.refused if len(name) == 1)
        return self._servers.without_ipv6.union(refused)

    async def _remove_rules(self) -> None:
        await remove_chains(None, Footprint())
        await remove_ipvs(None, Footprint())

    def _load(self, contents: Mapping[Family, Ipvs]) -> dict[str, set[str]]:
        """Applies everything up to the rules of iptables; returns surplus entries of sets."""
        existing = link.establish()
        self._link = existing.index
        surplus: dict[str, set[str]] = {}
        with ipsets() as kernel:
            for content in contents.values():
                surplus |= sets.add_missing(kernel, content.sets)
        servers = {key: server for content in contents.values() for key, server in content.virtual_servers.items()}
        addresses = _addresses(contents)

        def is_stale(key: VirtualServerKey) -> bool:
            return any(content.is_stale(key) for content in contents.values())

        self._servers.load(servers, is_stale, addresses, self._link)
        if not existing.is_up:
            link.bring_up(self._link)
        return surplus

    def _change(self, change: Change) -> None:
        with ipsets() as kernel:
            if not change.restore:
                self._add_entries(change.new_entries)
            self._servers.change(
                change.virtual_servers, change.new_addresses, change.old_addresses, self._is_wanted, self._link
            )
            sets.delete(kernel, change.old_entries)

    def _add_entries(self, entries: Entries) -> None:
        with ipsets() as kernel:
            for name, some in entries.items():
                for content in self._contents.values():
                    if one := content.sets.get(name):
                        sets.make_room(kernel, one)
                kernel.add(name, some)

    def _report_refusals(self) -> None:
        """Sets `rejected`. ApplyError if something of the last sync failed for a reason outside of the plan."""
        used = (
            (front, content.object_names(front))
            for content in self._contents.values()
            for front in content.family_plan.fronts.values()
        )
        self.rejected = rejected_services(used, self._servers.refused)
        if failures := self._servers.failures:
            raise ApplyError(("netlink",), and_more(failures))


def _delete_entries(surplus: Mapping[str, set[str]]) -> None:
    if surplus:
        with ipsets() as kernel:
            sets.delete(kernel, surplus)


def _addresses(contents: Mapping[Family, Ipvs]) -> frozenset[str]:
    return frozenset[str]().union(*(content.addresses for content in contents.values()))
