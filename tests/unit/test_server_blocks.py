"""Which block answers, and what happens where nobody can: REFUSED, SERVFAIL, and what lies behind."""

from __future__ import annotations

import pytest

from kdns.cluster.objects import EndpointSlice, Meta, Namespace, Object, Service, ServiceMeta, ServiceSpec
from kdns.cluster.state import State
from kdns.plugins.cluster_zones import ClusterZones, fallthrough_labels
from kdns.plugins.server import Block, Reply, Server
from kdns.records.options import Options
from kdns.records.rrset import SOA, A, RRset, Soa
from kdns.records.zone import Status
from kdns.wire.message import Decoded, decode, query, type_number

ADDRESS = b"\xc0\x00\x02\x01"
KINDS: set[type[Object]] = {Service, EndpointSlice, Namespace}


def state_of(cluster_ip: str, *, synced: bool = True) -> State:
    state = State(synced=set(KINDS) if synced else set())
    state.upsert(Namespace(Meta("shop")))
    state.upsert(Service(ServiceMeta("web", "shop"), ServiceSpec(cluster_ip=cluster_ip, cluster_ips=(cluster_ip,))))
    external = ServiceSpec(type="ExternalName", external_name="www.example.org")
    state.upsert(Service(ServiceMeta("away", "shop"), external))
    return state


def cluster(cluster_ip: str, *zones: str, fallthrough: tuple[str, ...] = (), synced: bool = True) -> ClusterZones:
    state = state_of(cluster_ip, synced=synced)
    return ClusterZones(state, Options(zones=zones), fallthrough=fallthrough_labels(fallthrough))


class Behind:
    """Answers for some names, and remembers what it was asked."""

    def __init__(self, replies: dict[str, Reply]) -> None:
        self.replies = replies
        self.asked: list[tuple[str, int]] = []

    async def respond(self, name: str, qtype: int) -> Reply | None:
        self.asked.append((name, qtype))
        return self.replies.get(name)


async def ask(server: Server, name: str, qtype: str = "A", *, qclass: int = 1) -> Decoded:
    packet = bytearray(query(name, type_number(qtype)))
    packet[-2:] = qclass.to_bytes(2, "big")
    response = server.respond(bytes(packet), "udp", 4)
    assert response is not None
    return decode(response if isinstance(response, bytes) else await response)


def address(decoded: Decoded) -> object:
    return decoded.answer[0].rdata[0] if decoded.answer else None


async def test_the_closest_enclosing_zone_answers() -> None:
    server = Server(
        "dns://:53",
        (
            Block("local.", cluster("10.0.0.1", "local.")),
            Block("cluster.local.", cluster("10.0.0.2", "cluster.local.")),
            Block("example.org."),
        ),
    )
    assert address(await ask(server, "web.shop.svc.local.")) == b"\x0a\0\0\1"
    assert address(await ask(server, "web.shop.svc.cluster.local.")) == b"\x0a\0\0\2"
    assert address(await ask(server, "WEB.shop.svc.CLUSTER.local.")) == b"\x0a\0\0\2"
    for name, rcode in (
        ("web.shop.svc.notcluster.local.", "NXDOMAIN"),
        ("example.org.", "SERVFAIL"),
        ("a.example.org.", "SERVFAIL"),
        ("example.com.", "REFUSED"),
        ("org.", "REFUSED"),
        (".", "REFUSED"),
    ):
        assert ((await ask(server, name)).rcode, name) == (rcode, name)


@pytest.mark.parametrize(
    ("name", "qtype", "qclass", "rcode", "flags"),
    [
        ("web.shop.svc.cluster.local.", "A", 1, "NOERROR", {"qr", "aa", "rd"}),
        ("web.shop.svc.cluster.local.", "A", 3, "REFUSED", {"qr", "rd"}),
        ("web.shop.svc.cluster.local.", "A", 255, "REFUSED", {"qr", "rd"}),
        ("cluster.local.", "AXFR", 1, "REFUSED", {"qr", "rd"}),
        ("cluster.local.", "IXFR", 1, "REFUSED", {"qr", "rd"}),
        ("cluster.local.", "ANY", 1, "NOERROR", {"qr", "aa", "rd"}),
        ("example.org.", "A", 1, "SERVFAIL", {"qr", "rd"}),
    ],
)
async def test_errors_are_not_authoritative(name: str, qtype: str, qclass: int, rcode: str, flags: set[str]) -> None:
    server = Server("dns://:53", (Block(".", cluster("10.0.0.1", "cluster.local.")),))
    got = await ask(server, name, qtype, qclass=qclass)
    assert (got.rcode, set(got.flags)) == (rcode, flags)


FOUND = Reply(Status.SUCCESS, (RRset("x.cluster.local.", A, 60, (ADDRESS,)),))
DENIED = Reply(
    Status.NXDOMAIN, authority=(RRset("arpa.", SOA, 60, (Soa("ns.arpa.", "host.arpa.", 1, 2, 3, 4, 5),)),)
)  # fmt: skip


@pytest.mark.parametrize(
    ("fallthrough", "name", "goes"),
    [
        ((), "x.cluster.local.", False),
        ((".",), "x.cluster.local.", True),
        (("cluster.local.",), "x.cluster.local.", True),
        (("in-addr.arpa.",), "x.cluster.local.", False),
        (("in-addr.arpa.",), "9.9.9.9.in-addr.arpa.", True),
        ((".",), "web.shop.svc.cluster.local.", False),
        ((".",), "shop.svc.cluster.local.", False),
        ((".",), "cluster.local.", False),
    ],
)
async def test_only_names_that_do_not_exist_fall_through(fallthrough: tuple[str, ...], name: str, goes: bool) -> None:
    zones = cluster("10.0.0.1", "cluster.local.", "in-addr.arpa.", fallthrough=fallthrough)
    behind = Behind({"x.cluster.local.": FOUND, "9.9.9.9.in-addr.arpa.": DENIED})
    got = await ask(Server("dns://:53", (Block(".", zones, (behind,)),)), name)
    assert bool(behind.asked) == goes
    if goes:
        assert behind.asked == [(name, A)]
        assert (got.rcode, address(got)) == (("NOERROR", ADDRESS) if "x." in name else ("NXDOMAIN", None))


async def test_an_unsynced_cluster_falls_through_too() -> None:
    zones = cluster("10.0.0.1", "cluster.local.", fallthrough=(".",), synced=False)
    behind = Behind({"x.cluster.local.": FOUND})
    server = Server("dns://:53", (Block(".", zones, (behind,)),))
    assert (await ask(server, "x.cluster.local.")).rcode == "NOERROR"
    assert (await ask(server, "y.cluster.local.")).rcode == "SERVFAIL"


async def test_handlers_are_asked_in_order_until_one_knows() -> None:
    first, second, third = Behind({}), Behind({"example.org.": FOUND}), Behind({"example.org.": DENIED})
    server = Server("dns://:53", (Block(".", None, (first, second, third)),))
    assert address(await ask(server, "Example.ORG.")) == ADDRESS
    assert [one.asked for one in (first, second, third)] == [[("example.org.", A)], [("example.org.", A)], []]
    assert (await ask(server, "example.net.")).rcode == "SERVFAIL"


async def test_a_cname_that_leaves_the_zones_is_followed_behind() -> None:
    there = Reply(Status.SUCCESS, (RRset("www.example.org.", A, 60, (ADDRESS,)),))
    behind = Behind({"www.example.org.": there})
    server = Server("dns://:53", (Block(".", cluster("10.0.0.1", "cluster.local."), (behind,)),))
    got = await ask(server, "away.shop.svc.cluster.local.")
    assert [(one.rtype, one.owner) for one in got.answer] == [
        (5, "away.shop.svc.cluster.local."),
        (1, "www.example.org."),
    ]
    assert behind.asked == [("www.example.org.", A)]
    behind.replies.clear()
    got = await ask(server, "away.shop.svc.cluster.local.")
    assert (got.rcode, [one.rtype for one in got.answer]) == ("NOERROR", [5])
    assert [one.rtype for one in (await ask(server, "away.shop.svc.cluster.local.", "CNAME")).answer] == [5]
    assert len(behind.asked) == 2


@pytest.mark.parametrize("zone", ["cluster.local.", "."])
@pytest.mark.parametrize("labels", ["no.shop.svc.", "web.shop.svc.", "lost.shop.svc.", "svc."])
async def test_negative_answers_have_the_serial_of_the_last_change(zone: str, labels: str) -> None:
    zones = cluster("10.0.0.1", zone)
    lost = ServiceSpec(type="ExternalName", external_name=f"no.shop.svc.{zone.lstrip('.')}")
    zones.zones.state.upsert(Service(ServiceMeta("lost", "shop"), lost))
    server = Server("dns://:53", (Block(".", zones),))
    for serial in (1000, 2000):
        other = zones.zones.state.upsert(
            Service(ServiceMeta(f"other-{serial}", "shop"), ServiceSpec(cluster_ip="10.0.0.9"))
        )
        assert other
        zones.changed([other], serial)
        (soa,) = (await ask(server, f"{labels}{zone.lstrip('.')}", "AAAA")).authority
        assert (soa.owner, soa.rdata) == (zone, zones.zones.soa(zone).rdata)
        assert zones.zones.serial == serial


async def test_answers_from_behind_are_never_remembered() -> None:
    behind = Behind({"example.org.": FOUND})
    server = Server("dns://:53", (Block(".", cluster("10.0.0.1", "cluster.local."), (behind,)),))
    for _ in range(3):
        await ask(server, "example.org.")
    assert len(behind.asked) == 3


def test_every_answer_is_counted_once_for_its_block() -> None:
    zones = cluster("10.0.0.1", "cluster.local.")
    server = Server("dns://:53", (Block("cluster.local.", zones), Block("example.org.")))
    for name in ("web.shop.svc.cluster.local.",) * 3 + ("no.cluster.local.", "a.example.org.", "example.com."):
        server.respond(query(name, A), "udp", 4)
    counts = {
        (kept.zone, kept.rcode): times
        for table in (zones.table, server.others)
        for lane in table.lanes.values()
        for kept, times in lane.counts()
    }
    assert counts == {
        ("cluster.local.", 0): 3,
        ("cluster.local.", 3): 1,
        ("example.org.", 2): 1,
        ("dropped", 5): 1,
    }


def test_a_block_that_sees_every_query_leaves_no_lane_to_listeners() -> None:
    zones = cluster("10.0.0.1", "cluster.local.")
    assert len(Server("a", (Block(".", zones), Block("b.", zones))).lanes("udp", 4)) == 1
    assert Server("a", (Block(".", zones), Block("b.", sees_every_query=True))).lanes("udp", 4) == ()
