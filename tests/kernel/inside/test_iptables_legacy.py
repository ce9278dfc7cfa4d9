"""Mode iptables in the older of its back ends, which this machine may lack: tables of packets, and SCTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import pytest
from mode_under_test import Node, started
from packet_tables import CASES, PROMISES
from small_cluster import CONFIG, NODE_VIEW, PROTOCOLS, Case
from world import World

from kdns.proxy.settings.settings import Settings

FOLLOWED: Final = [case for case in CASES if (case.config, case.node) == (CONFIG, NODE_VIEW)]
"""One after the other, each by a partial sync from the one before."""


@pytest.fixture(scope="session")
def world(loop: asyncio.AbstractEventLoop) -> Iterator[World]:
    made = World(protocols=PROTOCOLS)
    made.build()
    loop.run_until_complete(made.serve())
    loop.run_until_complete(made.settle())
    yield made
    loop.run_until_complete(made.close())


@pytest.fixture(scope="session")
def node(loop: asyncio.AbstractEventLoop) -> Node:
    return Node(loop.run_until_complete(started(Settings(mode="iptables"))))


@pytest.mark.parametrize("of", FOLLOWED, ids=lambda of: of.name)
def test_packets(world: World, loop: asyncio.AbstractEventLoop, node: Node, of: Case) -> None:
    part = node.mode.footprint.iptables
    assert part
    assert part.backend == "legacy"
    assert not loop.run_until_complete(node.packets_go_wrong(world, of, ("TCP",)))


@pytest.mark.parametrize("of", PROMISES[:1], ids=lambda of: of.name)
def test_sctp(world: World, loop: asyncio.AbstractEventLoop, node: Node, of: Case) -> None:
    assert not loop.run_until_complete(node.packets_go_wrong(world, of, ("SCTP",)))
