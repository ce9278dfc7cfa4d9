"""Mode iptables with SCTP, by iptables-legacy."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest
from mode_under_test import Node, started
from packet_tables import CASES
from small_cluster import CONFIG, NODE_VIEW, Case
from world import World

from kdns.proxy.settings.settings import Settings
from kdns.proxy.xtables.io.clean_up import IptablesPart

FOLLOWED: Final = [case for case in CASES if (case.config, case.node) == (CONFIG, NODE_VIEW)]
"""One after the other, each by a partial sync from the one before."""


@pytest.fixture(scope="session")
def node(loop: asyncio.AbstractEventLoop) -> Node:
    return Node(loop.run_until_complete(started(Settings(mode="iptables"))))


@pytest.mark.parametrize("of", FOLLOWED, ids=lambda of: of.name)
def test_packets(world: World, loop: asyncio.AbstractEventLoop, node: Node, of: Case) -> None:
    part = node.mode.footprint.part(IptablesPart)
    assert part
    assert part.backend == "legacy"
    assert not loop.run_until_complete(node.packets_go_wrong(world, of, ("SCTP",)))
