"""Recorded cases of `transfer`: who gets which zone, in which records."""

from struct import pack

from dns_chain import Behind, FakeWorld
from harness import Case, cases_of, check_cases, client_of, packet_of, server_of, texts

from kdns.answers.decode import from_wire
from kdns.answers.response import Message, Response
from kdns.dns.names import encode_name, labels_of
from kdns.dns.query import AA
from kdns.dns.rdata import wire_of
from kdns.dns.types import SERVFAIL, rcode_name
from kdns.dns.zone.zone import Zone
from kdns.dns.zonefile import parse_record
from kdns.dnsserver.blocks import WireResponse
from kdns.plugins.sources.transfer import Transfers
from kdns.plugins.sources.zones.authority import Authority, ServedZone

DEVIATIONS = {
    "transfer/TestAXFRZoneMatchCaseInsensitive/0": "names that point at the question's are spelled as it is (dns0x20)",
    "transfer/TestTransferIXFRCurrent/0": "the SOA is answered with authority, so AA is set (RFC 1035 §4.1.1)",
}


def authority_of(case: Case, setup: FakeWorld) -> Authority:
    """The zones of a case as a plugin that gives them."""
    plugin = Authority("file", setup)
    held = [ServedZone(name) for name in case["zones"]]
    for each in held:
        each.zone = Zone(each.name, map(parse_record, case["zones"][each.name]))
    plugin.serve_zones(held)
    return plugin


def packet_with_authority(query: Case) -> bytes:
    """The packet of a query, with the SOA that an IXFR has."""
    packet = bytearray(packet_of(query))
    for line in query.get("authority", ()):
        rrset = parse_record(line)
        rdata = wire_of(rrset.rdata[0])
        packet += encode_name(labels_of(rrset.owner)) + pack("!HHIH", rrset.rtype, 1, rrset.ttl, len(rdata)) + rdata
        packet[9] += 1
    return bytes(packet)


def outcome(case: Case) -> str:
    """What differs in the messages of a transfer."""
    setup = FakeWorld()
    behind = Behind(lambda _: Response(SERVFAIL))
    server = server_of(case["config"], setup, authority_of(case, setup), behind)
    setup.built = server.blocks[0].chain.plugins
    partition = server.table.partition("tcp", 4)
    exchange = server.respond(packet_with_authority(case["query"]), partition, client_of(case["query"]))
    assert isinstance(exchange, WireResponse)
    messages = [from_wire(Response(body=Message(wire))) for wire in (exchange.wire, *(exchange.more_messages or ()))]
    lines = [line for message in messages for line in texts(message.answer)]
    expected = case["expect"]
    if "passed" in expected:
        assert exchange.response
        is_passed = bool(behind.requests) or exchange.response.plugin != "transfer"
        return "" if is_passed else f"answered with {lines}"
    if "served_from" in expected:
        return "" if lines and lines[0].startswith(f"{expected['served_from']} ") else f"answered with {lines}"
    if rcode_name(messages[0].rcode) != expected["rcode"]:
        return rcode_name(messages[0].rcode)
    if lines != expected.get("records", []):
        return f"{lines}"
    return "" if bool(messages[0].flags & AA) == expected.get("aa", bool(messages[0].flags & AA)) else "AA"


def chosen(case: Case) -> str:
    """What differs in the zone that a name is transferred of."""
    text = "\n".join(f"transfer {zone} {{\nto *\n}}" for zone in case["in"]["zones"])
    (plugin,) = server_of(text, FakeWorld()).blocks[0].chain.plugins
    assert isinstance(plugin, Transfers)
    config = plugin.config_of(labels_of(case["in"]["name"]))
    got = config.zones[0] if config else None
    return "" if got == case["expect"]["out"] else f"{got}"


async def test_recorded_cases() -> None:
    cases = cases_of("transfer-secondary-auto", "transfer/")
    await check_cases(
        "transfer-secondary-auto-cases.json, transfer",
        cases,
        lambda case: chosen(case) if "op" in case else outcome(case),
        DEVIATIONS,
    )
