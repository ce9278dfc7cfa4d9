"""Zones in a chain: answers are kept until their zone changes, CNAMEs go on elsewhere, mistakes keep the old zone."""

import asyncio
import gc
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from struct import pack

import pytest
from configured import configured
from dns_chain import Behind, FakeWorld, ask, respond, response_at_once, server_of_blocks, wire
from harness import server_of

from kdns.answers.chain import Block, Chain, Plugin
from kdns.answers.response import Response
from kdns.cluster.objects import EndpointSlice, Namespace, Service
from kdns.dns.message import query
from kdns.dns.names import labels_of
from kdns.dns.query import NOTIFY, QR
from kdns.dns.rdata import wire_of
from kdns.dns.rrset import RRset, Soa
from kdns.dns.types import SERVFAIL, SOA, A, type_number
from kdns.dns.zone.zone import Zone, ZoneNode
from kdns.dns.zonefile import parse_zone
from kdns.dnsserver.blocks import Server
from kdns.errors import CorefileError
from kdns.net import HostPort
from kdns.plugins.sources import auto, file
from kdns.plugins.sources.auto import AutoConfig
from kdns.plugins.sources.file import FileConfig, ZoneFiles, newer_version
from kdns.plugins.sources.kubernetes.plugin import Kubernetes
from kdns.plugins.sources.secondary import plugin as secondary
from kdns.plugins.sources.secondary.plugin import SecondaryConfig
from kdns.plugins.sources.transfer import MESSAGE_BYTES, Transfer, TransferConfig, Transfers, notify_packet, response_of
from kdns.plugins.sources.zones.authority import FREED_AT_ONCE, ServedZone
from kdns.upstream.upstream import UpstreamError, UpstreamTimeoutError

HEAD = "$TTL 60\n@ IN SOA ns admin {serial} 7200 3600 86400 30\n@ IN NS ns.example.\n"


def text(serial: int, more: str = "") -> str:
    return HEAD.format(serial=serial) + more


async def zones_of(setup: FakeWorld, *configs: FileConfig, behind: tuple[Plugin, ...] = ()) -> tuple[Server, ZoneFiles]:
    plugin = file.ZoneFiles(configs, setup)
    server = Server("dns://:53", (Block(".", Chain((plugin, *behind))),))
    setup.servers.append(server)
    await setup.prepared()
    return server, plugin


async def test_answers_are_kept_until_their_zone_changes() -> None:
    setup = FakeWorld(files={"a": text(1, "www IN A 192.0.2.1"), "b": text(1, "www IN A 192.0.2.9")})
    server, _ = await zones_of(setup, FileConfig("a", ("a.example.",)), FileConfig("b", ("b.example.",)))
    packets = [query(f"www.{name}.example.", A) for name in "ab"]
    first = [respond(server, packet) for packet in packets]
    assert len(server.table) == 2
    setup.files["a"] = text(1, "www IN A 192.0.2.2")
    await setup.prepared()
    assert [respond(server, packet) for packet in packets] == first, "the serial is the same"
    setup.files["a"] = text(2, "www IN A 192.0.2.2")
    await setup.prepared()
    assert len(server.table) == 1
    again = [respond(server, packet) for packet in packets]
    assert again[0] != first[0]
    assert again[1] == first[1]


async def test_a_name_of_another_zone_is_looked_for_in_the_whole_server() -> None:
    files = {"a": text(1, "www IN CNAME web.b.example."), "b": text(1, "web IN A 192.0.2.9\ngone IN CNAME x.nowhere.")}
    setup = FakeWorld(files=files)
    server, _ = await zones_of(setup, FileConfig("a", ("a.example.",)), FileConfig("b", ("b.example.",)))
    response = await ask(server, "www.a.example.")
    assert [rrset.owner for rrset in response.answer] == ["www.a.example.", "web.b.example."]
    assert len(server.table) == 1
    setup.files["b"] = text(2, "web IN A 192.0.2.8")
    await setup.prepared()
    assert len(server.table) == 0


async def test_mistakes_keep_the_zone_and_end_the_start() -> None:
    setup = FakeWorld(files={"a": text(1, "www IN A 192.0.2.1")})
    server, _ = await zones_of(setup, FileConfig("a", ("a.example.",)))
    setup.files["a"] = text(2, "www IN A nonsense")
    with pytest.raises(CorefileError, match="a:4"):
        await setup.prepared()
    response = await ask(server, "www.a.example.")
    assert response.rcode == "NOERROR"


@pytest.mark.parametrize("include", ["$INCLUDE", "$include"])
async def test_a_change_of_an_included_file_is_a_change_of_the_zone(include: str) -> None:
    setup = FakeWorld(files={"a": f"{include} records", "records": text(1)})
    server, _ = await zones_of(setup, FileConfig("a", ("a.example.",)))
    setup.files["records"] = text(2, "www IN A 192.0.2.1")
    await setup.prepared()
    response = await ask(server, "www.a.example.")
    assert response.rcode == "NOERROR"


async def test_a_file_that_is_not_there_is_servfail_until_it_is() -> None:
    setup = FakeWorld()
    server, _ = await zones_of(setup, FileConfig("a", ("a.example.",)))
    response = await ask(server, "www.a.example.")
    assert response.rcode == "SERVFAIL"
    assert [line["event"] for line in setup.lines] == ["zone file not readable"]
    with pytest.raises(CorefileError, match="cannot be read"):
        await zones_of(FakeWorld(), FileConfig("a", ("a.example.",), reload_s=0))


async def test_changes_since_a_version_are_kept() -> None:
    setup = FakeWorld(files={"a": text(1, "a IN A 192.0.2.1")})
    _, plugin = await zones_of(setup, FileConfig("a", ("a.example.",)))
    for serial in (2, 3):
        setup.files["a"] = text(serial, f"a IN A 192.0.2.{serial}")
        await setup.prepared()
    assert [len(list(plugin.transfer("a.example.", since).changes or ())) for since in (1, 2, 9)] == [8, 4, 0]  # type: ignore[union-attr] # the zone is there


class Hasty(FakeWorld):
    """No time passes."""

    async def sleep(self, seconds: float) -> None:
        pass


async def test_secondaries_are_told_until_they_answer() -> None:
    setup = Hasty(files={"a": text(1)})
    _, plugin = await zones_of(setup, FileConfig("a", ("a.example.",)))
    attempts: list[bytes] = []

    def answered(address: HostPort, packet: bytes) -> bytes:
        assert str(address) == "192.0.2.53:53"
        attempts.append(packet)
        if len(attempts) == 1:
            raise UpstreamTimeoutError("no response")
        return packet[:2] + b"\xa4\x00" + packet[4:]

    setup.responder = answered
    transfers = Transfers((TransferConfig(("a.example.",), (HostPort("192.0.2.53", 53),)),), setup)
    setup.built = (transfers, plugin)
    works = list(setup.works)
    setup.works.clear()
    for _ in range(2):  # a zone that waits for its NOTIFY is told of once
        await works[-1]()
    (tell,) = setup.works
    await tell()
    assert len(attempts) == 2
    soa = plugin.zones[0].zone
    assert soa
    assert attempts[0][2:] == notify_packet("a.example.", soa.soa, 0)[2:]


async def test_notify_and_transfers_are_for_those_who_want_them() -> None:
    setup = FakeWorld(files={"a": text(1)})
    server, _ = await zones_of(setup, FileConfig("a", ("a.example.",)))
    notify = bytearray(query("a.example.", type_number("SOA")))
    notify[2:4] = NOTIFY.to_bytes(2, "big")
    answered = await wire(server, bytes(notify))
    assert answered[2] & 0x78 == 0x20
    assert answered[3] & 15 == 4
    assert response_at_once(server, query("a.example.", type_number("AXFR")), transport="tcp").wire[3] & 15 == 5


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[3] / "zones").glob("*.zone")), ids=lambda path: path.stem
)
def test_the_example_zones_can_be_served(path: Path) -> None:
    name = path.name.removesuffix("zone")
    zone = file.zone_of(path.read_text(encoding="utf-8"), str(path), name, FakeWorld(files={}).read_text)
    assert zone.name == name
    assert len(zone.nodes) > 2


async def test_a_notify_of_the_primary_has_the_zone_looked_at_once() -> None:
    setup = Hasty()
    plugin = secondary.SecondaryZones((SecondaryConfig(("a.example.",), (HostPort("192.0.2.53", 53),)),), setup)
    server = Server("dns://:53", (Block(".", Chain((plugin,))),))
    setup.works.clear()
    packet = bytearray(query("a.example.", type_number("SOA")))
    packet[2:4] = NOTIFY.to_bytes(2, "big")
    for host, is_answered in (("192.0.2.1", False), ("192.0.2.53", True), ("192.0.2.53", True)):
        assert bool(response_at_once(server, bytes(packet), (host, 1)).wire) == is_answered
    (look,) = setup.works
    await look()
    assert len(setup.sent) == 1


async def test_a_zone_expires() -> None:
    setup = Hasty()
    config = SecondaryConfig(("a.example.",), (HostPort("192.0.2.53", 53),))
    plugin = secondary.SecondaryZones((config,), setup)
    (followed,) = plugin.followed.values()
    followed.served.zone = Zone("a.example.", parse_zone(text(1), "a.example."))
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        setup.clock_s += seconds
        followed.is_dropped = followed.served.zone is None

    setup.sleep = sleep  # type: ignore[method-assign] # time passes at once
    (keep,) = setup.works
    await keep()
    assert not plugin.transfer_zones()
    assert 86400 <= sum(waits) <= 86400 + 3600
    assert {round(wait / 3600) for wait in waits} >= {1}


@pytest.mark.parametrize(("expire_s", "ends_s"), [(86400 * 7, 3600), (600, 600)])
async def test_a_primary_that_sends_little_by_little_is_given_up(expire_s: int, ends_s: int) -> None:
    """The next primary is asked then, and the zone expires in time."""
    setup = FakeWorld()
    config = SecondaryConfig(("a.example.",), (HostPort("192.0.2.53", 53), HostPort("192.0.2.54", 53)))
    plugin = secondary.SecondaryZones((config,), setup)
    (followed,) = plugin.followed.values()
    zone = text(1).replace("86400", str(expire_s))
    followed.served.zone = Zone("a.example.", parse_zone(zone, "a.example."))
    newer = parse_zone(zone.replace("admin 1", "admin 2"), "a.example.")

    def respond(address: HostPort, packet: bytes) -> bytes:
        if address.host.endswith("54"):
            raise UpstreamTimeoutError("nobody is there")
        return answer(packet, newer[0])

    def drip(_address: HostPort, packet: bytes) -> Iterator[bytes]:
        yield answer(packet, newer[0])
        while setup.clock_s < 10**6:
            setup.clock_s += 20
            yield answer(packet, newer[1])

    setup.responder, setup.streamer = respond, drip
    await plugin.refresh(followed)
    assert [address.host[-2:] for address, _ in setup.sent] == ["53", "53", "53", "54"], "SOA, IXFR, AXFR, SOA"
    assert ends_s < setup.clock_s <= 2 * ends_s + 40
    assert "takes too long" in followed.reason


def answer(packet: bytes, rrset: RRset) -> bytes:
    end = packet.index(b"\0", 12) + 5
    rdata = wire_of(rrset.rdata[0])
    record = b"\xc0\x0c" + pack("!HHIH", rrset.rtype, 1, rrset.ttl, len(rdata)) + rdata
    return packet[:2] + pack("!HHHHH", QR, 1, 1, 0, 0) + packet[12:end] + record


async def test_a_large_zone_is_freed_bit_by_bit() -> None:
    setup = FakeWorld(files={"a": text(1, "$GENERATE 1-2500 h$ A 192.0.2.1")})
    server, _ = await zones_of(setup, FileConfig("a", ("a.example.",), reload_s=0))
    setup.works.clear()
    left = [nodes_there()]
    setup.files["a"] = text(2, "h1 A 192.0.2.2")
    await setup.prepared()
    assert respond(server, query("h2.a.example.", A)), "answers come from the new version"
    while setup.works or setup.running:
        setup.advance()
        setup.wait(0)
        left.append(nodes_there())
    assert left[0] - left[-1] == 2499
    assert all(before - after <= FREED_AT_ONCE for before, after in pairwise(left))


def nodes_there() -> int:
    """How many nodes of large zones there are in this process."""
    return sum(type(get_object) is ZoneNode for get_object in gc.get_objects())


async def test_the_closest_zone_answers() -> None:
    setup = FakeWorld(files={"a": text(1, "www IN A 192.0.2.1")})
    names = ("example.", "a.example.", "b.a.example.")
    _, plugin = await zones_of(setup, *(FileConfig("a", (name,)) for name in names))
    for name, zone in (("x.b.a.example.", names[2]), ("a.example.", names[1]), ("ba.example.", names[0])):
        held = plugin.zone_of(labels_of(name))
        assert held
        assert held.name == zone
    assert plugin.zone_of(labels_of("org.")) is None


# what a primary with an SOA of serial 3 sends for IXFR and AXFR, where None ends the connection; the serial afterwards
LIARS: dict[str, tuple[tuple[int, ...] | None, tuple[int, ...] | None, int]] = {
    "an IXFR that ends": (None, (3, 3), 3),
    "an IXFR that goes on elsewhere": ((3, 1, 2, 3, 3, 3), (3, 3), 3),
    "an IXFR with another end": ((3, 1, 3, 2), (3, 3), 3),
    "nothing newer after all": ((1,), None, 1),
    "an older zone": (None, (0, 0), 1),
    "the same zone": (None, (1, 1), 1),
}


@pytest.mark.parametrize("about", LIARS)
async def test_a_primary_that_lies(about: str) -> None:
    """Differences that cannot be applied are asked for as a whole zone; a zone is never replaced by an older one."""
    changes, whole, serial = LIARS[about]
    setup = FakeWorld()
    plugin = secondary.SecondaryZones((SecondaryConfig(("a.example.",), (HostPort("192.0.2.53", 53),)),), setup)
    (followed,) = plugin.followed.values()
    followed.served.zone = Zone("a.example.", parse_zone(text(1), "a.example."))

    def soa(serial: int) -> RRset:
        return parse_zone(text(serial), "a.example.")[0]

    def stream(_address: HostPort, packet: bytes) -> Iterator[bytes]:
        serials = whole if packet.endswith(pack("!HH", type_number("AXFR"), 1)) else changes
        if serials is None:
            raise UpstreamError("the connection ended before the transfer did")
        yield from (answer(packet, soa(serial)) for serial in serials)

    setup.responder, setup.streamer = lambda _, packet: answer(packet, soa(3)), stream
    await plugin.refresh(followed)
    zone = followed.served.zone
    assert zone
    assert zone.serial == serial
    assert bool(followed.reason) == ("zone" in about)


LEAVING = """
c CNAME www.elsewhere.test.
d DNAME elsewhere.test.
*.w CNAME www.elsewhere.test.
one CNAME two
two CNAME one
self CNAME self
"""


@pytest.mark.parametrize(
    ("name", "rcode", "answer"),
    [
        ("c.a.example.", "NOERROR", ["c.a.example. 5"]),
        ("x.d.a.example.", "NOERROR", ["d.a.example. 39", "x.d.a.example. 5"]),
        ("x.w.a.example.", "NOERROR", ["x.w.a.example. 5"]),
        ("one.a.example.", "NOERROR", ["one.a.example. 5", "two.a.example. 5"]),
        ("self.a.example.", "NOERROR", ["self.a.example. 5"]),
        ("nowhere.a.example.", "NXDOMAIN", []),
        ("a.elsewhere.test.", "REFUSED", []),
    ],
)
async def test_cnames_that_nobody_follows_are_the_answer(name: str, rcode: str, answer: list[str]) -> None:
    """RFC 1034 §4.3.2: for the directives of zones alone, and with others in front of them."""
    for directives in ("", "errors", "errors\nlog\ncache", "auto other.example. {\ndirectory /none\n}"):
        setup = FakeWorld(files={"a": text(1, LEAVING)})
        server = server_of(f"file a a.example.\n{directives}", setup)
        await setup.prepared()
        response = await ask(server, name)
        assert (response.rcode, [f"{rrset.owner} {rrset.rtype}" for rrset in response.answer]) == (rcode, answer), (
            directives
        )
        assert ("aa" in response.flags) == (rcode != "REFUSED"), directives


async def test_an_upstream_that_fails_behind_a_cname_is_servfail() -> None:
    """RFC 6604 §3: the rcode is that of the last name, if somebody answers for it."""
    setup = FakeWorld(files={"a": text(1, LEAVING)})
    server = server_of("file a a.example.", setup, Behind(lambda _request: Response(SERVFAIL, plugin="forward")))
    await setup.prepared()
    response = await ask(server, "c.a.example.")
    assert (response.rcode, len(response.answer)) == ("SERVFAIL", 1)


PARENT = "a IN NS ns.a\nns.a A 192.0.2.1\na IN DS 1 13 2 " + 64 * "0" + "\n"
PARENT_FILE = "file parent example."
CHILD_FILE = "file child a.example."


@pytest.mark.parametrize(
    "corefile",
    [
        f". {{\n{PARENT_FILE}\n{CHILD_FILE}\n}}",
        f". {{\n{CHILD_FILE}\n{PARENT_FILE}\n}}",
        f". {{\n{CHILD_FILE}\nauto example. {{\ndirectory d (.*)[.]db {{1}}.\n}}\n}}",
        f"a.example {{\n{CHILD_FILE}\n}}\nexample {{\n{PARENT_FILE}\n}}",
        f"a.example {{\nwhoami\n}}\n. {{\n{PARENT_FILE}\n}}",
        f". {{\nkubernetes a.example\n{PARENT_FILE}\n}}",
    ],
)
async def test_ds_is_answered_from_the_parents_side(corefile: str) -> None:
    """RFC 4035 §3.1.4.1: in one block and in several, by one directive and by two."""
    files = {"parent": text(1, PARENT), "child": text(2), "d/example.db": text(1, PARENT)}
    server = await blocks_of(corefile, files)
    for name, qtype, answer in (("a.example.", "DS", [43]), ("a.example.", "SOA", [6])):
        if qtype == "SOA" and CHILD_FILE not in corefile:
            continue
        response = await ask(server, name, qtype)
        assert (response.rcode, [rrset.rtype for rrset in response.answer]) == ("NOERROR", answer), qtype
        assert "aa" in response.flags


async def test_ds_of_a_child_whose_parent_is_not_served_is_nodata_of_the_child() -> None:
    for more in ("", ". {\nwhoami\n}", "org {\nfile parent org\n}"):
        server = await blocks_of(f"a.example {{\n{CHILD_FILE}\n}}\n{more}", {"child": text(2), "parent": text(1)})
        response = await ask(server, "a.example.", "DS")
        assert (response.rcode, response.answer, [rrset.owner for rrset in response.authority]) == (
            "NOERROR",
            (),
            ["a.example."],
        )


HOST = "hosts {\n192.0.2.1 www.elsewhere.test\n}\n"
FOR_SOME = [
    ("acl {\nblock net 192.0.2.66\n}\n" + HOST, "A"),
    ("acl {\ndrop net 192.0.2.66\n}\n" + HOST, "A"),
    ("acl {\nfilter net 192.0.2.66\n}\n" + HOST, "A"),
    ("dns64\n" + HOST, "AAAA"),
    ("view some {\nexpr client_ip() != '192.0.2.66'\n}\n" + HOST, "A"),
]


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(("elsewhere", "qtype"), FOR_SOME)
async def test_what_one_client_gets_behind_a_cname_is_not_kept_for_others(
    elsewhere: str, qtype: str, *, is_first: bool
) -> None:
    """The cache stands in front of the zone, what tells clients apart in the block of the CNAME's target."""
    corefile = f"a.example {{\ncache\nfile zone a.example\n}}\nelsewhere.test {{\n{elsewhere}}}\n"
    server = await blocks_of(corefile, {"zone": text(1, LEAVING)})
    for client in ("2001:db8::1", "192.0.2.66")[:: 1 if is_first else -1]:
        response = await ask(server, "c.a.example.", qtype, client=client)
        has_address = any(rrset.rtype == type_number(qtype) for rrset in response.answer)
        assert has_address == (client == "2001:db8::1"), client


async def test_a_cname_to_a_cluster_that_is_not_listed_yet_is_asked_again() -> None:
    """Its SERVFAIL is of that moment: the cache in front of the zone does not keep it."""
    corefile = "a.example {\ncache\nfile zone a.example\n}\nelsewhere.test {\nkubernetes elsewhere.test\n}\n"
    server = await blocks_of(corefile, {"zone": text(1, LEAVING)})
    (cluster,) = server.blocks[1].chain.plugins
    assert isinstance(cluster, Kubernetes)
    rcodes = []
    for kinds in ((), (Service, EndpointSlice, Namespace)):
        cluster.zones.state.synced |= set(kinds)
        response = await ask(server, "c.a.example.")
        rcodes.append(response and response.rcode)
    assert rcodes == ["SERVFAIL", "NXDOMAIN"]


async def test_a_limit_of_responses_counts_those_of_clients() -> None:
    """What the server asks itself for a CNAME's target is no response."""
    corefile = (
        f"a.example {{\nfile zone a.example\n}}\nelsewhere.test {{\nrrl {{\nresponses-per-second 1\n}}\n{HOST}}}\n"
    )
    server = await blocks_of(corefile, {"zone": text(1, LEAVING)})
    for name in ("c.a.example.", "x.w.a.example.", "www.elsewhere.test."):
        response = await ask(server, name, client="192.0.2.1")
        assert response.answer[-1].rtype == A, name


async def blocks_of(corefile: str, files: dict[str, str]) -> Server:
    """The server of all blocks of a Corefile, with their files read."""
    configs = configured(corefile)
    worlds = [FakeWorld(files=files) for _ in configs]
    server = server_of_blocks(configs, iter(worlds).__next__)
    for world in worlds:
        await world.prepared()
    return server


def test_a_zone_is_transferred_in_messages_of_some_kibibytes() -> None:
    soa = RRset("a.", SOA, 60, (Soa("ns.a.", "h.a.", 1, 2, 3, 4, 5),))
    addresses = [RRset(f"{number}.a.", A, 60, (bytes(4),)) for number in range(1000)]
    response = response_of(Transfer(soa, addresses), None, is_stream=True)
    records = [message.answer for message in (response, *response.more_messages)]
    assert [rrset for answer in records for rrset in answer] == [soa, *addresses, soa]
    assert all(len(answer) < MESSAGE_BYTES / 16 for answer in records)


@pytest.mark.parametrize("ignores_serial", [False, True])
def test_a_changed_file_with_the_same_serial(ignores_serial: bool) -> None:
    """Also one that only includes a changed file; without a change there is no new version."""
    head = "@ 60 IN SOA ns.a. root.a. 1 60 60 60 60\n@ 60 IN NS ns.a.\n"
    files = FakeWorld(files={"/db": head + "x 60 IN A 192.0.2.1\n", "/more": "y 60 IN A 192.0.2.1\n"})
    served = ServedZone("a.")

    def has_new_version() -> bool:
        version = newer_version("/db", served, files, ignores_serial=ignores_serial)
        served.zone = version.zone if version else served.zone
        return version is not None

    found = [has_new_version(), has_new_version()]
    for path, text in (
        ("/db", head + "x 60 IN A 192.0.2.2\n"),
        ("/db", head + "$INCLUDE more\n"),
        ("/more", "y 60 IN A 192.0.2.2\n"),
    ):
        files.files[path] = text
        found += [has_new_version(), has_new_version()]
    assert found == [True, False, *[ignores_serial, False] * 3]


PATH = "/zones/db.a.example"
ZONE = "@ 60 IN SOA ns.example. root.example. 1 60 60 60 60\n@ 60 IN NS ns.example.\n"
BROKEN = "@ 60 IN NS ns.example.\n"


async def looks(setup: FakeWorld) -> asyncio.Task[None]:
    """The task that looks at the directory at intervals, where it waits."""
    await setup.prepared()
    (work,) = setup.works
    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    return task


async def look(setup: FakeWorld) -> list[str]:
    """The warnings so far, after another look."""
    setup.wait(60.0)
    for _ in range(5):
        await asyncio.sleep(0)
    return [str(line["event"]) for line in setup.lines if line["log_level"] == "warning"]


async def test_a_mistake_that_comes_back_is_said_again() -> None:
    setup = FakeWorld(files={PATH: ZONE})
    auto.AutoZones((AutoConfig(("a.example.",), "/zones"),), setup)
    task = await looks(setup)
    for text, count in ((BROKEN, 1), (BROKEN, 1), (ZONE, 1), (BROKEN, 2)):
        setup.files[PATH] = text
        assert await look(setup) == ["zone file not usable"] * count
    task.cancel()


async def test_a_directory_with_too_many_files_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = FakeWorld(files={PATH: ZONE})
    plugin = auto.AutoZones((AutoConfig(("a.example.",), "/zones"),), setup)
    task = await looks(setup)

    def too_many(_files: FakeWorld, directory: str) -> tuple[str, ...]:
        raise CorefileError(directory, 0, "", "has more than 10,000 files")

    with monkeypatch.context() as patched:
        patched.setattr(FakeWorld, "files_below", too_many)
        assert await look(setup) == ["directory not usable"]
        assert await look(setup) == ["directory not usable"]
    setup.files.clear()
    await look(setup)
    assert plugin.zones == ()
    task.cancel()
