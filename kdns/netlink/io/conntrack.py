"""The UDP flows of the kernel's connection tracking: listing and deleting. Both block, and are for other threads."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from kdns.net import Family, unpacked
from kdns.netlink.conntrack import Flow
from kdns.netlink.io.protocol import ADDRESS_FAMILY, NFGENMSG, attribute, attributes, requests
from kdns.netlink.uapi import (
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
    CTA_TUPLE_IP,
    CTA_TUPLE_ORIG,
    CTA_TUPLE_PROTO,
    CTA_TUPLE_REPLY,
    CTA_ZONE,
    FILTER_FLAG_CTA_PROTO_NUM,
    IPCTNL_MSG_CT_DELETE,
    IPCTNL_MSG_CT_GET,
    NETLINK_NETFILTER,
    NFNL_SUBSYS_CTNETLINK,
)

_GET, _DELETE = (NFNL_SUBSYS_CTNETLINK << 8 | kind for kind in (IPCTNL_MSG_CT_GET, IPCTNL_MSG_CT_DELETE))
_DELETED_AT_ONCE: Final = 4096
_SOURCE: Final = {"IPv4": CTA_IP_V4_SRC, "IPv6": CTA_IP_V6_SRC}
_DESTINATION: Final = {"IPv4": CTA_IP_V4_DST, "IPv6": CTA_IP_V6_DST}


def udp_flows(family: Family, is_wanted: Callable[[Flow], bool] = lambda _: True) -> list[Flow]:
    """The UDP flows of a family that are wanted; OSError where connection tracking cannot be listed.

    A table may have a million flows, of which few are wanted: each is looked at when it is read.
    """
    found: list[Flow] = []

    def receive(body: bytes) -> None:
        if (flow := _flow(body, family)) and is_wanted(flow):
            found.append(flow)

    with requests(NETLINK_NETFILTER) as kernel:
        kernel.dump(_GET, NFGENMSG.pack(ADDRESS_FAMILY[family], 0, 0) + _only_udp(), receive)
    return found


def _only_udp() -> bytes:
    """Attributes that let the kernel (5.8 or later) leave out flows of other protocols."""
    protocol = attribute(CTA_PROTO_NUM, bytes([socket.IPPROTO_UDP]))
    original = attribute(CTA_TUPLE_ORIG, attribute(CTA_TUPLE_PROTO, protocol, nested=True), nested=True)
    flags = attribute(CTA_FILTER_ORIG_FLAGS, struct.pack("=I", FILTER_FLAG_CTA_PROTO_NUM))
    return original + attribute(CTA_FILTER, flags + attribute(CTA_FILTER_REPLY_FLAGS, bytes(4)), nested=True)


def delete_flows(family: Family, flows: Iterable[Flow]) -> int:
    """Delete these flows, and return how many of them still existed; OSError where the kernel refuses others."""
    head, deleted = NFGENMSG.pack(ADDRESS_FAMILY[family], 0, 0), 0
    with requests(NETLINK_NETFILTER) as kernel:
        remaining = iter(flows)
        while some := [(_DELETE, 0, head + flow.handle) for flow in islice(remaining, _DELETED_AT_ONCE)]:
            refused = kernel.do_all(some)
            deleted += len(some) - len(refused)
            for error in refused.values():
                if error != errno.ENOENT:
                    raise OSError(error, os.strerror(error))
    return deleted


def _flow(body: bytes, family: Family) -> Flow | None:
    """The flow of a message; None for other protocols, and for zones other than the node's own."""
    row = attributes(body, NFGENMSG.size)
    original = attributes(row.get(CTA_TUPLE_ORIG, b""))
    reply = attributes(row.get(CTA_TUPLE_REPLY, b""))
    if CTA_ZONE in row or CTA_TUPLE_PROTO not in original or CTA_TUPLE_PROTO not in reply:
        return None
    ports, reply_ports = attributes(original[CTA_TUPLE_PROTO]), attributes(reply[CTA_TUPLE_PROTO])
    if ports[CTA_PROTO_NUM][:1] != bytes([socket.IPPROTO_UDP]):
        return None
    return Flow(
        (_address(original[CTA_TUPLE_IP], _DESTINATION[family]), int.from_bytes(ports[CTA_PROTO_DST_PORT], "big")),
        (_address(reply[CTA_TUPLE_IP], _SOURCE[family]), int.from_bytes(reply_ports[CTA_PROTO_SRC_PORT], "big")),
        attribute(CTA_TUPLE_ORIG, row[CTA_TUPLE_ORIG], nested=True) + attribute(CTA_ID, row[CTA_ID]),
    )


def _address(buffer: bytes, kind: int) -> str:
    return unpacked(attributes(buffer)[kind])
