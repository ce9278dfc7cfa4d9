"""Mode userspace's table, followed through any changes, equals one made afresh; every relay is led to, once."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import nft_walk
from hypothesis import given
from hypothesis import strategies as st
from test_plan import CONFIG, NODE, Write, deletions, services, slices, sweep

from kdns.cluster.state import State
from kdns.net import FAMILIES
from kdns.proxy.nftables.capture import capture_table
from kdns.proxy.nftables.transaction import commands
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import Planner
from kdns.proxy.userspace.mode import USERSPACE
from kdns.proxy.userspace.relays import RelayKey, relay_keys

OWN = NODE.primary[0]


def wanted(plan: Plan) -> set[RelayKey]:
    fronts = ((family, front) for family in FAMILIES for front in plan.of(family).fronts.values())
    return {key for family, front in fronts for key in relay_keys(family, front, captures=True) if key.endpoint_set}


@given(st.lists(st.tuples(st.lists(st.one_of(services, slices, deletions), max_size=3), st.booleans()), max_size=6))
def test_a_table_that_followed_equals_one_made_afresh(rounds: list[tuple[list[Write], bool]]) -> None:
    state, numbers = State(), count(40001)
    planner = Planner(state, NODE, replace(CONFIG, mode=USERSPACE))
    ports: dict[RelayKey, int] = {}
    tos = {"IPv4": OWN, "IPv6": None}
    tables = {family: capture_table(planner.plan.of(family), ports, tos[family]) for family in FAMILIES}
    kernels = {family: nft_walk.read(tables[family].whole()) for family in FAMILIES}
    for writes, is_quiet in rounds:
        made = [state.delete(*write) if isinstance(write, tuple) else state.upsert(write) for write in writes]
        differences = planner.changed([change for change in made if change])
        relays = wanted(planner.plan)
        ports |= {key: next(numbers) for key in relays - ports.keys()}
        for family in FAMILIES:
            nft_walk.apply(
                kernels[family], commands(tables[family].follow(planner.plan.of(family), differences[family]))
            )
        for key in ports.keys() - relays:
            del ports[key]
        for family in FAMILIES:
            if is_quiet:
                sweep(kernels[family], tables[family])
            maps = {name: elements for name, elements in kernels[family].elements.items() if name.startswith("relays")}
            led_to = sorted(int(port) for elements in maps.values() for port in elements.values())
            assert led_to == sorted(port for key, port in ports.items() if key.family == family)
    for family in FAMILIES:
        sweep(kernels[family], tables[family])
        assert kernels[family] == nft_walk.read(capture_table(planner.plan.of(family), ports, tos[family]).whole())
