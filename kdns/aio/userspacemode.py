"""Mode userspace: a relay for every front, and rules that capture what comes to it.

Differs: kube-proxy's relays knew no traffic policies, topology or source ranges, took a connection for which there was
no endpoint, and ended both directions when one ended. Here they follow the same plan as the kernel's modes.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final

from kdns import logs
from kdns.aio import nft
from kdns.aio.nftablesmode import NftablesMode, clean_up
from kdns.aio.relays import Shared
from kdns.aio.relayset import KINDS, Binds, RelaySet, families, usable, where
from kdns.errors import ApplyError
from kdns.proxy.balancer import Balancer
from kdns.proxy.config import FAMILIES, Address, Family
from kdns.proxy.nfttable import Table
from kdns.proxy.plan import FamilyPlan, Front, Plan, PortName, PortPlan
from kdns.proxy.planner import Difference
from kdns.proxy.proxyprotocol import HEADERS
from kdns.proxy.relaying import PortCounters, Relaying
from kdns.proxy.userspace import RelayKey, own_address, relay_keys, table

UPKEEP_S: Final = 30.0
"""How often listeners that could not be opened are tried again, and clients forgotten whose affinity is over."""
_NET_ADMIN: Final = 12

log = logs.get(__name__)


def may_capture() -> bool:
    """Whether the process may change the kernel's rules (capability NET_ADMIN)."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(":")
            if name == "CapEff":
                return bool(int(value, 16) >> _NET_ADMIN & 1)
    return False


class _Capture(NftablesMode):
    """The rules: mode nftables' with relays in place of endpoints."""

    def __init__(self) -> None:
        super().__init__()
        self.ports: Mapping[RelayKey, int] = {}
        self.to: dict[Family, Address | None] = {}

    def _table(self, half: FamilyPlan) -> Table:
        return table(half, self.ports, self.to[half.family])


class UserspaceMode:
    """The backend of mode userspace. To be closed at the end: rules that lead to relays must not outlive them.

    Without `captures` only fronts at this machine's own addresses can be served. Relays that capture take their ports
    from `ports`; empty: the kernel chooses. `limit` bounds the descriptors, None: what the process may have. `draw(n)`
    chooses the endpoint to begin with.
    """

    name = "userspace"

    def __init__(
        self,
        *,
        captures: bool | None = None,
        ports: range = range(0),
        udp_idle_s: float = 0.25,
        limit: int | None = None,
        now_s: Callable[[], float] = time.monotonic,
        draw: Callable[[int], int] = random.randrange,
    ) -> None:
        captures = may_capture() if captures is None else captures
        self._capture = _Capture() if captures else None
        self._ports, self._udp_idle_s, self._limit, self._now_s = ports, udp_idle_s, limit, now_s
        self._relaying = Relaying(Balancer(draw))
        self._told: dict[PortName, tuple[str, ...]] = {}
        self._lock = asyncio.Lock()
        self._families = families()
        self._shared: Shared | None = None
        self._relays: RelaySet | None = None
        self._upkeep: asyncio.Task[None] | None = None

    @property
    def counters(self) -> Mapping[PortName, PortCounters]:
        """What each Service port saw, for /metrics."""
        return self._relaying.counters

    @property
    def listening(self) -> Mapping[RelayKey, Binds]:
        """Where each relay listens; port 0 stands for one that was free."""
        return self._relays.binds if self._relays else {}

    @property
    def missing(self) -> Mapping[RelayKey, str]:
        """Why relays that the plan wants do not listen."""
        return self._relays.missing if self._relays else {}

    async def establish(self, plan: Plan) -> None:
        """Open what is missing, close what is not wanted, and capture anew; connections that are under way stay."""
        async with self._lock:
            relays = self._started()
            self._relaying.plan = plan
            halves = [plan.of(family) for family in FAMILIES]
            if self._capture:
                self._capture.to = {half.family: usable(own_address(half)) for half in halves}
            wanted: dict[RelayKey, Binds] = {}
            for half in halves:
                wanted |= self._wanted(half, half.fronts.values())
            relays.close([key for key, binds in relays.binds.items() if wanted.get(key, binds) != binds])
            relays.open(wanted)
            if self._capture:
                await self._capture.establish(plan)
            relays.close([key for key in (*relays.binds, *relays.missing) if key not in wanted])
            for name in {*self._relaying.counters, *self._told} - {*plan.ipv4.ports, *plan.ipv6.ports}:
                self._forget(name)
            for half in halves:
                for port in half.ports.values():
                    self._settle(relays, half.family, port)

    async def follow(self, plan: Plan, differences: Mapping[Family, Difference]) -> None:
        """Open relays of new fronts, lead clients to them, and close those of fronts that are gone."""
        async with self._lock:
            relays = self._started()
            self._relaying.plan = plan
            gone: list[RelayKey] = []
            for family, difference in differences.items():
                wanted = self._wanted(plan.of(family), (new for _, new in difference.fronts.values() if new))
                relays.open(wanted)
                before = (old for old, _ in difference.fronts.values() if old)
                gone += self._wanted(plan.of(family), before).keys() - wanted.keys()
            if self._capture:
                await self._capture.follow(plan, differences)
            relays.close(gone)
            for family, difference in differences.items():
                for name, (_, new) in difference.ports.items():
                    if new:
                        self._settle(relays, family, new)
                    elif name not in plan.ipv4.ports and name not in plan.ipv6.ports:
                        self._forget(name)

    async def tidy(self) -> bool:
        """Remove chains that are not used any more."""
        async with self._lock:
            return self._capture is not None and await self._capture.tidy()

    async def refusal(self, plan: Plan) -> str:
        """What the kernel has against capturing; relays that do not listen are `missing`."""
        async with self._lock:
            return await self._capture.refusal(plan) if self._capture else ""

    async def close(self) -> None:
        """Capture no more, and close everything."""
        if self._upkeep:
            self._upkeep.cancel()
            with suppress(asyncio.CancelledError):
                await self._upkeep
        async with self._lock:
            try:
                if self._capture and self._relays:
                    await clean_up()
            finally:
                if self._relays and self._shared:
                    self._relays.close(self._relays.binds)
                    self._shared.close()
                self._relays = self._shared = None

    def _started(self) -> RelaySet:
        if self._relays is None:
            self._shared = Shared(self._relaying, limit=self._limit, now_s=self._now_s)
            self._relays = RelaySet(self._shared, self._ports, self._udp_idle_s)
            self._upkeep = asyncio.create_task(self._look_after())
            if self._families != FAMILIES:
                log.warning("virtual IPs of IPv6 are not served", reason="this machine has no IPv6")
            if self._capture:
                nft.prepare()
                self._capture.ports = self._relays.captured
        return self._relays

    def _wanted(self, half: FamilyPlan, fronts: Iterable[Front]) -> dict[RelayKey, Binds]:
        if half.family not in self._families:
            return {}
        captures = self._capture is not None
        to = self._capture.to[half.family] if self._capture else None
        keys = chain.from_iterable(relay_keys(half.family, front, captures=captures) for front in fronts)
        return {key: where(half, key, to) for key in keys}

    def _settle(self, relays: RelaySet, family: Family, port: PortPlan) -> None:
        """End flows to endpoints that are gone, and say once what the Service asks for and does not get."""
        relays.keep_flows(family, port)
        unmet = tuple(_unmet(port))
        for reason in unmet:
            if reason not in self._told.get(port.name, ()):
                log.warning("a Service does not get what it asks for", service=str(port.name), reason=reason)
        if unmet:
            self._told[port.name] = unmet
        else:
            self._told.pop(port.name, None)

    def _forget(self, name: PortName) -> None:
        self._relaying.forget(name)
        self._told.pop(name, None)

    async def _look_after(self) -> None:
        """Now and then, try again what failed, and forget what is over."""
        while True:
            await asyncio.sleep(UPKEEP_S)
            self._relaying.balancer.sweep(self._now_s())
            if self.missing and self._relaying.plan:
                try:
                    await self.establish(self._relaying.plan)
                except ApplyError as error:
                    log.warning("relays cannot be captured for yet", reason=str(error))


def _unmet(port: PortPlan) -> Iterator[str]:
    """What relays cannot do for a Service port."""
    if port.name.protocol not in KINDS:
        yield f"mode userspace relays TCP and UDP, not {port.name.protocol}"
    if port.proxy_protocol and port.proxy_protocol not in HEADERS:
        yield f"annotation kdns/proxy-protocol is {port.proxy_protocol!r}; wanted: {' or '.join(HEADERS)}"
