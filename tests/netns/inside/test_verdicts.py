"""Real packets for every row of the tables, TCP and UDP, IPv4 and IPv6."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest
from packet_tables import CASES
from small_cluster import PROTOCOLS, Case, Sent, sent
from world import NODE, Answer, World

from kdns.aio.nftablesmode import NftablesMode
from kdns.proxy.config import FAMILIES

DRAWS: Final = 64
"""Packets until every end must have had one: of two ends, one in 2^63 tables misses one."""
AT_ONCE: Final = 50
AGAIN: Final = 3
"""How often what was not told to be lost may be lost: the machine may be slow, but rules are not moody."""


@pytest.mark.parametrize("of", CASES, ids=lambda of: of.name)
def test_packets(world: World, loop: asyncio.AbstractEventLoop, of: Case) -> None:
    packets = [sent(row, family, protocol) for family in FAMILIES for protocol in PROTOCOLS[:2] for row in of.rows]

    async def check() -> list[str]:
        await NftablesMode().establish(of.plan)
        world.forget()
        gate = asyncio.Semaphore(AT_ONCE)
        return [what for what in await asyncio.gather(*(wrong(world, gate, packet) for packet in packets)) if what]

    assert not loop.run_until_complete(check())


async def wrong(world: World, gate: asyncio.Semaphore, packet: Sent) -> str:
    """What is not as the row says, "" if everything is."""
    left = set(packet.ends)
    lost = 0
    async with gate:
        for _ in range(DRAWS):
            answer = await world.probe(str(packet.source), str(packet.destination), packet.protocol, packet.port)
            if packet.ends and answer.error == "dropped" and lost < AGAIN:
                lost += 1
                continue
            what = disagreement(packet, answer)
            left.discard(answer.backend)
            if what or not left:
                return f"{packet}: wanted {packet.row.wanted}, got {what}" if what else ""
    return f"{packet}: wanted {packet.row.wanted}, never came to {left}"


def disagreement(packet: Sent, answer: Answer) -> str:
    """What is wrong with one answer, "" if nothing is."""
    if packet.ends:
        source = str(packet.source)
        seen_right = answer.fits(source, masqueraded=packet.is_masqueraded or answer.backend == source)
        return "" if answer.backend in packet.ends and answer.port == 8080 and seen_right else str(answer)
    told = {packet.row.wanted}
    if packet.row.wanted == "nobody":
        told = {"rejected", "dropped", "Network is unreachable"}
    elif packet.row.wanted == "refused":
        # A datagram of the node itself does not even leave it: send() fails with EPERM.
        told = {"rejected", "dropped"} if str(packet.source) in NODE else {"rejected"}
    return "" if answer.error in told else str(answer)
