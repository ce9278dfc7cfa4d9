"""A node goes through its modes under a running load: no connection fails, and nothing stays of the mode before.

What relays serve ends with them: a connection through them, and new ones until the next mode has its rules.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from mode_walk import ENDS, LEGACY, NFT, NFTABLES, RELAYS, Step, cleaned, rules, walk
from world import World


@pytest.mark.parametrize(
    ("by_restart", "steps"),
    [
        (False, (NFTABLES, RELAYS, LEGACY, NFTABLES)),
        pytest.param(False, (NFTABLES, RELAYS, NFT, NFTABLES, LEGACY, NFTABLES), marks=pytest.mark.release),
        pytest.param(True, (NFTABLES, LEGACY, NFT, NFTABLES), marks=pytest.mark.release),
    ],
)
def test_a_node_goes_through_its_modes(
    world: World, loop: asyncio.AbstractEventLoop, tmp_path: Path, by_restart: bool, steps: Sequence[Step]
) -> None:
    assert not rules()
    load = loop.run_until_complete(walk(world, tmp_path, steps, by_restart=by_restart))
    print(f"\n{load}")
    assert not load.failures
    assert set(load.done) == set(ENDS)
    assert cleaned(tmp_path) == ["table ip kdns", "table ip6 kdns"]
    assert not rules()
    assert cleaned(tmp_path) == []
