"""Which block answers, and what happens where nobody can: REFUSED, SERVFAIL, and what lies behind."""

import asyncio
from collections.abc import Callable

import dns_chain
import harness
import pytest
from cluster_objects import LISTED, external_name, service, state_of
from decoded_message import Decoded, decode
from dns_chain import (
    FakeWorld,
    Ordered,
    ask,
    cluster_server,
    plugin_of,
    read,
    respond,
    response_at_once,
    server_of,
    wire,
)

from kdns.answers.chain import MAX_CNAMES, Block, Chain, Plugin, Request, Sees, Serve, ServeResult, follow
from kdns.answers.order import Order
from kdns.answers.response import NEVER, Message, Response, Reuse
from kdns.cluster.state import State
from kdns.dns.message import query
from kdns.dns.query import AA, AD, RA, read_query
from kdns.dns.rrset import RRset, Soa
from kdns.dns.types import AXFR, CNAME, NOERROR, NXDOMAIN, SOA, A
from kdns.dnsserver.blocks import Server, WireResponse
from kdns.plugins.changes.cache.plugin import Cache
from kdns.plugins.observers.log import Log, LogConfig, compiled
from kdns.plugins.sources.kubernetes.options import Options
from kdns.plugins.sources.kubernetes.plugin import Kubernetes
from kdns.values import evolve

ADDRESS = b"\xc0\x00\x02\x01"
AWAY = external_name("away", "www.example.org")


def shop(cluster_ip: str, *, synced: bool = True) -> State:
    return state_of(service("web", cluster_ip), AWAY, synced=synced)


def cluster(cluster_ip: str, *zones: str, fallthrough: tuple[str, ...] = (), synced: bool = True) -> Kubernetes:
    return Kubernetes(shop(cluster_ip, synced=synced), Options(zones=zones), FakeWorld(), fallthrough)


class Behind(Plugin):
    """Answers for some names, hands the others on, and remembers what it was asked; after a while, or at once."""

    sees = Sees.PACKET

    def __init__(self, responses: dict[str, Response], *, waits: bool = True) -> None:
        self.responses = responses
        self.asked: list[tuple[str, int]] = []
        self.waits = waits

    def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
        self.asked.append((request.query.name, request.query.qtype))
        response = self.responses.get(request.query.name)
        if response is None:
            return next(request)
        return self.later(response) if self.waits else response

    async def later(self, response: Response) -> Response:
        await asyncio.sleep(0)
        return response


def address(decoded: Decoded) -> object:
    return decoded.answer[0].rdata[0] if decoded.answer else None


async def test_the_closest_enclosing_zone_answers() -> None:
    server = Server(
        "dns://:53",
        (
            Block("local.", Chain((cluster("10.0.0.1", "local."),))),
            Block("cluster.local.", Chain((cluster("10.0.0.2", "cluster.local."),))),
            Block("example.org.", Chain()),
        ),
    )
    assert address(await ask(server, "web.shop.svc.local.")) == b"\x0a\0\0\1"
    assert address(await ask(server, "web.shop.svc.cluster.local.")) == b"\x0a\0\0\2"
    assert address(await ask(server, "WEB.shop.svc.CLUSTER.local.")) == b"\x0a\0\0\2"
    for name, rcode in (
        ("web.shop.svc.notcluster.local.", "NXDOMAIN"),
        ("example.org.", "REFUSED"),
        ("a.example.org.", "REFUSED"),
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
    server = server_of(cluster("10.0.0.1", "cluster.local."))
    response = await ask(server, name, qtype, qclass=qclass)
    assert (response.rcode, set(response.flags)) == (rcode, flags)


@pytest.mark.parametrize("qclass", [0, 2, 3, 4, 254, 255, 4711])
@pytest.mark.parametrize(
    ("name", "qtype", "rcode"),
    [
        ("web.shop.svc.cluster.local.", "A", "REFUSED"),
        ("no.shop.svc.cluster.local.", "TXT", "REFUSED"),
        ("cluster.local.", "DS", "REFUSED"),
        ("9.9.9.9.in-addr.arpa.", "PTR", "REFUSED"),
        ("web.shop.external.test.", "A", "REFUSED"),
        ("www.records.test.", "A", "REFUSED"),
        ("no.records.test.", "A", "REFUSED"),
        ("host.test.", "AAAA", "REFUSED"),
        ("1.2.0.192.in-addr.arpa.", "PTR", "REFUSED"),
        ("a.localhost.", "A", "REFUSED"),
        ("other.test.", "A", "NOERROR"),
    ],
)
async def test_other_classes_of_own_names_are_not_for_upstreams(name: str, qtype: str, rcode: str, qclass: int) -> None:
    setup = FakeWorld(state=shop("10.0.0.1"))
    text = """
        local
        hosts {
            192.0.2.1 host.test
            fallthrough
        }
        kubernetes cluster.local in-addr.arpa {
            fallthrough
        }
        k8s_external external.test
        records records.test {
            www 60 IN A 192.0.2.2
        }
    """
    behind = Behind({"other.test.": FOUND})
    server = harness.server_of(text, setup, behind)
    response = await ask(server, name, qtype, qclass=qclass)
    assert (response.rcode, bool(behind.asked)) == (rcode, rcode == "NOERROR")


FOUND = Response(NOERROR, AA | RA, (RRset("x.cluster.local.", A, 60, (ADDRESS,)),))
DENIED = Response(
    NXDOMAIN, AA, authority=(RRset("arpa.", SOA, 60, (Soa("ns.arpa.", "host.arpa.", 1, 2, 3, 4, 5),)),)
)  # fmt: skip


@pytest.mark.parametrize(
    ("fallthrough", "name", "goes"),
    [
        ((), "x.cluster.local.", False),
        ((".",), "x.cluster.local.", True),
        (("cluster.local.",), "x.cluster.local.", True),
        (("in-addr.arpa.",), "x.cluster.local.", False),
        (("in-addr.arpa.",), "9.9.9.9.in-addr.arpa.", True),
        (("in-addr.arpa.",), "0.10.in-addr.arpa.", True),
        (("in-addr.arpa.",), "in-addr.arpa.", False),
        ((), "0.10.in-addr.arpa.", False),
        ((".",), "web.shop.svc.cluster.local.", False),
        ((".",), "shop.svc.cluster.local.", False),
        ((".",), "cluster.local.", False),
    ],
)
async def test_only_names_that_do_not_exist_fall_through(fallthrough: tuple[str, ...], name: str, goes: bool) -> None:
    zones = cluster("10.0.0.1", "cluster.local.", "in-addr.arpa.", fallthrough=fallthrough)
    behind = Behind({"x.cluster.local.": FOUND, "9.9.9.9.in-addr.arpa.": DENIED, "0.10.in-addr.arpa.": DENIED})
    response = await ask(server_of(zones, behind), name)
    assert bool(behind.asked) == goes
    if goes:
        assert behind.asked == [(name, A)]
        assert (response.rcode, address(response)) == (("NOERROR", ADDRESS) if "x." in name else ("NXDOMAIN", None))


async def test_an_unsynced_cluster_falls_through_too() -> None:
    zones = cluster("10.0.0.1", "cluster.local.", fallthrough=(".",), synced=False)
    behind = Behind({"x.cluster.local.": FOUND})
    server = server_of(zones, behind)
    assert (await ask(server, "x.cluster.local.")).rcode == "NOERROR"
    assert (await ask(server, "y.cluster.local.")).rcode == "SERVFAIL"


async def test_a_cluster_that_has_been_listed_answers_at_once_behind_a_cache() -> None:
    state, setup = shop("10.0.0.1", synced=False), FakeWorld()
    server = server_of(plugin_of(Cache, "cache", setup), Kubernetes(state, Options(), setup, ()))
    assert (await ask(server, "web.shop.svc.cluster.local.")).rcode == "SERVFAIL"
    state.synced |= LISTED
    assert address(await ask(server, "web.shop.svc.cluster.local.")) == bytes((10, 0, 0, 1))


async def test_handlers_are_asked_in_order_until_one_knows() -> None:
    first, second, third = Behind({}), Behind({"example.org.": FOUND}), Behind({"example.org.": DENIED})
    server = server_of(first, second, third)
    assert address(await ask(server, "Example.ORG.")) == ADDRESS
    assert [one.asked for one in (first, second, third)] == [[("example.org.", A)], [("example.org.", A)], []]
    assert (await ask(server, "example.net.")).rcode == "SERVFAIL"


async def test_a_cname_that_leaves_the_zones_is_followed_behind() -> None:
    there = Response(NOERROR, RA, (RRset("www.example.org.", A, 60, (ADDRESS,)),))
    behind = Behind({"www.example.org.": there})
    server = server_of(cluster("10.0.0.1", "cluster.local."), behind)
    response = await ask(server, "away.shop.svc.cluster.local.")
    assert [(rrset.rtype, rrset.owner) for rrset in response.answer] == [
        (5, "away.shop.svc.cluster.local."),
        (1, "www.example.org."),
    ]
    assert behind.asked == [("www.example.org.", A)]
    behind.responses.clear()
    response = await ask(server, "away.shop.svc.cluster.local.")
    assert (response.rcode, [rrset.rtype for rrset in response.answer]) == ("NOERROR", [5])
    assert [rrset.rtype for rrset in (await ask(server, "away.shop.svc.cluster.local.", "CNAME")).answer] == [5]
    assert len(behind.asked) == 2


@pytest.mark.parametrize("zone", ["cluster.local.", "."])
@pytest.mark.parametrize("labels", ["no.shop.svc.", "web.shop.svc.", "lost.shop.svc.", "svc."])
async def test_negative_answers_have_the_serial_of_the_last_change(zone: str, labels: str) -> None:
    server, zones = cluster_server(shop("10.0.0.1"), Options(zones=(zone,)))
    zones.zones.state.upsert(external_name("lost", f"no.shop.svc.{zone.lstrip('.')}"))
    for serial in (1000, 2000):
        other = zones.zones.state.upsert(service(f"other-{serial}", "10.0.0.9"))
        assert other
        zones.changed([other], serial)
        (soa,) = (await ask(server, f"{labels}{zone.lstrip('.')}", "AAAA")).authority
        assert (soa.owner, soa.rdata) == (zone, zones.zones.soa(zone).rdata)
        assert zones.zones.serial == serial


async def test_a_cname_of_the_zone_to_a_name_that_does_not_exist_is_no_fallthrough() -> None:
    state = shop("10.0.0.1")
    state.upsert(external_name("lost", "no.shop.svc.cluster.local"))
    behind = Behind({"lost.shop.svc.cluster.local.": FOUND})
    server = server_of(Kubernetes(state, Options(zones=("cluster.local.",)), FakeWorld(), (".",)), behind)
    response = await ask(server, "lost.shop.svc.cluster.local.")
    assert ([rrset.rtype for rrset in response.answer], behind.asked) == ([CNAME], [])


async def test_answers_that_do_not_say_so_are_never_remembered() -> None:
    behind = Behind({"example.org.": FOUND})
    server = server_of(cluster("10.0.0.1", "cluster.local."), behind)
    for _ in range(3):
        await ask(server, "example.org.")
    assert len(behind.asked) == 3


async def test_flags_are_the_plugins_own() -> None:
    server = server_of(Behind({"x.": FOUND, "y.": Response(NXDOMAIN, RA | AD)}))
    assert (await ask(server, "x.")).flags == {"qr", "aa", "rd", "ra"}
    assert (await ask(server, "y.")).flags == {"qr", "rd", "ra", "ad"}


@pytest.mark.parametrize("waits", [False, True])
async def test_an_answer_is_remembered_until_a_subject_is_touched_or_it_expires(waits: bool) -> None:
    records = (RRset("x.", A, 60, (ADDRESS,)),)
    behind = Behind({"x.": Response(NOERROR, AA, records, reuse=Reuse(("s", "t"), 50.0))}, waits=waits)
    server = server_of(behind)
    table = server.table
    forgetting: tuple[Callable[[], None], ...] = (lambda: table.forget(("t",)), table.clear)
    for forget in forgetting:
        for _ in range(3):
            assert address(await ask(server, "x.")) == ADDRESS
        server.table.forget(("other",))
        assert len(behind.asked) == 1
        forget()
        behind.asked.clear()
    await ask(server, "x.")
    (kept,) = table.partition("udp", 4).answers.values()
    assert (kept.until_s, kept.renew(49.9), kept.renew(50.0)) == (50.0, True, False)


async def test_an_answer_that_was_begun_before_a_change_is_not_remembered() -> None:
    records = (RRset("x.", A, 60, (ADDRESS,)),)
    behind = Behind({"x.": Response(NOERROR, AA, records, reuse=Reuse(("s",)))})
    server = server_of(behind)
    packet = query("x.", A)
    outcome = server.respond(packet, server.table.partition("udp", 4))
    assert not isinstance(outcome, WireResponse)
    task = asyncio.ensure_future(outcome)
    await asyncio.sleep(0)
    server.table.forget(("s",))
    assert (await task).wire
    assert len(server.table) == 0


async def test_a_plugin_that_sees_every_query_is_never_bypassed() -> None:
    class Careless(Plugin):
        """Says nothing of what it sees."""

        def serve(self, request: Request, next: Serve) -> ServeResult:  # noqa: A002 - as in Plugin
            return next(request)

    behind = Behind({"x.": Response(NOERROR, AA, (RRset("x.", A, 60, (ADDRESS,)),), reuse=Reuse())}, waits=False)
    careful, careless = server_of(behind), server_of(Careless(), behind)
    for server, asked in ((careful, 1), (careless, 3)):
        for _ in range(3):
            await ask(server, "x.")
        assert (len(behind.asked), len(server.table)) == (asked, 1 if asked == 1 else 0)
        behind.asked.clear()


async def test_silence() -> None:
    assert await wire(server_of(dns_chain.Behind(lambda _request: None)), query("x.", A)) == b""


@pytest.mark.parametrize(("cnames", "types"), [(10, [CNAME] * 10 + [A]), (11, [CNAME] * 11 + [A]), (12, [CNAME] * 11)])
@pytest.mark.parametrize("target", ["web.shop.svc.cluster.local", "www.example.org"])
async def test_a_chain_of_eleven_cnames_is_answered_whole(cnames: int, types: list[int], target: str) -> None:
    state = shop("10.0.0.1")
    for number in range(cnames):
        name = f"c{number + 1}.shop.svc.cluster.local" if number + 1 < cnames else target
        state.upsert(external_name(f"c{number}", name))
    outside = Response(NOERROR, RA, (RRset("www.example.org.", A, 60, (ADDRESS,)),), reuse=Reuse())
    server, plugin = cluster_server(state, Options(), Behind({"www.example.org.": outside}, waits=False))
    assert [rrset.rtype for rrset in (await ask(server, "c0.shop.svc.cluster.local.")).answer] == types
    change = state.upsert(service(f"c{cnames - 1}", "10.0.0.9"))
    assert change
    plugin.changed([change], 1.0)
    response = await ask(server, "c0.shop.svc.cluster.local.")
    assert [rrset.rtype for rrset in response.answer] == [CNAME] * (cnames - 1) + [A]


async def test_a_loop_of_cnames_through_the_chain_ends() -> None:
    there = Response(NOERROR, RA, (RRset("www.example.org.", CNAME, 60, ("away.shop.svc.cluster.local.",)),))
    server = server_of(cluster("10.0.0.1", "cluster.local."), Behind({"www.example.org.": there}))
    response = await ask(server, "away.shop.svc.cluster.local.")
    assert [rrset.rtype for rrset in response.answer] == [CNAME, CNAME]
    request = Request(read(query("a.", A)))
    itself = Response(NOERROR, AA, (RRset("a.", CNAME, 1, ("A.",)),))
    assert follow(request, itself, lambda _: pytest.fail("a loop was followed")) is itself
    many = Response(NOERROR, AA, tuple(RRset(f"{n}.", CNAME, 1, (f"{n + 1}.",)) for n in range(MAX_CNAMES + 1)))
    assert follow(request, many, lambda _: pytest.fail("too many were followed")) is many


async def test_an_upstreams_bytes_are_sent_and_can_be_looked_into() -> None:
    packet = query("X.example.", A, payload_bytes=4096)
    upstream = server_of(Behind({"x.example.": Response(NOERROR, RA, (RRset("x.example.", A, 60, (ADDRESS,)),))}))
    outcome = upstream.respond(packet, upstream.table.partition("udp", 4))
    assert not isinstance(outcome, WireResponse)
    upstreams = (await outcome).wire
    server = server_of(
        Behind({"x.example.": Response(body=Message(b"\xff\xff" + upstreams[2:]), reuse=Reuse(), plugin="forward")})
    )
    for asked in (packet, query("x.EXAMPLE.", A, payload_bytes=4096), query("x.example.", A)):
        for _ in range(2):
            got = decode(await wire(server, asked))
            assert (got.rcode, address(got)) == ("NOERROR", ADDRESS)
            assert {"ra", "rd", "qr"} == got.flags
    away = server_of(
        cluster("10.0.0.1", "cluster.local."), Behind({"www.example.org.": Response(body=Message(upstreams))})
    )
    got = await ask(away, "away.shop.svc.cluster.local.")
    assert [rrset.rtype for rrset in got.answer] == [CNAME, A]


async def test_options_are_sent_to_clients_that_know_edns() -> None:
    server = server_of(Behind({"x.": Response(NOERROR, options=((15, b"\x00\x12blocked"),))}))
    packet = await wire(server, query("x.", A, payload_bytes=4096))
    assert packet.endswith(b"\x00\x0d\x00\x0f\x00\x09\x00\x12blocked")
    assert b"blocked" not in await wire(server, query("x.", A))


async def test_a_transfer_is_several_messages_on_a_stream() -> None:
    parts = tuple(Response(NOERROR, AA, (RRset("x.", A, 60, (bytes(3) + bytes((n,)),)),)) for n in range(3))
    server = server_of(Behind({"x.": evolve(parts[0], more_messages=parts[1:])}, waits=False))
    response = response_at_once(server, query("x.", AXFR), transport="tcp")
    sent = (response.wire, *(response.more_messages or ()))
    assert [decode(message).answer[0].rdata[0] for message in sent] == [bytes(3) + bytes((n,)) for n in range(3)]
    assert sum(times for _, times in server.table.partition("tcp", 4).totals()) == 3


def test_the_records_of_a_transfer_keep_their_order() -> None:
    """It begins with the SOA (RFC 5936 §2.2), also where `loadbalance` puts addresses first."""
    soa = RRset("x.", SOA, 60, (Soa("m.", "r.", 1, 2, 3, 4, 5),))
    address = RRset("x.", A, 60, (b"\xc0\0\2\1", b"\xc0\0\2\2"))
    message = Response(NOERROR, AA, (soa, address))
    for transfer, types in (
        (message, [A, A, SOA]),
        (evolve(message, more_messages=(Response(NOERROR, AA, (soa,)),)), [SOA, A, A]),
    ):
        server = server_of(Ordered(Order(rotate=True)), Behind({"x.": transfer}, waits=False))
        wire = response_at_once(server, query("x.", AXFR), transport="tcp").wire
        assert [rrset.rtype for rrset in decode(wire).answer] == types


def test_every_response_is_counted_once_for_its_block() -> None:
    zones = cluster("10.0.0.1", "cluster.local.")
    server = Server("dns://:53", (Block("cluster.local.", Chain((zones,))), Block("example.org.", Chain())))
    for name in ("web.shop.svc.cluster.local.",) * 3 + ("no.cluster.local.", "a.example.org.", "example.com."):
        respond(server, query(name, A))
    respond(server, query("x.", A)[:15])
    assert respond(server, b"short") == b""
    counts = {
        (kind.zone, kind.rcode, kind.plugin): times
        for partition in server.table.partitions.values()
        for kind, times in partition.totals()
    }
    assert counts == {
        ("cluster.local.", 0, "kubernetes"): 3,
        ("cluster.local.", 3, "kubernetes"): 1,
        ("example.org.", 5, ""): 1,
        ("dropped", 5, ""): 1,
        ("dropped", 1, ""): 1,
    }


def test_names_with_dots_in_a_label_are_other_names() -> None:
    server = server_of(cluster("10.0.0.1", "cluster.local."))
    packet = query("web.shop.svc.cluster.local.", A)
    joined = packet.replace(b"\x03web\x04shop", b"\x08web.shop")
    assert joined != packet
    for asked, rcode in ((packet, "NOERROR"), (joined, "NXDOMAIN"), (packet, "NOERROR")):
        response = respond(server, asked)
        assert response[3] & 15 == {"NOERROR": 0, "NXDOMAIN": 3}[rcode]


def test_the_first_question_needs_one_reading_of_the_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []

    def reading(packet: bytes) -> object:
        read.append(packet)
        return read_query(packet)

    monkeypatch.setattr("kdns.dnsserver.blocks.read_query", reading)
    setup = FakeWorld()
    log = Log((LogConfig((".",), compiled("{name}")),), setup)
    server = server_of(log, cluster("10.0.0.1", "cluster.local."))
    packet = query("web.shop.svc.cluster.local.", A)
    response_at_once(server, packet).sent(1.0)
    assert read == [packet]
    assert [line["line"] for line in setup.lines] == ["web.shop.svc.cluster.local."]


def test_blocks_are_swapped_and_old_answers_go() -> None:
    first, second = cluster("10.0.0.1", "cluster.local."), cluster("10.0.0.2", "cluster.local.")
    server = server_of(first)
    packet = query("web.shop.svc.cluster.local.", A)
    for plugin, expected in ((None, b"\x0a\0\0\1"), (second, b"\x0a\0\0\2")):
        if plugin:
            server.swap((Block(".", Chain((plugin,))),))
        for _ in range(2):
            response = respond(server, packet)
            assert address(decode(response)) == expected
    assert sum(times for _, times in server.table.partition("udp", 4).totals()) == 4


@pytest.mark.parametrize("reuse", [NEVER, Reuse()])
def test_loadbalance_acts_on_the_answers_of_every_directive(reuse: Reuse) -> None:
    """Kept or made anew: of two names asked in turn, each gives all of its addresses the first place."""
    ips = tuple(bytes((10, 0, 0, number)) for number in range(3))
    responses = {name: Response(NOERROR, AA, (RRset(name, A, 5, ips),), reuse=reuse) for name in ("x.", "y.")}
    server = server_of(Ordered(Order(rotate=True)), Behind(responses, waits=False))
    firsts: dict[str, list[object]] = {"x.": [], "y.": []}
    for _ in range(6):
        for name, found in firsts.items():
            response = respond(server, query(name, A))
            found.append(address(decode(response)))
    assert all(sorted(found, key=str) == sorted(ips * 2, key=str) for found in firsts.values())


def test_answers_to_queries_with_the_reserved_bit_are_not_kept() -> None:
    """Keys fold letters, also those of the header: flags 0x0141 would have the key of 0x0161, which has AD too."""
    server, _ = cluster_server(shop("10.96.0.7"), Options())
    partition, plain = server.table.partition("udp", 4), query("web.shop.svc.cluster.local.", A)
    for flags, kept in ((b"\x01\x41", 0), (b"\x01\x61", 0), (b"\x01\x00", 1)):
        assert respond(server, plain[:2] + flags + plain[4:])
        assert len(partition.answers) == kept
