"""Flows of the kernel's connection tracking: values, and the messages that list and delete them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from kdns.net import Family, unpacked
from kdns.netlink import uapi
from kdns.netlink.protocol import (
    NFGENMSG,
    PROTOCOL_NAMES,
    Change,
    attribute,
    attributes,
    big_endian,
    netfilter_header,
)

SocketAddress: TypeAlias = tuple[str, int]
"""An address in canonical form, and a port."""

LIST_FLOWS, _DELETE = (
    uapi.NFNL_SUBSYS_CTNETLINK << 8 | kind for kind in (uapi.IPCTNL_MSG_CT_GET, uapi.IPCTNL_MSG_CT_DELETE)
)
_SOURCE: Final = {"IPv4": uapi.CTA_IP_V4_SRC, "IPv6": uapi.CTA_IP_V6_SRC}
_DESTINATION: Final = {"IPv4": uapi.CTA_IP_V4_DST, "IPv6": uapi.CTA_IP_V6_DST}


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
    """Payload of a dump of flows; the kernel (5.8 or later) leaves out protocols other than UDP."""
    protocol = attribute(uapi.CTA_PROTO_NUM, bytes([uapi.IPPROTO_UDP]))
    original = attribute(uapi.CTA_TUPLE_ORIG, attribute(uapi.CTA_TUPLE_PROTO, protocol, nested=True), nested=True)
    flags = attribute(uapi.CTA_FILTER_ORIG_FLAGS, struct.pack("=I", uapi.FILTER_FLAG_CTA_PROTO_NUM))
    udp_only = attribute(uapi.CTA_FILTER, flags + attribute(uapi.CTA_FILTER_REPLY_FLAGS, bytes(4)), nested=True)
    return netfilter_header(family) + original + udp_only


def deletion(family: Family, flow: Flow) -> Change:
    return _DELETE, 0, netfilter_header(family) + flow.handle


def flow_of(body: bytes, family: Family) -> Flow | None:
    """None for other protocols, and for zones other than the node's own."""
    row = attributes(body, NFGENMSG.size)
    original = attributes(row.get(uapi.CTA_TUPLE_ORIG, b""))
    reply = attributes(row.get(uapi.CTA_TUPLE_REPLY, b""))
    if uapi.CTA_ZONE in row or uapi.CTA_TUPLE_PROTO not in original or uapi.CTA_TUPLE_PROTO not in reply:
        return None
    ports, reply_ports = attributes(original[uapi.CTA_TUPLE_PROTO]), attributes(reply[uapi.CTA_TUPLE_PROTO])
    if ports[uapi.CTA_PROTO_NUM][:1] != bytes([uapi.IPPROTO_UDP]):
        return None
    return Flow(
        (
            _address(original[uapi.CTA_TUPLE_IP], _DESTINATION[family]),
            big_endian(ports[uapi.CTA_PROTO_DST_PORT]),
        ),
        (
            _address(reply[uapi.CTA_TUPLE_IP], _SOURCE[family]),
            big_endian(reply_ports[uapi.CTA_PROTO_SRC_PORT]),
        ),
        attribute(uapi.CTA_TUPLE_ORIG, row[uapi.CTA_TUPLE_ORIG], nested=True)
        + attribute(uapi.CTA_ID, row[uapi.CTA_ID]),
    )


def connection_of(body: bytes, family: Family) -> Connection | None:
    """None for protocols without ports, and for zones other than the node's own."""
    row = attributes(body, NFGENMSG.size)
    original, reply = attributes(row.get(uapi.CTA_TUPLE_ORIG, b"")), attributes(row.get(uapi.CTA_TUPLE_REPLY, b""))
    if uapi.CTA_ZONE in row or uapi.CTA_TUPLE_PROTO not in original or uapi.CTA_TUPLE_PROTO not in reply:
        return None
    ports = attributes(original[uapi.CTA_TUPLE_PROTO])
    protocol = PROTOCOL_NAMES.get(ports[uapi.CTA_PROTO_NUM][0])
    if protocol is None or uapi.CTA_PROTO_DST_PORT not in ports:
        return None
    counted = attributes(row.get(uapi.CTA_COUNTERS_ORIG, b"")).get(uapi.CTA_COUNTERS_PACKETS)
    packets = big_endian(counted) if counted else None
    return Connection(protocol, *_ends(original, family), *_ends(reply, family), _state(row), packets)


def _ends(ends: Mapping[int, bytes], family: Family) -> tuple[SocketAddress, SocketAddress]:
    ports = attributes(ends[uapi.CTA_TUPLE_PROTO])
    return (
        (_address(ends[uapi.CTA_TUPLE_IP], _SOURCE[family]), big_endian(ports[uapi.CTA_PROTO_SRC_PORT])),
        (
            _address(ends[uapi.CTA_TUPLE_IP], _DESTINATION[family]),
            big_endian(ports[uapi.CTA_PROTO_DST_PORT]),
        ),
    )


def _state(row: Mapping[int, bytes]) -> str:
    tcp = attributes(attributes(row.get(uapi.CTA_PROTOINFO, b"")).get(uapi.CTA_PROTOINFO_TCP, b""))
    if state := tcp.get(uapi.CTA_PROTOINFO_TCP_STATE):
        return _TCP_STATES[state[0]] if state[0] < len(_TCP_STATES) else "unknown"
    return "replied" if big_endian(row.get(uapi.CTA_STATUS, b"")) & uapi.IPS_SEEN_REPLY else "unreplied"


def _address(buffer: bytes, kind: int) -> str:
    return unpacked(attributes(buffer)[kind])
