"""A dataplane on a kernel that is none, for tests of when what is applied and what happens when it is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from ipaddress import ip_address

import pytest

from kdns.cluster.objects import (
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Key,
    Node,
    Service,
    ServiceCIDR,
    ServiceMeta,
    ServicePort,
    ServiceSpec,
    SliceAnnotations,
    SliceLabels,
    SliceMeta,
)
from kdns.cluster.state import State
from kdns.errors import ApplyError
from kdns.net import Family
from kdns.proxy.nftables.mode import NFTABLES
from kdns.proxy.plan.config import NodeView, ProxyConfig
from kdns.proxy.plan.plan import FrontKey, Plan
from kdns.proxy.plan.planner import Difference
from kdns.proxy.sync import schedule
from kdns.proxy.sync.io.runner import PlanInputs, SyncResult, SyncRunner
from kdns.proxy.sync.schedule import SyncTiming

DEADLINE_S = 60.0
VIEW = NodeView("here", "", (ip_address("192.0.2.1"),), (ip_address("192.0.2.1"),))


class Kernel:
    """A backend that notes what it is asked for; `refusals` are the reasons of the next ones.

    `defects` are other errors that they raise.
    Its first sweeps fail as often as `busy_sweeps` says.
    """

    name = "fake"

    def __init__(self) -> None:
        self.did: list[str] = []
        self.refusals: list[str] = []
        self.defects: list[Exception] = []
        self.rejected: Mapping[Key, str] = {}
        self.busy_sweeps = 0
        self.fronts: set[FrontKey] = set()
        self.busy = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    @property
    def rules(self) -> list[str]:
        """What was to be done with rules."""
        return [what for what in self.did if what in ("sync_full", "sync_partial")]

    async def sync_full(self, plan: Plan) -> None:
        await self._do("sync_full", set(plan.ipv4.fronts))

    async def sync_partial(self, plan: Plan, differences: Mapping[Family, Difference]) -> None:
        assert any(differences.values())
        await self._do("sync_partial", set(plan.ipv4.fronts))

    async def sweep(self) -> None:
        await self._do("sweep", self.fronts)
        if self.busy_sweeps:
            self.busy_sweeps -= 1
            raise ApplyError(("nft",), "busy")

    async def _do(self, what: str, fronts: set[FrontKey]) -> None:
        self.did.append(what)
        self.busy.set()
        await self.go_on.wait()
        if self.defects:
            raise self.defects.pop(0)
        if self.refusals:
            raise ApplyError(("nft",), self.refusals.pop(0))
        self.fronts = fronts


def service(number: int) -> Service:
    spec = ServiceSpec(cluster_ip=f"10.96.0.{number}", ports=(ServicePort(80, "p"),))
    return Service(ServiceMeta(f"s{number}", "d"), spec)


def endpoint_slice(number: int, *addresses: str, when: str = "") -> EndpointSlice:
    meta = SliceMeta(f"s{number}-1", "d", SliceLabels(f"s{number}"), SliceAnnotations(when) if when else None)
    return EndpointSlice(meta, "IPv4", tuple(Endpoint((address,)) for address in addresses), (EndpointPort("p", 8080),))


class Rig:
    """A dataplane on a fake kernel, with one Service."""

    def __init__(self, **timing: float) -> None:
        self.state, self.kernel = State(), Kernel()
        self.inputs: PlanInputs | None = (VIEW, ProxyConfig(NFTABLES))
        self.synced: list[SyncResult] = []
        self.plane = SyncRunner(
            self.state, self.kernel, lambda: self.inputs, SyncTiming(**{"min_sync_s": 0.0, "sync_s": 0.05} | timing)
        )
        self.plane.subscribers.append(self.synced.append)

    def put(self, *objects: Service | EndpointSlice | Node | ServiceCIDR) -> None:
        self.plane.changed([change for obj in objects if (change := self.state.upsert(obj))])

    def list_all(self) -> None:
        self.put(service(1), endpoint_slice(1, "10.1.0.2"))
        self.state.synced |= {Service, EndpointSlice}
        self.plane.changed([])

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Rig]:
        task = asyncio.create_task(self.plane.run())
        try:
            yield self
        finally:
            self.kernel.go_on.set()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    async def until(self, wanted: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not wanted():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.001)

    def has(self, *numbers: int) -> bool:
        return {key.address for key in self.kernel.fronts} == {f"10.96.0.{number}" for number in numbers}


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it wait milliseconds for what takes seconds."""
    monkeypatch.setattr(schedule, "FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(schedule, "SWEEP_DELAY_S", 0.01)
