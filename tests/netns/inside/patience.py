"""Probes whose packets shall arrive: on a machine that is busy elsewhere an answer may come too late for one."""

from typing import Final

from world import Answer, World

AGAIN: Final = range(12)
"""How often a packet that was not told to be lost is sent: the machine may be slow, but rules are not moody."""


async def surely(world: World, source: str, destination: str, protocol: str, port: int) -> Answer:
    """What comes of a hello; said again where it seems to be lost."""
    for _ in AGAIN:
        answer = await world.probe(source, destination, protocol, port)
        if answer.error != "dropped":
            break
    return answer
