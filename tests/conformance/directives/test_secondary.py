"""Recorded cases of `secondary`: catalog zones, transfers that fail, and NOTIFY."""

from collections.abc import Awaitable, Iterable, Iterator
from struct import pack

from dns_chain import Behind, FakeWorld
from harness import Case, cases_of, check_cases, difference, reply_to, server_of, shown

from kdns.answers.response import Response
from kdns.dns.names import encode_name, labels_of
from kdns.dns.query import QR
from kdns.dns.rdata import wire_of
from kdns.dns.types import SERVFAIL
from kdns.dns.zone.catalog import CatalogError, parse_catalog
from kdns.dns.zonefile import ZoneFileError, parse_record, parse_zone
from kdns.dnsserver.blocks import Server
from kdns.net import HostPort
from kdns.plugins.sources.secondary.plugin import SecondaryZones
from kdns.plugins.sources.transfer import is_one_of
from kdns.upstream.upstream import UpstreamError

DEVIATIONS = {
    "secondary/TestTransferInCatalogRejectsUncoordinatedMigration/0": "a catalog of the same serial"
    " is not transferred again (RFC 1034 §4.3.5), and a member whose coo changes is served on"
}
PRIMARY = "192.0.2.53"


def message(packet: bytes, lines: Iterable[str]) -> bytes:
    """A response to a packet about a zone with these records in its answer section."""
    end = packet.index(b"\0", 12) + 5
    rows = list(map(parse_record, lines))
    body = b""
    for rrset in rows:
        rdata = wire_of(rrset.rdata[0])
        body += encode_name(labels_of(rrset.owner)) + pack("!HHIH", rrset.rtype, 1, rrset.ttl, len(rdata)) + rdata
    return packet[:2] + pack("!HHHHH", QR, 1, len(rows), 0, 0) + packet[12:end] + body


class Primary:
    """What the primaries of a test have: records by zone, and by address what they do otherwise."""

    def __init__(self, setup: FakeWorld) -> None:
        self.zones: dict[str, list[str]] = {}
        self.broken: dict[str, list[str]] = {}
        setup.responder = self.respond
        setup.streamer = self.stream

    def lines_of(self, packet: bytes) -> list[str]:
        return next(
            (lines for name, lines in self.zones.items() if packet[12:].startswith(encode_name(labels_of(name)))), []
        )

    def respond(self, address: HostPort, packet: bytes) -> bytes:
        del address
        return message(packet, self.lines_of(packet)[:1])

    def stream(self, address: HostPort, packet: bytes) -> Iterator[bytes]:
        if address.host in self.broken:
            yield message(packet, self.broken[address.host])
            raise UpstreamError("the connection ended")
        lines = self.lines_of(packet)
        if not lines:
            raise UpstreamError("no such zone")
        for line in lines:
            yield message(packet, [line])


def secondary_of(config: str, setup: FakeWorld) -> tuple[Server, SecondaryZones]:
    server = server_of(config.replace("PRIMARY", PRIMARY), setup, Behind(lambda _: Response(SERVFAIL)))
    plugin = server.blocks[0].chain.plugins[0]
    assert isinstance(plugin, SecondaryZones)
    return server, plugin


async def catalog_outcome(case: Case) -> str:
    """What differs in the replies while catalogs and their members are transferred."""
    setup = FakeWorld()
    primary = Primary(setup)
    server, plugin = secondary_of(case["config"], setup)
    for step in case["steps"]:
        if "transfer" in step:
            setup.clock_s += 1
            primary.zones[step["transfer"]] = step["records"]
            if followed := plugin.followed.get(step["transfer"]):
                await plugin.refresh(followed)
            continue
        expected = dict(step["expect"])
        expected["rcode"] = expected.pop("returned", None) or expected["rcode"]
        if wrong := difference(expected, shown(await reply_to(server, step["query"]))):
            return f"{step['query']}: {wrong}"
    if (expected := case.get("expect", {})).get("transfer"):
        (followed,) = plugin.followed.values()
        if (followed.served.zone is not None) != expected["zone_live"]:
            return f"{followed.reason or 'accepted'}"
        return "" if expected.get("error_has", "") in followed.reason else followed.reason
    return ""


def catalog_parsed(case: Case) -> str:
    """What differs in what a catalog is understood as."""
    given, expected = case["in"], case["expect"]["out"]
    try:
        members = parse_catalog(given["origin"], parse_zone(given["zone"], given["origin"]))
    except (CatalogError, ZoneFileError) as error:
        is_class = isinstance(error, ZoneFileError) and expected.get("error") == "non-IN"
        return "" if "error" in expected and (is_class or expected["error"] in str(error)) else str(error)
    got = [
        {"id": member.id, "zone": member.zone, "groups": member.groups, "coo": member.coo}
        for member in members.values()
    ]
    return "" if got == expected else f"{got}"


async def transferred(case: Case) -> str:
    """What differs in a zone that was transferred."""
    setup = FakeWorld()
    primary = Primary(setup)
    senders = case.get("primaries") or [{"send": case["primary"]["AXFR"], "then": "complete"}]
    hosts = [f"192.0.2.{number}" for number, _ in enumerate(senders, 1)]
    for host, sender in zip(hosts, senders, strict=True):
        if sender["then"] == "close":
            primary.broken[host] = sender["send"]
        else:
            primary.zones[case["zone"]] = sender["send"]
    _, plugin = secondary_of(f"secondary {case['zone']} {{\ntransfer from {' '.join(hosts)}\n}}", setup)
    (followed,) = plugin.followed.values()
    await plugin.refresh(followed)
    zone, expected = followed.served.zone, case["expect"]
    if zone is None:
        return followed.reason
    if "soa" in expected and zone.soa != parse_record(expected["soa"]):
        return f"{zone.soa}"
    missing = [name for name in expected.get("has", ()) if labels_of(name) not in zone.nodes]
    surplus = [name for name in expected.get("has_not", ()) if labels_of(name) in zone.nodes]
    return f"without {missing}, with {surplus}" if missing or surplus else ""


async def test_recorded_cases() -> None:
    def outcome(case: Case) -> str | Awaitable[str] | None:
        if case["id"].startswith("secondary/"):
            return catalog_outcome(case)
        if case["id"].startswith("pkg/catalog/"):
            return catalog_parsed(case)
        if case.get("op") == "transfer_in":
            return transferred(case)
        return accepted(case) if case.get("func") == "notify_accepted" else None

    names = ("transfer-secondary-auto", "functions", "file")
    cases = [case for name in names for case in cases_of(name)]
    await check_cases("transfer-secondary-auto-, functions- and file-cases.json, secondary", cases, outcome, DEVIATIONS)


def accepted(case: Case) -> str:
    """Whether a NOTIFY counts."""
    hosts = [HostPort(host, int(port)) for host, port in (text.split(":") for text in case["in"]["transfer_from"])]
    got = is_one_of(case["in"]["from"], hosts)
    return "" if got == case["expect"]["out"] else f"{got}"
