"""Mode ipvs: the tables of packets, with real connections of every protocol."""

import asyncio
from typing import Final

import pytest
from mode_under_test import QUICK, Node, started
from packet_tables import CASES, PROMISES
from small_cluster import Case
from world import World

SHORT: Final = 12
"""The first cases, of which each kind of front has some; the rules of all are walked in tests/unit/proxy/trace."""


@pytest.fixture(scope="session")
def node(loop: asyncio.AbstractEventLoop) -> Node:
    return Node(loop.run_until_complete(started(QUICK)))


@pytest.mark.parametrize(
    "of",
    [*CASES[:SHORT], *(pytest.param(of, marks=pytest.mark.release) for of in CASES[SHORT:])],
    ids=lambda of: of.name,
)
def test_packets(world: World, loop: asyncio.AbstractEventLoop, node: Node, of: Case) -> None:
    assert not loop.run_until_complete(node.packets_go_wrong(world, of, ("TCP", "UDP")))


@pytest.mark.parametrize("of", PROMISES[:1], ids=lambda of: of.name)
def test_sctp(world: World, loop: asyncio.AbstractEventLoop, node: Node, of: Case) -> None:
    assert not loop.run_until_complete(node.packets_go_wrong(world, of, ("SCTP",)))
