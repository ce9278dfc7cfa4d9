"""Mode iptables with SCTP, by iptables-legacy. Its rules differ from TCP's in the protocol only."""

import asyncio

import pytest
from mode_under_test import Node, started
from packet_tables import PROMISES, VERDICT_CASE
from small_cluster import Case
from world import World

from kdns.proxy.settings.settings import Settings
from kdns.proxy.xtables.io.clean_up import IptablesPart


@pytest.mark.parametrize(
    "of", [PROMISES[0], pytest.param(VERDICT_CASE, marks=pytest.mark.release)], ids=lambda of: of.name
)
def test_packets(world: World, loop: asyncio.AbstractEventLoop, of: Case) -> None:
    node = Node(loop.run_until_complete(started(Settings(mode="iptables"))))
    part = node.mode.footprint.part(IptablesPart)
    assert part
    assert part.backend == "legacy"
    assert not loop.run_until_complete(node.packets_go_wrong(world, of, ("SCTP",)))
