"""The tables of packets through the plan and through the rules as they are written, SCTP too."""

from dataclasses import replace

import nft_walk
import pytest
from fake_hcn import FakeHcn, FakeLibraries
from packet_tables import AFFINITY, CASES
from small_cluster import ARRIVES, ENDPOINTS, PROTOCOLS, Case, Sent, sent, state

from kdns.net import FAMILIES, Family
from kdns.proxy.kernelspace.content import Content, NodeNetwork
from kdns.proxy.kernelspace.io.compute_network import ComputeNetwork
from kdns.proxy.kernelspace.mode import KERNELSPACE
from kdns.proxy.kernelspace.requests import requests
from kdns.proxy.kernelspace.schema import HostComputeNetwork
from kdns.proxy.modes import MODES
from kdns.proxy.nftables.mode import NFTABLES
from kdns.proxy.nftables.table import Table
from kdns.proxy.plan.semantics import Semantics
from kdns.proxy.trace.explain import explained
from kdns.proxy.trace.text import as_json
from kdns.proxy.trace.trace import Fate, Packet

PLANNED = [mode.semantics for mode in MODES.values() if not mode.semantics.relays]
FATES = {"refused": Fate.REJECTED, "dropped": Fate.DROPPED, "nobody": Fate.UNTOUCHED}
ENDED = {"refused": "reject", "dropped": "drop", "nobody": ""}

pytestmark = pytest.mark.parametrize("of", [*CASES, AFFINITY], ids=lambda of: of.name)


def packets(of: Case, family: Family) -> list[Sent]:
    protocols = [each for each in PROTOCOLS if each in of.config.mode.protocols]
    return [sent(row, family, protocol) for protocol in protocols for row in of.rows]


def arrives(packet: Sent) -> str:
    return ARRIVES.get(packet.row.client, "")


@pytest.mark.parametrize("mode", PLANNED, ids=lambda mode: mode.name)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_plan_says_so(of: Case, family: Family, mode: Semantics) -> None:
    of = of.in_mode(mode)
    plan, known = of.plan, state(*of.objects)
    for packet in packets(of, family):
        asked = Packet(packet.source, packet.destination, packet.protocol, packet.port, arrives(packet))
        told = as_json(explained(known, plan, asked), of.node.name, mode.name)
        assert told["fate"] == FATES.get(packet.row.wanted, Fate.FORWARDED).value, packet
        assert {endpoint["address"] for endpoint in told["endpoints"]} == packet.ends, packet
        for endpoint in told["endpoints"]:
            assert endpoint["seesNodeAddress"] == sees_node(packet, endpoint["address"], mode), packet


def sees_node(packet: Sent, end: str, mode: Semantics = NFTABLES) -> bool:
    """Whether this end is to see the node: hairpins of this node always do."""
    is_hairpin = end == str(packet.source) and (mode.hairpins_everywhere or packet.row.client != "remote")
    return packet.is_masqueraded or (is_hairpin and not mode.treats_clients_alike)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_written_rules_do_so(of: Case, family: Family) -> None:
    rules = nft_walk.read(Table(of.plan.of(family)).whole())
    node = [*map(str, of.node.addresses)]
    for packet in packets(of, family):
        start = nft_walk.At(
            str(packet.source), str(packet.destination), packet.protocol.lower(), packet.port, arrives(packet)
        )
        ends = nft_walk.walk(rules, start, node)
        if not packet.ends:
            assert {(at.ended, at.is_dnat) for at in ends} == {(ENDED[packet.row.wanted], False)}, packet
            continue
        assert {at.daddr for at in ends} == packet.ends, packet
        for at in ends:
            assert (at.is_masqueraded, at.dport) == (sees_node(packet, at.daddr), 8080), packet


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("enables_dsr", [True, False])
def test_load_balancers_of_hcn_do_so(of: Case, family: Family, *, enables_dsr: bool) -> None:
    """The requests of the plan, sent to a simulated service that has the endpoints of this node's Pods."""
    of = of.in_mode(KERNELSPACE)
    of = replace(of, config=replace(of.config, masquerade_all=of.config.masquerade_all or not enables_dsr))
    service = FakeHcn()
    own = {name: service.add_pod(*ENDPOINTS[name]) for name in ("p1", "p2", "h1")}
    network = HostComputeNetwork.read(service.networks[service.network_id])
    existing = {address: made for name, made in own.items() for address in ENDPOINTS[name]}
    hcn = ComputeNetwork(FakeLibraries(service).functions)
    for each in FAMILIES:
        content = Content(of.plan.of(each), NodeNetwork(network, endpoints=existing))
        for request in requests(
            ((None, endpoint) for endpoint in content.endpoints.values()),
            ((None, load_balancer) for load_balancer in content.load_balancers.values()),
        ):
            hcn.carry_out(request)
    for packet in packets(of, family):
        node = [*map(str, of.node.addresses)]
        answer = service.answer(str(packet.destination), packet.protocol, packet.port, node)
        if not packet.ends:
            assert answer is None, packet
            continue
        assert answer, packet
        assert (answer.endpoints, answer.port) == (packet.ends, 8080), packet
        assert answer.is_translated == packet.is_masqueraded, packet
        assert answer.keeps_client == (of.name == AFFINITY.name)
