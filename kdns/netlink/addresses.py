"""Links and addresses: values, and the messages that list, add and delete addresses."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from kdns.net import packed, unpacked
from kdns.netlink import uapi
from kdns.netlink.protocol import Change, address_family, attribute, attributes

VIRTUAL_LINK: Final = "kube-ipvs0"
"""The link whose addresses are the virtual IPs of mode ipvs; they do not count as the node's own."""
NODE_LOCAL_LINK: Final = "nodelocaldns"
"""The default link of a node-local cache, of kdns and of NodeLocal DNSCache. It has a cluster IP."""
_IFADDRMSG: Final = struct.Struct("=BBBBI")
"""Address family, prefix length, flags, scope, interface index."""
_DEPRECATED: Final = struct.pack("=IIII", 0, 0xFFFFFFFF, 0, 0)
"""struct ifa_cacheinfo: preferred for 0 s, valid forever, two times that the kernel ignores."""
LIST_ALL: Final = _IFADDRMSG.pack(uapi.AF_UNSPEC, 0, 0, 0, 0)
"""The payload of a dump of all addresses."""


@dataclass(frozen=True, slots=True)
class InterfaceAddress:
    """One address of an interface."""

    interface: str
    address: str


class IndexedAddress(NamedTuple):
    """An address with the index of its interface. `peer` differs from `local` on a tunnel; "": not sent."""

    interface: int
    local: str
    peer: str


def address_of(body: bytes) -> IndexedAddress:
    """With IFA_LOCAL, IFA_ADDRESS is the peer's."""
    row = attributes(body, _IFADDRMSG.size)
    local, peer = row.get(uapi.IFA_LOCAL) or row.get(uapi.IFA_ADDRESS), row.get(uapi.IFA_ADDRESS)
    return IndexedAddress(index_of(body), unpacked(local) if local else "", unpacked(peer) if peer else "")


def index_of(body: bytes) -> int:
    index: int = _IFADDRMSG.unpack_from(body)[4]
    return index


def addition(index: int, address: str) -> Change:
    """The node's own packets do not come from this address.

    The kernel chooses a deprecated IPv6 address as a source only if no other fits; IPv4 has no such mark.
    """
    body = _host_address(index, address)
    if address_family(address) == uapi.AF_INET6:
        body += attribute(uapi.IFA_CACHEINFO, _DEPRECATED)
    return uapi.RTM_NEWADDR, uapi.NLM_F_CREATE | uapi.NLM_F_EXCL, body


def deletion(index: int, address: str) -> Change:
    return uapi.RTM_DELADDR, 0, _host_address(index, address)


def _host_address(index: int, address: str) -> bytes:
    """An address with the longest prefix. Every node has it, so duplicate address detection is off."""
    value, family = packed(address), address_family(address)
    bits, flags = (128, uapi.IFA_F_NODAD) if family == uapi.AF_INET6 else (32, 0)
    return (
        _IFADDRMSG.pack(family, bits, flags, 0, index)
        + attribute(uapi.IFA_LOCAL, value)
        + attribute(uapi.IFA_ADDRESS, value)
    )


@dataclass(frozen=True, slots=True)
class Link:
    """A link that exists, by its index."""

    index: int
    is_up: bool
