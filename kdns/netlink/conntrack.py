"""Flows of the kernel's connection tracking: values, and the messages that list and delete them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from kdns.net import Family, unpacked
from kdns.netlink.protocol import ADDRESS_FAMILY, NFGENMSG, PROTOCOL_NAMES, Change, attribute, attributes
from kdns.netlink.uapi import (
    CTA_COUNTERS_ORIG,
    CTA_COUNTERS_PACKETS,
    CTA_FILTER,
    CTA_FILTER_ORIG_FLAGS,
    CTA_FILTER_REPLY_FLAGS,
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
    FILTER_FLAG_CTA_PROTO_NUM,
    IPCTNL_MSG_CT_DELETE,
    IPCTNL_MSG_CT_GET,
    IPPROTO_UDP,
    IPS_SEEN_REPLY,
    NFNL_SUBSYS_CTNETLINK,
)

SocketAddress: TypeAlias = tuple[str, int]
"""An address in canonical form, and a port."""

LIST_FLOWS, _DELETE = (NFNL_SUBSYS_CTNETLINK << 8 | kind for kind in (IPCTNL_MSG_CT_GET, IPCTNL_MSG_CT_DELETE))
_SOURCE: Final = {"IPv4": CTA_IP_V4_SRC, "IPv6": CTA_IP_V6_SRC}
_DESTINATION: Final = {"IPv4": CTA_IP_V4_DST, "IPv6": CTA_IP_V6_DST}


class Flow(NamedTuple):
    """A UDP flow: the destination of the client's packets, and the source of the answers. `handle` identifies it."""

    destination: SocketAddress
    answers_from: SocketAddress
    handle: bytes


class Connection(NamedTuple):
    """A connection as it is tracked: the client's packets, and the answers to them.

    `state` is TCP's, else "replied" or "unreplied". `packets` are the client's; None where the kernel counts none
    (net.netfilter.nf_conntrack_acct).
    """

    protocol: str
    source: SocketAddress
    destination: SocketAddress
    answers_from: SocketAddress
    answers_to: SocketAddress
    state: str
    packets: int | None = None


_TCP_STATES: Final = (
    "none", "SYN sent", "SYN received", "established", "FIN wait", "close wait", "last ACK", "time wait", "closed",
    "SYN sent twice",
)  # fmt: skip
"""enum tcp_conntrack, by number."""


def udp_request(family: Family) -> bytes:
    """Returns the payload of a dump of flows; the kernel (5.8 or later) leaves out protocols other than UDP."""
    protocol = attribute(CTA_PROTO_NUM, bytes([IPPROTO_UDP]))
    original = attribute(CTA_TUPLE_ORIG, attribute(CTA_TUPLE_PROTO, protocol, nested=True), nested=True)
    flags = attribute(CTA_FILTER_ORIG_FLAGS, struct.pack("=I", FILTER_FLAG_CTA_PROTO_NUM))
    udp_only = attribute(CTA_FILTER, flags + attribute(CTA_FILTER_REPLY_FLAGS, bytes(4)), nested=True)
    return NFGENMSG.pack(ADDRESS_FAMILY[family], 0, 0) + original + udp_only


def deletion(family: Family, flow: Flow) -> Change:
    """Returns the request that deletes a flow."""
    return _DELETE, 0, NFGENMSG.pack(ADDRESS_FAMILY[family], 0, 0) + flow.handle


def flow_of(body: bytes, family: Family) -> Flow | None:
    """Decodes a flow; None for other protocols, and for zones other than the node's own."""
    row = attributes(body, NFGENMSG.size)
    original = attributes(row.get(CTA_TUPLE_ORIG, b""))
    reply = attributes(row.get(CTA_TUPLE_REPLY, b""))
    if CTA_ZONE in row or CTA_TUPLE_PROTO not in original or CTA_TUPLE_PROTO not in reply:
        return None
    ports, reply_ports = attributes(original[CTA_TUPLE_PROTO]), attributes(reply[CTA_TUPLE_PROTO])
    if ports[CTA_PROTO_NUM][:1] != bytes([IPPROTO_UDP]):
        return None
    return Flow(
        (_address(original[CTA_TUPLE_IP], _DESTINATION[family]), int.from_bytes(ports[CTA_PROTO_DST_PORT], "big")),
        (_address(reply[CTA_TUPLE_IP], _SOURCE[family]), int.from_bytes(reply_ports[CTA_PROTO_SRC_PORT], "big")),
        attribute(CTA_TUPLE_ORIG, row[CTA_TUPLE_ORIG], nested=True) + attribute(CTA_ID, row[CTA_ID]),
    )


def connection_of(body: bytes, family: Family) -> Connection | None:
    """Decodes a connection; None for protocols without ports, and for zones other than the node's own."""
    row = attributes(body, NFGENMSG.size)
    original, reply = attributes(row.get(CTA_TUPLE_ORIG, b"")), attributes(row.get(CTA_TUPLE_REPLY, b""))
    if CTA_ZONE in row or CTA_TUPLE_PROTO not in original or CTA_TUPLE_PROTO not in reply:
        return None
    ports = attributes(original[CTA_TUPLE_PROTO])
    protocol = PROTOCOL_NAMES.get(ports[CTA_PROTO_NUM][0])
    if protocol is None or CTA_PROTO_DST_PORT not in ports:
        return None
    counted = attributes(row.get(CTA_COUNTERS_ORIG, b"")).get(CTA_COUNTERS_PACKETS)
    packets = int.from_bytes(counted, "big") if counted else None
    return Connection(protocol, *_ends(original, family), *_ends(reply, family), _state(row), packets)


def _ends(ends: Mapping[int, bytes], family: Family) -> tuple[SocketAddress, SocketAddress]:
    """Returns source and destination of one direction."""
    ports = attributes(ends[CTA_TUPLE_PROTO])
    return (
        (_address(ends[CTA_TUPLE_IP], _SOURCE[family]), int.from_bytes(ports[CTA_PROTO_SRC_PORT], "big")),
        (_address(ends[CTA_TUPLE_IP], _DESTINATION[family]), int.from_bytes(ports[CTA_PROTO_DST_PORT], "big")),
    )


def _state(row: Mapping[int, bytes]) -> str:
    tcp = attributes(attributes(row.get(CTA_PROTOINFO, b"")).get(CTA_PROTOINFO_TCP, b""))
    if state := tcp.get(CTA_PROTOINFO_TCP_STATE):
        return _TCP_STATES[state[0]] if state[0] < len(_TCP_STATES) else "unknown"
    return "replied" if int.from_bytes(row.get(CTA_STATUS, b""), "big") & IPS_SEEN_REPLY else "unreplied"


def _address(buffer: bytes, kind: int) -> str:
    return unpacked(attributes(buffer)[kind])
