"""The dataplane of the small network's node in one of its modes, as their table starts it."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from packet_probe import wrong
from small_cluster import CONFIG, NODE_VIEW, Case, Sent, sent
from world import World

from kdns.cluster.objects import EndpointSlice, Object, Service
from kdns.cluster.state import Change, State
from kdns.net import FAMILIES
from kdns.proxy.ipvs.settings import IpvsSettings
from kdns.proxy.modes import MODES as ROWS
from kdns.proxy.plan.config import NodeView, ProxyConfig
from kdns.proxy.plan.planner import Planner
from kdns.proxy.settings.settings import Settings
from kdns.proxy.sync.io.proxier import RunningMode
from kdns.proxy.takeover.io.modes import runtime

AT_ONCE: Final = 50
QUICK: Final = Settings(mode="ipvs").with_section(IpvsSettings(tcp_fin_timeout_s=1, udp_timeout_s=1))
"""Mode ipvs, which forgets what has ended: a client's port that comes again is not taken for the connection before."""


async def started(settings: Settings) -> RunningMode:
    row = runtime(settings.mode)
    reason = await row.unsupported(settings)
    assert not reason, reason
    return await row.start(settings)


@dataclass
class Node:
    """A mode and what it has been told: all of it at first and where the configuration changes, else what changes."""

    mode: RunningMode
    config: ProxyConfig = CONFIG
    view: NodeView = NODE_VIEW
    planner: Planner | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.config = replace(self.config, mode=ROWS[self.mode.name].semantics)

    async def become(self, *objects: Iterable[Object]) -> None:
        if self.planner is None:
            self.planner = Planner(State(), self.view, self.config)
            await self.mode.sync_full(self.planner.plan)
        wanted = [each for obj in objects for each in obj]
        changes: list[Change | None] = []
        for kind in (Service, EndpointSlice):
            changes += self.planner.state.retain(kind, [each.key for each in wanted if isinstance(each, kind)])
        await self._follow([*changes, *map(self.planner.state.upsert, wanted)])

    async def change(self, *objects: Iterable[Object]) -> None:
        assert self.planner
        await self._follow([self.planner.state.upsert(each) for obj in objects for each in obj])

    async def _follow(self, changes: Iterable[Change | None]) -> None:
        assert self.planner
        differences = self.planner.changed([change for change in changes if change])
        await self.mode.sync_partial(self.planner.plan, differences)

    async def packets_go_wrong(self, world: World, case: Case, protocols: Iterable[str]) -> list[str]:
        of = case.in_mode(ROWS[self.mode.name].semantics)
        if (of.config, of.node) != (self.config, self.view):
            self.config, self.view, self.planner = of.config, of.node, None
        await self.become(*of.objects)
        world.forget()
        gate = asyncio.Semaphore(AT_ONCE)
        packets = [sent(row, family, protocol) for family in FAMILIES for protocol in protocols for row in of.rows]
        fronts: dict[tuple[object, ...], list[Sent]] = {}
        for packet in packets:
            fronts.setdefault((packet.destination, packet.port, packet.protocol), []).append(packet)

        async def in_turn(some: list[Sent]) -> list[str]:
            """Whoever asks a scheduler alone gets all of its endpoints."""
            return [what for packet in some if (what := await wrong(world, gate, packet))]

        found = await asyncio.gather(*map(in_turn, fronts.values()))
        return [what for each in found for what in each]
