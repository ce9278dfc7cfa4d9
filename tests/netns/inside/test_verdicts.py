"""Real packets for every row of the tables, TCP and UDP, IPv4 and IPv6."""

import asyncio
from typing import Final

import pytest
from dataplanes import DATAPLANE
from packet_probe import wrong
from packet_tables import CASES
from small_cluster import PROTOCOLS, Case, sent
from world import World

from kdns.net import FAMILIES

AT_ONCE: Final = 200


@pytest.mark.parametrize("of", CASES, ids=lambda of: of.name)
def test_packets(world: World, loop: asyncio.AbstractEventLoop, of: Case) -> None:
    of = of.in_mode(DATAPLANE.mode)
    packets = [sent(row, family, protocol) for family in FAMILIES for protocol in PROTOCOLS[:2] for row in of.rows]

    async def check() -> list[str]:
        await DATAPLANE.proxier().sync_full(of.plan)
        world.forget()
        gate = asyncio.Semaphore(AT_ONCE)
        return [what for what in await asyncio.gather(*(wrong(world, gate, packet) for packet in packets)) if what]

    assert not loop.run_until_complete(check())
