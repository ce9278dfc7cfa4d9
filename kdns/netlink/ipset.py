"""Sets of addresses and ports that rules of iptables match (linux/netfilter/ipset/ip_set.h): values and messages.

One message carries hundreds of entries. An entry is written as the program ipset does: "10.96.0.1,tcp:80",
"10.0.0.1,tcp:80,10.0.0.0/8", "30080"; so entries of the kernel and desired ones are compared as text.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from kdns.net import Family, is_ipv6, unpacked
from kdns.netlink import uapi
from kdns.netlink.protocol import (
    ADDRESS_FAMILY,
    NFGENMSG,
    PROTOCOL_NUMBERS,
    Change,
    attribute,
    attribute_spans,
    attributes,
    big_endian,
    netfilter_header,
    packed_address,
    text_attribute,
    text_of,
)

_KIND: Final = uapi.NFNL_SUBSYS_IPSET << 8
DEFAULT_MAX_ENTRIES: Final = 65536
"""Default limit of entries of a hash set, as in ipset and kube-proxy."""
HASH_SIZE: Final = 1024
"""Buckets of a new hash set; it grows."""
_PROTOCOLS: Final = {name.lower(): number for name, number in PROTOCOL_NUMBERS.items()}
_NAMES: Final = {number: name for name, number in _PROTOCOLS.items()}
_LISTED_AT_ONCE: Final = 400
"""Entries of one message, of up to 68 bytes each: a list is one attribute, which has at most 64 KiB."""
_RESTRICTIONS: Final = frozenset({uapi.IPSET_ATTR_TIMEOUT, uapi.IPSET_ATTR_NETMASK, uapi.IPSET_ATTR_BITMASK})
ERROR_TEXTS: Final = {
    uapi.IPSET_ERR_PROTOCOL: "the kernel does not understand the message",
    uapi.IPSET_ERR_FIND_TYPE: "the kernel has no sets of this type",
    uapi.IPSET_ERR_MAX_SETS: "the kernel has no room for more sets",
    uapi.IPSET_ERR_BUSY: "the set is used by a rule",
    uapi.IPSET_ERR_EXIST: "it is there already, or not there",
    uapi.IPSET_ERR_TYPE_MISMATCH: "the sets have different types",
    uapi.IPSET_ERR_REFERENCED: "the set is used by a rule",
    uapi.IPSET_ERR_TYPE_SPECIFIC: "the set is full, or the entry is not in its range",
}


class SetType(NamedTuple):
    """A set's type, such as hash:ip,port, its family, and its limit of entries (0: bitmap)."""

    type_name: str
    family: Family
    max_entries: int = DEFAULT_MAX_ENTRIES


class Header(NamedTuple):
    """A set without its entries: what it is, and how many entries it has.

    `is_plain`: entries stay, and all of them can be in it; other programs may make sets that forget, or have a mask.
    """

    type: SetType
    entries: int
    is_plain: bool = True


def header_of(body: bytes) -> tuple[str, Header]:
    row = attributes(body, NFGENMSG.size)
    data = attributes(row.get(uapi.IPSET_ATTR_DATA, b""))
    family: Family = "IPv6" if row[uapi.IPSET_ATTR_FAMILY][0] == uapi.AF_INET6 else "IPv4"
    maximum = big_endian(data.get(uapi.IPSET_ATTR_MAXELEM, b""))
    entries = big_endian(data.get(uapi.IPSET_ATTR_ELEMENTS, b""))
    kind = SetType(text_of(row[uapi.IPSET_ATTR_TYPENAME]), family, maximum)
    return text_of(row[uapi.IPSET_ATTR_SETNAME]), Header(kind, entries, _is_plain(data))


def entries_of(body: bytes) -> Iterator[str]:
    for kind, start, end in attribute_spans(body, NFGENMSG.size, len(body)):
        if kind == uapi.IPSET_ATTR_ADT:
            yield from (entry_text(attributes(body[at:to])) for _, at, to in attribute_spans(body, start, end))


def request(command: int, *parts: bytes) -> Change:
    return _KIND | command, 0, _start("IPv4") + b"".join(parts)


def creation(name: str, kind: SetType, revision: int) -> Change:
    type_name, family, max_entries = kind
    if type_name == "bitmap:port":
        data = _number(uapi.IPSET_ATTR_PORT, ">H", 0) + _number(uapi.IPSET_ATTR_PORT_TO, ">H", 65535)
    else:
        data = _number(uapi.IPSET_ATTR_HASHSIZE, ">I", HASH_SIZE)
        data += _number(uapi.IPSET_ATTR_MAXELEM, ">I", max_entries or DEFAULT_MAX_ENTRIES)
    body = (
        _start(family),
        name_attribute(name),
        text_attribute(uapi.IPSET_ATTR_TYPENAME, type_name),
        attribute(uapi.IPSET_ATTR_REVISION, bytes((revision,))),
        _set_family(type_name, family),
        attribute(uapi.IPSET_ATTR_DATA, data, nested=True),
    )
    return _KIND | uapi.IPSET_CMD_CREATE, uapi.NLM_F_CREATE | uapi.NLM_F_EXCL, b"".join(body)


def type_query(type_name: str, family: Family) -> Change:
    type_attribute = text_attribute(uapi.IPSET_ATTR_TYPENAME, type_name)
    return request(uapi.IPSET_CMD_TYPE, type_attribute, _set_family(type_name, family))


def _set_family(type_name: str, family: Family) -> bytes:
    number = uapi.AF_UNSPEC if type_name == "bitmap:port" else ADDRESS_FAMILY[family]
    return attribute(uapi.IPSET_ATTR_FAMILY, bytes((number,)))


def changes(command: int, name: str, entries: Iterable[str]) -> Iterator[Change]:
    head = name_attribute(name) + attribute(uapi.IPSET_ATTR_LINENO, bytes(4))
    part: list[bytes] = []
    for entry in entries:
        part.append(attribute(uapi.IPSET_ATTR_DATA, encoded(entry), nested=True))
        if len(part) == _LISTED_AT_ONCE:
            yield _listed(command, head, part)
            part = []
    if part:
        yield _listed(command, head, part)


def _listed(command: int, head: bytes, part: list[bytes]) -> Change:
    return request(command, head, attribute(uapi.IPSET_ATTR_ADT, b"".join(part), nested=True))


def encoded(entry: str) -> bytes:
    """The attributes of an entry: as many of ADDRESS, PROTOCOL:PORT, and ADDRESS or NETWORK as the set's type has."""
    address, *further = entry.split(",")
    if address.isdigit():
        return _number(uapi.IPSET_ATTR_PORT, ">H", int(address))
    parts = [_ip(uapi.IPSET_ATTR_IP, address)]
    if further:
        protocol, _, port = further[0].partition(":")
        parts.append(_number(uapi.IPSET_ATTR_PORT, ">H", int(port)))
        parts.append(attribute(uapi.IPSET_ATTR_PROTO, bytes((_PROTOCOLS[protocol],))))
    if further[1:]:
        second, slash, length = further[1].partition("/")
        parts.append(_ip(uapi.IPSET_ATTR_IP2, second))
        parts.append(attribute(uapi.IPSET_ATTR_CIDR2, bytes((int(length),))) if slash else b"")
    return b"".join(parts)


def entry_text(row: dict[int, bytes]) -> str:
    port = big_endian(row.get(uapi.IPSET_ATTR_PORT, b""))
    if uapi.IPSET_ATTR_IP not in row:
        return str(port)
    parts = [_ip_text(row[uapi.IPSET_ATTR_IP])]
    if uapi.IPSET_ATTR_PORT in row:
        protocol = row.get(uapi.IPSET_ATTR_PROTO, b"\0")[0]
        parts.append(f"{_NAMES.get(protocol, str(protocol))}:{port}")
    if uapi.IPSET_ATTR_IP2 in row:
        length = f"/{row[uapi.IPSET_ATTR_CIDR2][0]}" if uapi.IPSET_ATTR_CIDR2 in row else ""
        parts.append(_ip_text(row[uapi.IPSET_ATTR_IP2]) + length)
    return ",".join(parts)


@lru_cache(1 << 16)
def _ip(kind: int, address: str) -> bytes:
    value = packed_address(address)
    of = uapi.IPSET_ATTR_IPADDR_IPV6 if is_ipv6(address) else uapi.IPSET_ATTR_IPADDR_IPV4
    return attribute(kind, attribute(of | uapi.NLA_F_NET_BYTEORDER, value), nested=True)


def _is_plain(data: dict[int, bytes]) -> bool:
    if data.keys() & _RESTRICTIONS:
        return False
    ports = (big_endian(data.get(kind, b"")) for kind in (uapi.IPSET_ATTR_PORT, uapi.IPSET_ATTR_PORT_TO))
    return uapi.IPSET_ATTR_PORT_TO not in data or tuple(ports) == (0, 65535)


def _ip_text(value: bytes) -> str:
    return unpacked(next(iter(attributes(value).values())))


def _number(kind: int, layout: str, value: int) -> bytes:
    return attribute(kind | uapi.NLA_F_NET_BYTEORDER, struct.pack(layout, value))


def _start(family: Family) -> bytes:
    return netfilter_header(family) + attribute(uapi.IPSET_ATTR_PROTOCOL, bytes((uapi.IPSET_PROTOCOL,)))


def name_attribute(name: str) -> bytes:
    return text_attribute(uapi.IPSET_ATTR_SETNAME, name)
