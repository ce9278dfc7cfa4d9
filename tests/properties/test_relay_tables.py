"""What is captured for relays, followed through any changes, equals what a new plan captures, as plan and as rules."""

from dataclasses import replace
from itertools import count

import nft_walk
from hypothesis import given
from hypothesis import strategies as st
from test_iptables_restores import content, loaded, with_jumps
from test_plan import CONFIG, NODE, Write, deletions, services, slices, sweep

from kdns.cluster.state import State
from kdns.net import FAMILIES
from kdns.proxy.iptables.base_chains import Features
from kdns.proxy.iptables.tables import Tables
from kdns.proxy.nftables.objects import commands
from kdns.proxy.nftables.table import Table
from kdns.proxy.plan.branches import ENDPOINT_SETS
from kdns.proxy.plan.plan import Plan
from kdns.proxy.plan.planner import Planner
from kdns.proxy.userspace.capture import Capture
from kdns.proxy.userspace.mode import USERSPACE
from kdns.proxy.userspace.relays import RelayKey, relay_addresses, relay_keys


def wanted(plan: Plan) -> set[RelayKey]:
    fronts = ((family, front) for family in FAMILIES for front in plan.of(family).fronts.values())
    return {key for family, front in fronts for key in relay_keys(family, front, captures=True) if key.endpoint_set}


@given(st.lists(st.tuples(st.lists(st.one_of(services, slices, deletions), max_size=3), st.booleans()), max_size=6))
def test_what_followed_equals_what_is_new(rounds: list[tuple[list[Write], bool]]) -> None:
    state, numbers = State(), count(40001)
    planner = Planner(state, NODE, replace(CONFIG, mode=USERSPACE))
    ports: dict[RelayKey, int] = {}
    to = {family: next(relay_addresses(planner.plan.of(family))) for family in FAMILIES}
    capture = Capture(planner.plan, ports, to)
    tables = {family: Table(capture.plan.of(family)) for family in FAMILIES}
    chains = {family: Tables(capture.plan.of(family), Features()) for family in FAMILIES}
    kernels = {family: nft_walk.read(tables[family].whole()) for family in FAMILIES}
    restored = {family: loaded(with_jumps(chains[family].whole({}))) for family in FAMILIES}
    for writes, is_quiet in rounds:
        made = [state.delete(*write) if isinstance(write, tuple) else state.upsert(write) for write in writes]
        differences = planner.changed([change for change in made if change])
        relays = wanted(planner.plan)
        ports |= {key: next(numbers) for key in relays - ports.keys()}
        captured = capture.follow(differences)
        for key in ports.keys() - relays:
            del ports[key]
        new = Capture(planner.plan, ports, to)
        assert capture.plan == new.plan
        for family in FAMILIES:
            family_plan, difference = capture.plan.of(family), captured[family]
            assert all(old != now for pairs in (difference.fronts, difference.ports) for old, now in pairs.values())
            nft_walk.apply(kernels[family], commands(tables[family].follow(family_plan, difference)))
            if is_quiet:
                sweep(kernels[family], tables[family])
            restored[family].restore(chains[family].follow(family_plan, difference))
            assert content(restored[family]) == content(loaded(with_jumps(Tables(family_plan, Features()).whole({}))))
            led_to = {
                (front.key, verdict): [(each.address, each.port) for each in front.port.endpoints_of(verdict)]
                for front in family_plan.fronts.values()
                for verdict in ENDPOINT_SETS
                if front.port.endpoints_of(verdict)
            }
            assert led_to == {
                (key.front, key.endpoint_set): [(str(to[family]), port)]
                for key, port in ports.items()
                if key.family == family
            }
    for family in FAMILIES:
        sweep(kernels[family], tables[family])
        assert kernels[family] == nft_walk.read(Table(capture.plan.of(family)).whole())
