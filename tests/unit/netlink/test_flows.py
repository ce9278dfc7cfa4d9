"""Flows of connection tracking, from the kernel's bytes."""

import pytest

from kdns.net import Family, packed
from kdns.netlink.conntrack import Connection, Flow, connection_of, flow_of
from kdns.netlink.protocol import ADDRESS_FAMILY, NFGENMSG, attribute
from kdns.netlink.uapi import (
    CTA_COUNTERS_ORIG,
    CTA_COUNTERS_PACKETS,
    CTA_ID,
    CTA_IP_V4_DST,
    CTA_IP_V4_SRC,
    CTA_IP_V6_DST,
    CTA_IP_V6_SRC,
    CTA_PROTO_DST_PORT,
    CTA_PROTO_NUM,
    CTA_PROTO_SRC_PORT,
    CTA_PROTOINFO,
    CTA_PROTOINFO_TCP,
    CTA_PROTOINFO_TCP_STATE,
    CTA_STATUS,
    CTA_TUPLE_IP,
    CTA_TUPLE_ORIG,
    CTA_TUPLE_PROTO,
    CTA_TUPLE_REPLY,
    CTA_ZONE,
    IPPROTO_TCP,
    IPPROTO_UDP,
)

KINDS = {"IPv4": (CTA_IP_V4_SRC, CTA_IP_V4_DST), "IPv6": (CTA_IP_V6_SRC, CTA_IP_V6_DST)}
CLIENT = {"IPv4": ("10.1.0.9", 40000), "IPv6": ("fd00:1::9", 40000)}
FRONT = {"IPv4": ("10.96.0.10", 53), "IPv6": ("fd00:96::a", 53)}
ENDPOINT = {"IPv4": ("10.1.0.2", 5353), "IPv6": ("fd00:1::2", 5353)}


def ends(kind: int, family: Family, source: tuple[str, int], destination: tuple[str, int], protocol: int) -> bytes:
    source_kind, destination_kind = KINDS[family]
    ip = attribute(source_kind, packed(source[0])) + attribute(destination_kind, packed(destination[0]))
    proto = attribute(CTA_PROTO_NUM, bytes((protocol,)))
    proto += attribute(CTA_PROTO_SRC_PORT, source[1].to_bytes(2, "big"))
    proto += attribute(CTA_PROTO_DST_PORT, destination[1].to_bytes(2, "big"))
    both = attribute(CTA_TUPLE_IP, ip, nested=True) + attribute(CTA_TUPLE_PROTO, proto, nested=True)
    return attribute(kind, both, nested=True)


def body(family: Family, protocol: int = IPPROTO_UDP, more: bytes = b"") -> tuple[bytes, bytes]:
    """A flow from the client over the front to the endpoint, and its handle."""
    original = ends(CTA_TUPLE_ORIG, family, CLIENT[family], FRONT[family], protocol)
    reply = ends(CTA_TUPLE_REPLY, family, ENDPOINT[family], CLIENT[family], protocol)
    number = attribute(CTA_ID, b"\x12\x34\x56\x78")
    return NFGENMSG.pack(ADDRESS_FAMILY[family], 0, 0) + original + reply + number + more, original + number


@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
def test_a_flow_leads_from_the_clients_destination_to_the_source_of_answers(family: Family) -> None:
    found, handle = body(family)
    assert flow_of(found, family) == Flow(FRONT[family], ENDPOINT[family], handle)


def test_flows_of_other_protocols_and_zones_are_none() -> None:
    assert flow_of(body("IPv4", IPPROTO_TCP)[0], "IPv4") is None
    assert flow_of(body("IPv4", more=attribute(CTA_ZONE, b"\x00\x07"))[0], "IPv4") is None


@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
def test_a_connection_has_its_ends_state_and_packets(family: Family) -> None:
    state = attribute(CTA_PROTOINFO_TCP_STATE, b"\x03")
    more = attribute(CTA_PROTOINFO, attribute(CTA_PROTOINFO_TCP, state, nested=True), nested=True)
    more += attribute(CTA_COUNTERS_ORIG, attribute(CTA_COUNTERS_PACKETS, (7).to_bytes(8, "big")), nested=True)
    ends = CLIENT[family], FRONT[family], ENDPOINT[family], CLIENT[family]
    assert connection_of(body(family, IPPROTO_TCP, more)[0], family) == Connection("TCP", *ends, "established", 7)
    seen = attribute(CTA_STATUS, (0xE).to_bytes(4, "big"))
    assert connection_of(body(family, IPPROTO_UDP, seen)[0], family) == Connection("UDP", *ends, "replied")
    assert connection_of(body(family, IPPROTO_UDP)[0], family) == Connection("UDP", *ends, "unreplied")


def test_connections_of_other_protocols_and_zones_are_none() -> None:
    assert connection_of(body("IPv4", 1)[0], "IPv4") is None
    assert connection_of(body("IPv4", IPPROTO_TCP, attribute(CTA_ZONE, b"\0\1"))[0], "IPv4") is None
