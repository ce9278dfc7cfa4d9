"""Which address comes first: rotation, preferred networks, weights and the file they come from."""

from collections import Counter
from ipaddress import ip_address, ip_network

import pytest
from cluster_objects import service, state_of
from decoded_message import Decoded, decode
from dns_chain import Behind, FakeWorld, read, respond, server_of

from kdns.answers.answer import compile_answer
from kdns.answers.order import MAX_TURNS, MAX_WEIGHTED_TURNS, Order, rotated_turns, weighted_turns
from kdns.answers.response import Message, Response
from kdns.dns.message import query
from kdns.dns.query import AA
from kdns.dns.rrset import Mx, RRset, Srv
from kdns.dns.types import CNAME, MX, NS, SRV, TXT, A
from kdns.errors import CorefileError
from kdns.plugins.changes.loadbalance import Loadbalance, LoadbalanceConfig, parse_weights
from kdns.plugins.sources.kubernetes.options import Options
from kdns.plugins.sources.kubernetes.plugin import Kubernetes

NAME = "web.shop.svc.cluster.local."


def addresses(*texts: str, owner: str = NAME) -> RRset:
    packed = tuple(ip_address(text).packed for text in texts)
    return RRset(owner, A if len(packed[0]) == 4 else 28, 5, packed)


def answers(order: Order, *rrsets: RRset, times: int, limit_bytes: int = 4096) -> list[Decoded]:
    packet = query(NAME, rrsets[0].rtype if rrsets[0].rtype != CNAME else A)
    response = Response(0, AA, rrsets, zone="cluster.local.", order=order)
    answer = compile_answer(read(packet), response, limit_bytes, ".", 1)
    return [decode(answer.wire(packet)) for _ in range(times)]


def texts(decoded: Decoded) -> list[str]:
    return [str(ip_address(rdata)) for rrset in decoded.answer for rdata in rrset.rdata if isinstance(rdata, bytes)]


def firsts(decoded: list[Decoded]) -> Counter[str]:
    return Counter(texts(reply)[0] for reply in decoded)


@pytest.mark.parametrize("count", [1, 2, 3, 7, MAX_TURNS])
def test_every_address_comes_first_equally_often(count: int) -> None:
    rrset = addresses(*(f"10.0.0.{number}" for number in range(count)))
    got = answers(Order(rotate=True), rrset, times=3 * count)
    assert firsts(got) == {f"10.0.0.{number}": 3 for number in range(count)}
    assert all(sorted(texts(reply)) == sorted(texts(got[0])) for reply in got)


def test_behind_a_cname_too() -> None:
    alias = RRset(NAME, CNAME, 5, ("db.shop.svc.cluster.local.",))
    behind = addresses("10.0.0.1", "10.0.0.2", owner="db.shop.svc.cluster.local.")
    got = answers(Order(rotate=True), alias, behind, times=4)
    assert [reply.answer[0].rtype for reply in got] == [CNAME] * 4
    assert Counter(reply.answer[1].rdata[0] for reply in got) == dict.fromkeys(behind.rdata, 2)
    assert {reply.answer[2].owner for reply in got} == {"db.shop.svc.cluster.local."}


def test_nothing_else_moves() -> None:
    srv = RRset(NAME, SRV, 5, tuple(Srv(0, 50, port, NAME) for port in (1, 2, 3)))
    got = answers(Order(rotate=True), srv, times=3)
    assert [[rrset.rdata for rrset in decoded.answer] for decoded in got] == [[(rdata,) for rdata in srv.rdata]] * 3


def test_preferred_networks_come_first_in_order_and_each_group_rotates() -> None:
    order = Order(rotate=True, prefer=(ip_network("10.9.0.0/16"), ip_network("192.0.2.0/31")))
    got = answers(order, addresses("10.1.0.1", "192.0.2.1", "10.9.0.1", "10.1.0.2", "10.9.0.2", "10.1.0.3"), times=6)
    assert {frozenset(texts(reply)[:2]) for reply in got} == {frozenset({"10.9.0.1", "10.9.0.2"})}
    assert {texts(reply)[2] for reply in got} == {"192.0.2.1"}
    assert firsts(got) == {"10.9.0.1": 3, "10.9.0.2": 3}
    assert Counter(texts(reply)[3] for reply in got) == {"10.1.0.1": 2, "10.1.0.2": 2, "10.1.0.3": 2}


def test_a_truncated_answer_keeps_the_preferred_ones() -> None:
    many = [f"10.1.0.{number}" for number in range(60)] + ["10.9.0.1", "10.9.0.2"]
    order = Order(rotate=True, prefer=(ip_network("10.9.0.0/16"),))
    got = answers(order, addresses(*many), times=4, limit_bytes=512)
    assert {"tc"} <= got[0].flags
    assert {frozenset(texts(reply)[:2]) for reply in got} == {frozenset({"10.9.0.1", "10.9.0.2"})}


def test_glue_is_arranged() -> None:
    order = Order(prefer=(ip_network("10.9.0.0/16"),))
    assert order.arranged((addresses("10.1.0.1", "10.9.0.1"),)) == (addresses("10.9.0.1", "10.1.0.1"),)


def test_weights_hold_over_a_turn() -> None:
    weights = {NAME: {ip_address("10.0.0.1").packed: 3, ip_address("10.0.0.3").packed: 2}}
    got = answers(Order(rotate=True, weights=weights), addresses("10.0.0.1", "10.0.0.2", "10.0.0.3"), times=12)
    assert firsts(got) == {"10.0.0.1": 6, "10.0.0.2": 2, "10.0.0.3": 4}
    assert all(sorted(texts(reply)) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"] for reply in got)


@pytest.mark.parametrize(
    ("sizes", "turns"), [([1], 1), ([3], 3), ([2, 3], 6), ([5, 4], 15), ([17], MAX_TURNS), ([1, 40], MAX_TURNS)]
)
def test_turns_of_groups(sizes: list[int], turns: int) -> None:
    got = rotated_turns(sizes, start=3)
    assert len(got) == turns
    for order in got:
        assert sorted(order) == list(range(sum(sizes)))
        assert sorted(order[: sizes[0]]) == list(range(sizes[0]))
    uses = Counter(order[0] for order in got)
    assert len({*uses.values()}) == 1
    assert len(uses) == min(sizes[0], MAX_TURNS)


def test_weighted_turns_are_spread_evenly_and_bounded() -> None:
    assert [order[0] for order in weighted_turns([2, 1, 1], 0)] == [0, 1, 2, 0]
    assert [order[0] for order in weighted_turns([2, 1, 1], 5)] == [1, 2, 0, 0]
    large = Counter(order[0] for order in weighted_turns([255] * 7 + [1], 0))
    assert sum(large.values()) <= MAX_WEIGHTED_TURNS
    assert large[0] == large[6] > 100 * large[7] > 0


FILE = """
# the large one first
Web.Shop.svc.cluster.local

10.0.0.1 3
  10.0.0.2\t1
other.
fd00::1 255
web.shop.svc.cluster.local.
10.0.0.1 9
10.0.0.3 2
"""


def test_a_weight_file() -> None:
    assert parse_weights(FILE, "w") == {
        NAME: {ip_address(f"10.0.0.{number}").packed: weight for number, weight in ((1, 3), (2, 1), (3, 2))},
        "other.": {ip_address("fd00::1").packed: 255},
    }
    assert parse_weights("", "w") == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("10.0.0.1 3", "w:1: expected a name before the first address (at '10.0.0.1')"),
        ("a.\n10.0.0.1", "w:2: expected a weight from 1 to 255 after the address (at '10.0.0.1')"),
        ("a.\n10.0.0.1 0", "w:2: expected a whole number from 1 to 255, got '0'"),
        ("a.\n10.0.0.1 256", "w:2: expected a whole number from 1 to 255, got '256'"),
        ("a.\n10.0.0.1 x", "w:2: expected a whole number from 1 to 255, got 'x'"),
        ("a.\n\n10.0.0.300 1", "w:3: expected an IP address, got '10.0.0.300'"),
        ("a.\n10.0.0.1 1 1", "w:2: one word too many; expected a name alone, or an address and its weight (at '1')"),
        ("a b c", "w:1: one word too many; expected a name alone, or an address and its weight (at 'c')"),
        ("10.0.0.0/8", "w:1: expected a name, got '10.0.0.0/8'"),
        ("a..b", "w:1: a zone name has no empty labels (at 'a..b')"),
    ],
)
def test_a_broken_weight_file(text: str, said: str) -> None:
    with pytest.raises(CorefileError) as caught:
        parse_weights(text, "w")
    assert str(caught.value) == said


def test_the_directive_is_an_order() -> None:
    prefer = (ip_network("10.0.0.0/8"),)
    assert LoadbalanceConfig(prefer=prefer).order({}) == Order(rotate=True, prefer=prefer)
    assert LoadbalanceConfig("weighted", weight_path="w").order({NAME: {}}) == Order(rotate=True, weights={NAME: {}})


def test_the_directive_arranges_the_addresses_of_a_referral() -> None:
    balance = Loadbalance(LoadbalanceConfig(prefer=(ip_network("10.9.0.0/16"),)), FakeWorld())
    glue = addresses("10.1.0.1", "10.9.0.1", owner="ns.test.")
    referral = Response(authority=(RRset(NAME, NS, 5, ("ns.test.",)),), additional=(glue,))
    got = respond(server_of(balance, Behind(lambda _request: referral)), query(NAME, A))
    assert [rrset.rdata for rrset in decode(got).additional] == [
        (ip_address(text).packed,) for text in ("10.9.0.1", "10.1.0.1")
    ]


def test_a_new_order_replaces_remembered_answers() -> None:
    state = state_of(service("web", "10.0.0.1", "10.0.0.2"))
    setup = FakeWorld(files={"w": f"{NAME}\n10.0.0.1 255"})
    balance = Loadbalance(LoadbalanceConfig("weighted", weight_path="w"), setup)
    server = server_of(balance, Kubernetes(state, Options(), setup))
    setup.servers.append(server)

    def firsts() -> Counter[str]:
        got = [respond(server, query(NAME, A)) for _ in range(256)]
        return Counter(texts(decode(reply))[0] for reply in got if reply)

    assert firsts() == {"10.0.0.1": 255, "10.0.0.2": 1}
    setup.readers["w"](f"{NAME}\n10.0.0.2 255")
    assert firsts() == {"10.0.0.2": 255, "10.0.0.1": 1}


def test_thousands_of_addresses_take_few_orders() -> None:
    assert [len(rotated_turns([count], start=0)) for count in (1024, 4095, 65536)] == [MAX_TURNS, 4, 1]


def message(*rrsets: RRset) -> tuple[bytes, bytes]:
    """A query, and an upstream's response to it, which holds these sets."""
    packet = query(NAME, rrsets[0].rtype)
    return packet, compile_answer(read(packet), Response(0, 0, rrsets), 4096, ".").wire(packet)


def forwarded(
    order: Order, packet: bytes, wire: bytes, times: int, *, aged_from_s: float | None = None
) -> list[Decoded]:
    """What clients get of an upstream's response, 3 seconds later."""
    response = Response(body=Message(wire), order=order, aged_from_s=aged_from_s)
    answer = compile_answer(read(packet), response, 4096, ".", 0, now_s=3.0)
    return [decode(answer.wire(packet)) for _ in range(times)]


MX_SETS = (RRset(NAME, MX, 5, (Mx(10, "a.mail.example."), Mx(10, "b.mail.example."), Mx(20, "mail.example."))),)
MIXED_SETS = (RRset(NAME, CNAME, 5, ("a.example.",)), addresses("10.0.0.1", "10.0.0.2", owner="a.example."))


@pytest.mark.parametrize(
    ("rrsets", "fronts"),
    [
        ((addresses("10.0.0.1", "10.0.0.2", "10.0.0.3"),), 3),
        ((addresses("10.0.0.1"),), 1),
        (MX_SETS, 3),
        (MIXED_SETS, 2),
        ((addresses("10.0.0.1", "10.0.0.2"), addresses("10.0.0.3", owner="b.example.")), 3),
    ],
)
def test_an_upstreams_records_take_turns_and_none_is_lost(rrsets: tuple[RRset, ...], fronts: int) -> None:
    packet, wire = message(*rrsets)
    times = 6 * fronts
    for aged_from_s, ttl in ((None, 5), (0.0, 2)):
        got = forwarded(Order(rotate=True), packet, wire, times, aged_from_s=aged_from_s)
        assert {frozenset(records_of(reply)) for reply in got} == {frozenset(records_of(decode(wire)))}
        assert {rrset.ttl for reply in got for rrset in reply.answer} == {ttl}
        first = Counter(next(text for text in records_of(reply) if f" {CNAME} " not in text) for reply in got)
        assert set(first.values()) == {times // fronts}


def records_of(decoded: Decoded) -> list[str]:
    return [f"{rrset.owner} {rrset.rtype} {rdata!r}" for rrset in decoded.answer for rdata in rrset.rdata]


def test_an_upstreams_answer_prefers_and_weighs() -> None:
    packet, wire = message(addresses("10.1.0.1", "10.9.0.1", "10.1.0.2"))
    preferring = forwarded(Order(rotate=True, prefer=(ip_network("10.9.0.0/16"),)), packet, wire, 4)
    assert firsts(preferring) == {"10.9.0.1": 4}
    weights = {NAME: {ip_address("10.1.0.2").packed: 2}}
    assert firsts(forwarded(Order(rotate=True, weights=weights), packet, wire, 8)) == {
        "10.1.0.2": 4, "10.1.0.1": 2, "10.9.0.1": 2,
    }  # fmt: skip


def test_kinds_stand_in_order() -> None:
    mixed = (*MX_SETS, addresses("10.0.0.1"), RRset(NAME, TXT, 5, (b"\1a",)), MIXED_SETS[0])
    assert [rrset.rtype for rrset in Order(rotate=True).arranged(mixed)] == [CNAME, A, MX, TXT]
    assert Order().arranged(mixed) == mixed
