"""One packet of a table, sent until the kernel has shown what becomes of it."""

import asyncio
from typing import Final

from patience import AGAIN
from small_cluster import Sent
from world import NODE, Answer, World

DRAWS: Final = 64
"""Packets until every end must have had one: of two ends, one in 2^63 tables misses one."""
PATIENCE_S: Final = 60.0
"""How long a packet is waited for that is to be answered or refused; a machine may be that slow."""


async def wrong(world: World, gate: asyncio.Semaphore, packet: Sent) -> str:
    left = set(packet.ends)
    lost = 0
    patience_s = None if packet.row.wanted in {"dropped", "nobody"} else PATIENCE_S
    async with gate:
        for _ in range(DRAWS):
            answer = await world.probe(
                str(packet.source), str(packet.destination), packet.protocol, packet.port, patience_s
            )
            if packet.ends and answer.error == "dropped" and lost < len(AGAIN):
                lost += 1
                continue
            what = disagreement(packet, answer)
            left.discard(answer.backend)
            if what or not left:
                return f"{packet}: wanted {packet.row.wanted}, got {what}" if what else ""
    return f"{packet}: wanted {packet.row.wanted}, never came to {left}"


def disagreement(packet: Sent, answer: Answer) -> str:
    if packet.ends:
        source = str(packet.source)
        seen_right = answer.fits(source, masqueraded=packet.is_masqueraded or answer.backend == source)
        return "" if answer.backend in packet.ends and answer.port == 8080 and seen_right else str(answer)
    told = {packet.row.wanted}
    if packet.row.wanted == "nobody":
        told = {"rejected", "dropped", "Network is unreachable", "No route to host"}
    elif packet.row.wanted == "refused":
        # A datagram of the node itself does not even leave it: send() fails with EPERM.
        told = {"rejected", "dropped"} if str(packet.source) in NODE else {"rejected"}
    return "" if answer.error in told else str(answer)
