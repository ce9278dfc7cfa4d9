"""Capturing by iptables: the tables of packets, walked by the text of the rules, and what a change writes."""

from __future__ import annotations

import re
from random import Random

import ipt_walk
import pytest
from odd_objects import endpoint_slice, service, written
from packet_tables import AFFINITY, CASES
from small_cluster import ARRIVES, CONFIG, NODE_VIEW, Case, sent

from kdns.net import FAMILIES, Family
from kdns.proxy.iptables.capture import JUMPS, TABLES, CaptureTables
from kdns.proxy.iptables.rules import Jump
from kdns.proxy.plan.config import ProxyConfig
from kdns.proxy.plan.plan import FamilyPlan, Front
from kdns.proxy.plan.planner import Planner
from kdns.proxy.plan.state import ProxyState
from kdns.proxy.userspace.mode import USERSPACE
from kdns.proxy.userspace.relays import RelayKey, listing, own_address, relay_keys

ENDED = {"refused": "reject", "dropped": "drop", "nobody": ""}
FIRST_PORT = 40000


def jumped(jumps: tuple[Jump, ...]) -> str:
    """The restore that makes the jumps, each at the top."""
    lines = [
        line
        for table in TABLES
        for line in (f"*{table}", *(f"-I {each.chain} {each}" for each in jumps if each.table == table), "COMMIT")
    ]
    return "\n".join(lines)


def loaded(tables: CaptureTables) -> ipt_walk.Kernel:
    kernel = ipt_walk.Kernel()
    kernel.restore(tables.whole({}))
    kernel.restore(jumped(tables.jumps))
    return kernel


@pytest.mark.parametrize("has_address", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("of", [*CASES, AFFINITY], ids=lambda of: of.name)
def test_packets(of: Case, family: Family, *, has_address: bool) -> None:
    of = of.in_mode(USERSPACE)
    plan = of.plan
    family_plan = plan.of(family)
    _, numbers = listing(plan)
    ports = {key: FIRST_PORT + number for key, number in numbers.items()}
    keys = {port: key for key, port in ports.items()}
    to = own_address(family_plan) if has_address else None
    kernel = loaded(CaptureTables(family_plan, ports, to))
    node = [*map(str, of.node.addresses)]
    for packet in [sent(row, family, protocol) for protocol in ("TCP", "UDP") for row in of.rows]:
        at = ipt_walk.At(
            str(packet.source),
            str(packet.destination),
            packet.protocol.lower(),
            packet.port,
            ARRIVES.get(packet.row.client, ""),
        )
        (end,) = ipt_walk.walk(kernel, at, node)
        if not packet.ends:
            assert (end.ended, end.is_dnat) == (ENDED[packet.row.wanted], False), packet
            continue
        key = keys[end.dport]
        assert end.ended in {"", "accept"}, packet
        assert end.daddr == (str(to) if to else {"IPv4": "127.0.0.1", "IPv6": "::1"}[family]), packet
        assert key.endpoint_set, packet
        assert {
            each.address for each in family_plan.fronts[key.front].port.endpoints_of(key.endpoint_set)
        } == packet.ends, packet


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_relays_own_port_is_for_nobody(protocol: str) -> None:
    plan = CASES[0].in_mode(USERSPACE).plan
    _, numbers = listing(plan)
    kernel = loaded(CaptureTables(plan.ipv4, numbers, own_address(plan.ipv4)))
    for key, port in numbers.items():
        if key.family == "IPv4" and key.front.protocol.lower() == protocol:
            ends = ipt_walk.walk(kernel, ipt_walk.At("192.0.2.100", "192.0.2.1", protocol, port), ["192.0.2.1"])
            assert [each.ended for each in ends] == ["reject"]


class Ports(dict[RelayKey, int]):
    """A port for each relay of a plan, new ones for those that are new."""

    def follow(self, *family_plans: FamilyPlan) -> None:
        keys = {
            key
            for family_plan in family_plans
            for front in family_plan.fronts.values()
            for key in wanted(family_plan, front)
        }
        for key in [*self.keys() - keys]:
            del self[key]
        for key in sorted(keys - self.keys(), key=str):
            self[key] = next(number for number in range(FIRST_PORT, 65536) if number not in self.values())


def wanted(family_plan: FamilyPlan, front: Front) -> list[RelayKey]:
    return [key for key in relay_keys(family_plan.family, front, captures=True) if key.endpoint_set]


@pytest.mark.parametrize("seed", range(10))
def test_a_followed_plan_has_the_rules_of_a_new_one(seed: int) -> None:
    random, state = Random(seed), ProxyState()
    planner = Planner(state, NODE_VIEW, ProxyConfig(USERSPACE, local_pods=CONFIG.local_pods, node_port_addresses=()))
    ports = Ports()
    tables = {
        family: CaptureTables(planner.plan.of(family), ports, own_address(planner.plan.of(family)))
        for family in FAMILIES
    }
    kernels = {family: loaded(tables[family]) for family in FAMILIES}
    most = 0
    for _ in range(30):
        told = [random.choice((service, endpoint_slice))(random) for _ in range(random.choice((1, 3, 20)))]
        differences = planner.changed(written(random, state, told))
        ports.follow(planner.plan.ipv4, planner.plan.ipv6)
        for family in FAMILIES:
            kernels[family].restore(tables[family].follow(planner.plan.of(family), differences[family]))
            assert not tables[family].follow(planner.plan.of(family), differences[family])
        most = max(most, len(planner.plan.ipv4.fronts))
    for family in FAMILIES:
        family_plan = planner.plan.of(family)
        fresh = loaded(CaptureTables(family_plan, ports, own_address(family_plan)))
        assert ordered(kernels[family]) == ordered(fresh)
    assert most


FRONT = re.compile(r'(-d \S+ )?(-p .*)?-m comment --comment "[^"]*"')


def ordered(kernel: ipt_walk.Kernel) -> dict[tuple[str, str], list[str]]:
    """The rules of each chain, sorted by front: those of one front are in their order."""

    def front(rule: str) -> str:
        found = FRONT.search(rule)
        return found[0] if found else ""

    return {
        (table, chain): sorted(rules, key=front)
        for table, chains in kernel.tables.items()
        for chain, rules in chains.items()
    }


def test_jumps_to_portals_come_before_those_to_node_ports() -> None:
    kernel = loaded(CaptureTables(CASES[0].in_mode(USERSPACE).plan.ipv4, {}, None))
    first = {chain: ipt_walk.target_of(rules[0]) for chain, rules in kernel.tables["nat"].items() if rules}
    assert (first["PREROUTING"], first["OUTPUT"]) == ("KUBE-PORTALS-CONTAINER", "KUBE-PORTALS-HOST")
    assert len({(each.table, each.chain, each.rule) for each in JUMPS}) == len(JUMPS)
