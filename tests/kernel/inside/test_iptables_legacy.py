"""Mode iptables with SCTP, by iptables-legacy: every verdict. Its rules differ from TCP's in the protocol only."""

from __future__ import annotations

import asyncio

from mode_under_test import Node, started
from packet_tables import VERDICT_CASE
from world import World

from kdns.proxy.settings.settings import Settings
from kdns.proxy.xtables.io.clean_up import IptablesPart


def test_packets(world: World, loop: asyncio.AbstractEventLoop) -> None:
    node = Node(loop.run_until_complete(started(Settings(mode="iptables"))))
    part = node.mode.footprint.part(IptablesPart)
    assert part
    assert part.backend == "legacy"
    assert not loop.run_until_complete(node.packets_go_wrong(world, VERDICT_CASE, ("SCTP",)))
