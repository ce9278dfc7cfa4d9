"""A node goes to mode ipvs and back under a running load: no connection fails, those of IPVS stay where they are."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from mode_walk import ENDS, IPVS, LEGACY, RELAYS_BY_IPTABLES, Step, cleaned, rules, walk
from world import World


@pytest.mark.parametrize(("by_restart", "steps"), [(False, (RELAYS_BY_IPTABLES, IPVS, LEGACY))])
def test_a_node_goes_to_ipvs_and_back(
    world: World, loop: asyncio.AbstractEventLoop, tmp_path: Path, by_restart: bool, steps: Sequence[Step]
) -> None:
    assert not rules()
    load = loop.run_until_complete(walk(world, tmp_path, steps, by_restart=by_restart, pause_s=0.2))
    print(f"\n{load}")
    print(*load.failures, sep="\n")
    assert not load.failures
    assert set(load.done) == set(ENDS)
    assert cleaned(tmp_path)
    assert not rules()
