"""What is captured for relays: packets walked by the text of both kinds of rules, and what a change changes."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeAlias

import ipt_walk
import nft_walk
import pytest
from packet_tables import AFFINITY, CASES
from small_cluster import ARRIVES, CONFIG, NODE_VIEW, Case, endpoints, sent, service, state

from kdns.cluster.objects import Object
from kdns.net import FAMILIES, Family
from kdns.proxy.iptables.tables import family_text
from kdns.proxy.nftables.table import Table
from kdns.proxy.plan.plan import FamilyPlan, FrontKind, Plan
from kdns.proxy.plan.planner import Planner
from kdns.proxy.plan.semantics import Semantics
from kdns.proxy.userspace.capture import Capture
from kdns.proxy.userspace.mode import USERSPACE
from kdns.proxy.userspace.relays import RelayKey, listing

TO = {
    family: next(each for each in NODE_VIEW.primary if (each.version == 6) == (family == "IPv6")) for family in FAMILIES
}
ENDED = {"refused": "reject", "dropped": "drop", "nobody": ""}
Walk: TypeAlias = Callable[[tuple[str, str, str, int, str]], Iterable[nft_walk.At | ipt_walk.At]]
Kind: TypeAlias = Callable[[FamilyPlan], Walk]


def captured(plan: Plan) -> tuple[Capture, dict[RelayKey, int]]:
    """What is captured for relays at ports from 40001."""
    ports = {key: 40000 + number for key, number in listing(plan)[1].items()}
    return Capture(plan, ports, TO), ports


def nftables(family_plan: FamilyPlan) -> Walk:
    rules = nft_walk.read(Table(family_plan).whole())
    return lambda packet: nft_walk.walk(rules, nft_walk.At(*packet), map(str, NODE_VIEW.addresses))


def iptables(family_plan: FamilyPlan) -> Walk:
    kernel = ipt_walk.Kernel()
    kernel.restore(family_text(family_plan))
    return lambda packet: ipt_walk.walk(kernel, ipt_walk.At(*packet), map(str, NODE_VIEW.addresses))


SEMANTICS: dict[Kind, Semantics] = {
    nftables: USERSPACE,
    iptables: replace(
        USERSPACE, guards_without_endpoints=False, rejects_undefined_ports=False, drops_unallocated=False
    ),
}
each_kind = pytest.mark.parametrize("kind", SEMANTICS)


@each_kind
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("of", [*CASES, AFFINITY], ids=lambda of: of.name)
def test_packets(of: Case, family: Family, kind: Kind) -> None:
    """To the relay of the list that the plan chooses, with the client as source, or to the end that the plan says."""
    of = of.in_mode(SEMANTICS[kind])
    plan = of.plan
    capture, ports = captured(plan)
    keys, walk = {port: key for key, port in ports.items()}, kind(capture.plan.of(family))
    for packet in [sent(row, family, protocol) for protocol in ("TCP", "UDP") for row in of.rows]:
        source, destination = str(packet.source), str(packet.destination)
        arrives = ARRIVES.get(packet.row.client, "")
        (end,) = walk((source, destination, packet.protocol.lower(), packet.port, arrives))
        if not packet.ends:
            assert (end.ended, end.is_dnat) == (ENDED[packet.row.wanted], False), packet
            continue
        key = keys[end.dport]
        assert (end.daddr, end.ended, end.is_masqueraded) == (str(TO[family]), "", False), packet
        assert key.endpoint_set
        ends = plan.of(family).fronts[key.front].port.endpoints_of(key.endpoint_set)
        assert {each.address for each in ends} == packet.ends, packet


@each_kind
@pytest.mark.parametrize("family", FAMILIES)
def test_a_relays_own_port_rejects_what_was_not_captured(family: Family, kind: Kind) -> None:
    capture, ports = captured(CASES[0].in_mode(USERSPACE).plan)
    walk = kind(capture.plan.of(family))
    sources = {"IPv4": ("192.0.2.100", "192.0.2.1"), "IPv6": ("2001:db8:2::100", "2001:db8:2::1")}[family]
    own = [(key, port) for key, port in ports.items() if key.family == family]
    assert {key.front.protocol for key, _ in own} == {"TCP", "UDP"}
    for source in sources:
        for key, port in own:
            packet = source, str(TO[family]), key.front.protocol.lower(), port, ""
            assert [end.ended for end in walk(packet)] == ["reject"], packet
        assert [end.ended for end in walk((source, str(TO[family]), "tcp", 39999, ""))] == [""]


LOCAL = service(1, endpoints(1, "p1", "r1"), external="Local")[0]
CHANGES: list[tuple[str, tuple[Object, ...], set[FrontKind]]] = [
    ("other endpoints", endpoints(1, "p2", "r1", "r2"), set()),
    ("no endpoints", endpoints(1), set(FrontKind)),
    ("another external policy", (LOCAL,), {*FrontKind} - {FrontKind.CLUSTER_IP}),
]


@pytest.mark.parametrize(("name", "objects", "kinds"), CHANGES)
def test_a_change_of_endpoints_alone_changes_nothing_that_is_captured(
    name: str, objects: tuple[Object, ...], kinds: set[FrontKind]
) -> None:
    known = state(service(1, endpoints(1, "p1", "r1")))
    planner = Planner(known, NODE_VIEW, replace(CONFIG, mode=USERSPACE, node_port_addresses=()))
    capture, ports = captured(planner.plan)
    differences = planner.changed([change for obj in objects if (change := known.upsert(obj))])
    assert differences["IPv4"].fronts
    numbers = iter(range(50000, 60000))
    ports |= {key: next(numbers) for key in listing(planner.plan)[1] if key not in ports}
    found = capture.follow(differences)
    for each in found.values():
        assert {front.kind for pair in each.fronts.values() for front in pair if front} == kinds, name
        assert bool(each.ports) == bool(kinds)


@pytest.mark.parametrize("missing", ["a relay", "nothing", "all"])
def test_a_front_without_one_of_its_relays_is_not_captured(missing: str) -> None:
    known = state(service(1, endpoints(1, "p1", "r1"), protocols=("TCP",), external="Local"))
    plan = Planner(known, NODE_VIEW, replace(CONFIG, mode=USERSPACE)).plan
    _, ports = captured(plan)
    balancer = [key for key in ports if key.family == "IPv4" and key.front.address == "198.51.101.1"]
    assert len(balancer) == 2
    for key in {"a relay": balancer[:1], "nothing": [], "all": balancer}[missing]:
        del ports[key]
    fronts = Capture(plan, ports, TO).plan.ipv4.fronts
    assert (balancer[0].front in fronts) == (missing == "nothing")
    assert len(fronts) == len(plan.ipv4.fronts) - (missing != "nothing")
