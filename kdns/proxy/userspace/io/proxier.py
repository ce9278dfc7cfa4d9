"""Mode userspace: a relay for every front, and rules that capture packets for them.

Differs: kube-proxy's relays knew no traffic policies, topology or source ranges, accepted a connection for which there
was no endpoint, and ended both directions when one ended. Here they follow the same plan as the kernel's modes.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import chain
from typing import Final

from kdns import logs
from kdns.cluster.objects import Key
from kdns.errors import ApplyError
from kdns.net import FAMILIES, Address, Family, is_loopback
from kdns.netlink.conntrack import SocketAddress
from kdns.proxy.plan.plan import FamilyPlan, Front, Plan
from kdns.proxy.plan.planner import Difference
from kdns.proxy.sync.io.proxier import Footprint, ForeignChange, RunningMode, UdpTargets
from kdns.proxy.userspace.capture import Capture
from kdns.proxy.userspace.io.counters import RelayCounters
from kdns.proxy.userspace.io.relay_set import ListenAddresses, RelaySet, listen_addresses
from kdns.proxy.userspace.io.resources import RelayResources
from kdns.proxy.userspace.io.sockets import is_own_address, supported_families
from kdns.proxy.userspace.relays import RelayKey, relay_addresses, relay_keys
from kdns.proxy.userspace.sessions import Sessions
from kdns.runtime.tasks import restarted

UPKEEP_S: Final = 30.0
"""How often listeners that could not be opened are retried, and clients forgotten whose affinity has timed out."""

log = logs.get(__name__)


class UserspaceProxier:
    """The proxier of mode userspace, made in a running loop. It is to be closed: rules must not outlive relays.

    `kernel` captures packets for relays: a mode of the kernel whose endpoints are relays. Without one, only fronts at
    this machine's own addresses are served. Relays that capture take their ports from `ports`; empty: the kernel
    chooses. `limit` bounds the descriptors, None: what the process may have. `draw(n)` chooses the first endpoint of a
    Service port.
    """

    name = "userspace"

    def __init__(
        self,
        kernel: RunningMode | None = None,
        *,
        ports: range = range(0),
        udp_idle_s: float = 0.25,
        limit: int | None = None,
        now_s: Callable[[], float] = time.monotonic,
        draw: Callable[[int], int] = random.randrange,
    ) -> None:
        self._kernel = kernel
        self._capture: Capture | None = None
        self._addresses: dict[Family, Address] = {}
        self._now_s, self._sessions = now_s, Sessions(draw=draw)
        self.counters = RelayCounters(self._sessions.ports, kernel.counters if kernel else None)
        self._lock = asyncio.Lock()
        self._families = supported_families()
        self._resources = RelayResources(self._sessions, limit, now_s)
        self._relays = RelaySet(self._resources, ports, udp_idle_s)
        self.listening, self.missing = self._relays.listening, self._relays.missing
        self._upkeep = restarted(self._run_upkeep, "upkeep of relays")
        if self._families != FAMILIES:
            log.warning("virtual IPs of IPv6 are not served", reason="this machine has no IPv6")

    async def sync_full(self, plan: Plan) -> None:
        """Opens and closes relays by the plan, and replaces the rules. Connections stay established."""
        async with self._lock:
            relays, self._sessions.plan = self._relays, plan
            family_plans = [plan.of(family) for family in FAMILIES]
            self._addresses = {each.family: _own_address(each) for each in family_plans}
            wanted: dict[RelayKey, ListenAddresses] = {}
            for family_plan in family_plans:
                wanted |= self._listen_addresses(family_plan, family_plan.fronts.values())
            relays.close([key for key, where in relays.listening.items() if wanted.get(key, where) != where])
            relays.open(wanted)
            if self._kernel:
                self._capture = Capture(plan, relays.captured_ports, self._addresses)
                await self._kernel.sync_full(self._capture.plan)
            relays.close([key for key in (*relays.listening, *relays.missing) if key not in wanted])
            for name in self._sessions.ports.keys() - {*plan.ipv4.ports, *plan.ipv6.ports}:
                del self._sessions.ports[name]
            for family_plan in family_plans:
                for port in family_plan.ports.values():
                    relays.end_stale_flows(family_plan.family, port)

    async def sync_partial(self, plan: Plan, differences: Mapping[Family, Difference]) -> None:
        """Opens relays of new fronts, captures for them, and closes those of fronts that are gone.

        Where only endpoints differ, no relay and no rule changes.
        """
        async with self._lock:
            relays, self._sessions.plan = self._relays, plan
            gone: list[RelayKey] = []
            for family, difference in differences.items():
                wanted = self._listen_addresses(plan.of(family), (new for _, new in difference.fronts.values() if new))
                relays.open(wanted)
                before = (old for old, _ in difference.fronts.values() if old)
                gone += self._listen_addresses(plan.of(family), before).keys() - wanted.keys()
            if self._kernel and self._capture:
                captured = self._capture.follow(differences)
                if any(captured.values()):
                    await self._kernel.sync_partial(self._capture.plan, captured)
            relays.close(gone)
            for family, difference in differences.items():
                for name, (_, new) in difference.ports.items():
                    if new:
                        relays.end_stale_flows(family, new)
                    elif name not in plan.ipv4.ports and name not in plan.ipv6.ports:
                        self._sessions.ports.pop(name, None)

    async def sweep(self) -> None:
        async with self._lock:
            if self._kernel:
                await self._kernel.sweep()

    @property
    def rejected(self) -> Mapping[Key, str]:
        return self._kernel.rejected if self._kernel else {}

    @property
    def udp_targets(self) -> UdpTargets | None:
        """The relays of the front, which have other ports after a restart, and after a time without endpoints."""
        return self._udp_targets if self._kernel else None

    @property
    def footprint(self) -> Footprint:
        return self._kernel.footprint if self._kernel else Footprint()

    def watch(self, changed: ForeignChange) -> AbstractContextManager[None]:
        return self._kernel.watch(changed) if self._kernel else nullcontext()

    async def close(self, *, keep_rules: bool = False) -> None:
        """Removes the rules that capture, which would lead nowhere, and then closes the relays.

        Connections are reset before: without the rules the kernel may not translate what is sent to their clients.
        """
        del keep_rules
        self._upkeep.cancel()
        with suppress(asyncio.CancelledError):
            await self._upkeep
        async with self._lock:
            try:
                self._resources.reset()
                if self._kernel:
                    await self._kernel.close(keep_rules=self._sessions.plan is None)
            finally:
                self._relays.close(self._relays.listening)
                self._resources.close()

    def _udp_targets(self, family: Family, front: Front) -> frozenset[SocketAddress]:
        if is_loopback(front.key.address):
            return frozenset({(front.key.address, front.key.port)})
        address, ports = str(self._addresses[family]), self._relays.captured_ports
        keys = relay_keys(family, front, captures=True)
        return frozenset((address, ports[key]) for key in keys if key in ports)

    def _listen_addresses(self, family_plan: FamilyPlan, fronts: Iterable[Front]) -> dict[RelayKey, ListenAddresses]:
        if family_plan.family not in self._families:
            return {}
        captures, own = self._kernel is not None, self._addresses[family_plan.family]
        keys = chain.from_iterable(relay_keys(family_plan.family, front, captures=captures) for front in fronts)
        return {key: listen_addresses(family_plan, key, own) for key in keys}

    async def _run_upkeep(self) -> None:
        """Every UPKEEP_S, retry listeners that could not be opened, and forget clients without affinity."""
        while True:
            await asyncio.sleep(UPKEEP_S)
            self._sessions.sweep(self._now_s())
            if self.missing and self._sessions.plan:
                try:
                    await self.sync_full(self._sessions.plan)
                except ApplyError as error:
                    log.warning("capture for relays not synced yet", reason=str(error))


def _own_address(family_plan: FamilyPlan) -> Address:
    *own, last = relay_addresses(family_plan)
    return next(filter(is_own_address, own), last)
