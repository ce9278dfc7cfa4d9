"""Links: names of those that carry addresses of Services, and the messages that find, add, change and remove a link."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from kdns.netlink import uapi
from kdns.netlink.protocol import Change, attribute, text_attribute

VIRTUAL_LINK: Final = "kube-ipvs0"
"""The link whose addresses are the virtual IPs of mode ipvs; they do not count as the node's own."""
NODE_LOCAL_LINK: Final = "nodelocaldns"
"""The default link of a node-local cache, of kdns and of NodeLocal DNSCache. It has a cluster IP."""

_IFINFOMSG: Final = struct.Struct("=BxHiII")
"""Address family, type of hardware, index, flags, and which flags a request changes."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link that exists, by its index."""

    index: int
    is_up: bool


def link_of(body: bytes) -> Link:
    _, _, index, flags, _ = _IFINFOMSG.unpack_from(body)
    return Link(index, bool(flags & uapi.IFF_UP))


def question(name: str) -> tuple[int, bytes]:
    return uapi.RTM_GETLINK, _ifinfomsg() + text_attribute(uapi.IFLA_IFNAME, name)


def addition(name: str, kind: str) -> Change:
    info = attribute(uapi.IFLA_LINKINFO, text_attribute(uapi.IFLA_INFO_KIND, kind), nested=True)
    return (
        uapi.RTM_NEWLINK,
        uapi.NLM_F_CREATE | uapi.NLM_F_EXCL,
        _ifinfomsg() + text_attribute(uapi.IFLA_IFNAME, name) + info,
    )


def deletion(index: int) -> Change:
    return uapi.RTM_DELLINK, 0, _ifinfomsg(index)


def bringing_up(index: int) -> Change:
    return uapi.RTM_NEWLINK, 0, _ifinfomsg(index, uapi.IFF_UP)


def _ifinfomsg(index: int = 0, flags: int = 0) -> bytes:
    return _IFINFOMSG.pack(uapi.AF_UNSPEC, 0, index, flags, flags)
