"""Sets of addresses and ports that rules of iptables look into (linux/netfilter/ipset/ip_set.h). All of it blocks.

One message carries hundreds of entries. An entry is written as the program ipset does: "10.96.0.1,tcp:80",
"10.0.0.1,tcp:80,10.0.0.0/8", "30080"; so what is read back compares as text with what is wanted.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Final, NamedTuple

from kdns.net import Family, is_ipv6, packed, unpacked
from kdns.netlink.io.protocol import (
    ADDRESS_FAMILY,
    NFGENMSG,
    Change,
    Requests,
    attribute,
    attribute_spans,
    attributes,
    requests,
    text_of,
)
from kdns.netlink.uapi import (
    IPSET_ATTR_ADT,
    IPSET_ATTR_BITMASK,
    IPSET_ATTR_CIDR2,
    IPSET_ATTR_DATA,
    IPSET_ATTR_ELEMENTS,
    IPSET_ATTR_FAMILY,
    IPSET_ATTR_FLAGS,
    IPSET_ATTR_HASHSIZE,
    IPSET_ATTR_IP,
    IPSET_ATTR_IP2,
    IPSET_ATTR_IPADDR_IPV4,
    IPSET_ATTR_IPADDR_IPV6,
    IPSET_ATTR_LINENO,
    IPSET_ATTR_MAXELEM,
    IPSET_ATTR_NETMASK,
    IPSET_ATTR_PORT,
    IPSET_ATTR_PORT_TO,
    IPSET_ATTR_PROTO,
    IPSET_ATTR_PROTOCOL,
    IPSET_ATTR_REVISION,
    IPSET_ATTR_SETNAME,
    IPSET_ATTR_TIMEOUT,
    IPSET_ATTR_TYPENAME,
    IPSET_CMD_ADD,
    IPSET_CMD_CREATE,
    IPSET_CMD_DEL,
    IPSET_CMD_DESTROY,
    IPSET_CMD_LIST,
    IPSET_CMD_PROTOCOL,
    IPSET_CMD_SWAP,
    IPSET_CMD_TYPE,
    IPSET_ERR_BUSY,
    IPSET_ERR_EXIST,
    IPSET_ERR_FIND_TYPE,
    IPSET_ERR_MAX_SETS,
    IPSET_ERR_PROTOCOL,
    IPSET_ERR_REFERENCED,
    IPSET_ERR_TYPE_MISMATCH,
    IPSET_ERR_TYPE_SPECIFIC,
    IPSET_FLAG_LIST_HEADER,
    IPSET_PROTOCOL,
    NETLINK_NETFILTER,
    NFNL_SUBSYS_IPSET,
    NLA_F_NET_BYTEORDER,
    NLM_F_CREATE,
    NLM_F_EXCL,
)

DEFAULT_MAX_ENTRIES: Final = 65536
"""Entries of a hash set unless more are asked for: ipset's default, and kube-proxy's."""
HASH_SIZE: Final = 1024
"""Buckets of a new hash set; it grows."""
_KIND: Final = NFNL_SUBSYS_IPSET << 8
_LISTED_AT_ONCE: Final = 400
"""Entries of one message, of up to 68 bytes each: a list is one attribute, which has at most 64 KiB."""
_PROTOCOLS: Final = {"tcp": socket.IPPROTO_TCP, "udp": socket.IPPROTO_UDP, "sctp": socket.IPPROTO_SCTP}
_NAMES: Final = {number: name for name, number in _PROTOCOLS.items()}
_RESTRICTIONS: Final = frozenset({IPSET_ATTR_TIMEOUT, IPSET_ATTR_NETMASK, IPSET_ATTR_BITMASK})
_TEXTS: Final = {
    IPSET_ERR_PROTOCOL: "the kernel does not understand the message",
    IPSET_ERR_FIND_TYPE: "the kernel has no sets of this type",
    IPSET_ERR_MAX_SETS: "the kernel has no room for more sets",
    IPSET_ERR_BUSY: "the set is used by a rule",
    IPSET_ERR_EXIST: "it is there already, or not there",
    IPSET_ERR_TYPE_MISMATCH: "the sets have different types",
    IPSET_ERR_REFERENCED: "the set is used by a rule",
    IPSET_ERR_TYPE_SPECIFIC: "the set is full, or the entry is not in its range",
}


class SetType(NamedTuple):
    """What a set is: its type, such as hash:ip,port, its family, and how many entries it may have (0: bitmap)."""

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


class IpSets:
    """Requests to ipset, one after the other."""

    def __init__(self, kernel: Requests) -> None:
        self._kernel = kernel
        self._revisions: dict[tuple[str, Family], int] = {}

    def protocol(self) -> int:
        """The version of the protocol that the kernel speaks; OSError where it has no sets."""
        answer = self._kernel.ask(_KIND | IPSET_CMD_PROTOCOL, _start("IPv4"))
        return attributes(answer, NFGENMSG.size)[IPSET_ATTR_PROTOCOL][0]

    def headers(self) -> dict[str, Header]:
        """Every set of the network namespace."""
        found: dict[str, Header] = {}

        def receive(body: bytes) -> None:
            row = attributes(body, NFGENMSG.size)
            data = attributes(row.get(IPSET_ATTR_DATA, b""))
            family: Family = "IPv6" if row[IPSET_ATTR_FAMILY][0] == socket.AF_INET6 else "IPv4"
            maximum = int.from_bytes(data.get(IPSET_ATTR_MAXELEM, b""), "big")
            entries = int.from_bytes(data.get(IPSET_ATTR_ELEMENTS, b""), "big")
            found[text_of(row[IPSET_ATTR_SETNAME])] = Header(
                SetType(text_of(row[IPSET_ATTR_TYPENAME]), family, maximum), entries, _is_plain(data)
            )

        flags = attribute(IPSET_ATTR_FLAGS | NLA_F_NET_BYTEORDER, struct.pack(">I", IPSET_FLAG_LIST_HEADER))
        self._kernel.dump(_KIND | IPSET_CMD_LIST, _start("IPv4") + flags, receive)
        return found

    def entries(self, name: str) -> set[str]:
        """The entries of a set; FileNotFoundError where it is not there."""
        found: set[str] = set()

        def receive(body: bytes) -> None:
            for kind, start, end in attribute_spans(body, NFGENMSG.size, len(body)):
                if kind == IPSET_ATTR_ADT:
                    spans = attribute_spans(body, start, end)
                    found.update(entry_text(attributes(body[at:until])) for _, at, until in spans)

        self._kernel.dump(_KIND | IPSET_CMD_LIST, _start("IPv4") + _name(name), receive)
        return found

    def lacks(self, type_name: str) -> str:
        """Why there can be no sets of a type, "" if there can."""
        try:
            self._revision(type_name, "IPv4")
        except OSError as error:
            return error_text(error.errno or 0)
        return ""

    def create(self, name: str, kind: SetType) -> None:
        """Make a set; OSError where one of this name is there."""
        type_name, family, max_entries = kind
        address_family = ADDRESS_FAMILY[family]
        if type_name == "bitmap:port":
            address_family = socket.AF_UNSPEC
            data = _number(IPSET_ATTR_PORT, ">H", 0) + _number(IPSET_ATTR_PORT_TO, ">H", 65535)
        else:
            data = _number(IPSET_ATTR_HASHSIZE, ">I", HASH_SIZE)
            data += _number(IPSET_ATTR_MAXELEM, ">I", max_entries or DEFAULT_MAX_ENTRIES)
        body = b"".join(
            (
                _start(family),
                _name(name),
                attribute(IPSET_ATTR_TYPENAME, type_name.encode() + b"\0"),
                attribute(IPSET_ATTR_REVISION, bytes((self._revision(type_name, family),))),
                attribute(IPSET_ATTR_FAMILY, bytes((address_family,))),
                attribute(IPSET_ATTR_DATA, data, nested=True),
            )
        )
        self._do(((_KIND | IPSET_CMD_CREATE, NLM_F_CREATE | NLM_F_EXCL, body),), f"create set {name} {type_name}")

    def destroy(self, name: str) -> bool:
        """Remove a set; whether it is gone. False where a rule uses it."""
        refused = self._kernel.do_all([(_KIND | IPSET_CMD_DESTROY, 0, _start("IPv4") + _name(name))])
        return refused.get(0, errno.ENOENT) == errno.ENOENT

    def swap(self, one: str, other: str) -> None:
        """Exchange two sets of the same type, so that rules that use the one use the other."""
        body = _start("IPv4") + _name(one) + attribute(IPSET_ATTR_TYPENAME, other.encode() + b"\0")
        self._do(((_KIND | IPSET_CMD_SWAP, 0, body),), f"swap sets {one} and {other}")

    def add(self, name: str, entries: Iterable[str]) -> None:
        """Add entries; those that are there stay."""
        self._do(tuple(changes(IPSET_CMD_ADD, name, entries)), f"add entries to set {name}")

    def delete(self, name: str, entries: Iterable[str]) -> None:
        """Delete entries; those that are not there are no matter."""
        self._do(tuple(changes(IPSET_CMD_DEL, name, entries)), f"delete entries of set {name}")

    def _revision(self, type_name: str, family: Family) -> int:
        """The latest revision of a type that the kernel has. It loads the type's module."""
        if (type_name, family) not in self._revisions:
            of = socket.AF_UNSPEC if type_name == "bitmap:port" else ADDRESS_FAMILY[family]
            wanted = attribute(IPSET_ATTR_TYPENAME, type_name.encode() + b"\0")
            wanted += attribute(IPSET_ATTR_FAMILY, bytes((of,)))
            try:
                answer = self._kernel.ask(_KIND | IPSET_CMD_TYPE, _start(family) + wanted)
            except OSError as error:
                text = f"sets of type {type_name} for {family}: {error_text(error.errno or 0)}"
                raise OSError(error.errno, text) from error
            self._revisions[type_name, family] = attributes(answer, NFGENMSG.size)[IPSET_ATTR_REVISION][0]
        return self._revisions[type_name, family]

    def _do(self, messages: Sequence[Change], wanted: str) -> None:
        for error in self._kernel.do_all(messages).values():
            raise OSError(error, f"{wanted}: {error_text(error)}")


@contextmanager
def ipsets() -> Iterator[IpSets]:
    """Requests to ipset on a socket that is closed at the end; OSError where the kernel has none."""
    with requests(NETLINK_NETFILTER) as kernel:
        yield IpSets(kernel)


def error_text(error: int) -> str:
    """What an error of ipset means, whose numbers are beyond those of the C library."""
    return _TEXTS.get(error) or os.strerror(error)


def changes(command: int, name: str, entries: Iterable[str]) -> Iterator[Change]:
    """The messages that add or delete entries; ValueError for one that is none."""
    head = _name(name) + attribute(IPSET_ATTR_LINENO, bytes(4))
    part: list[bytes] = []
    for entry in entries:
        part.append(attribute(IPSET_ATTR_DATA, encoded(entry), nested=True))
        if len(part) == _LISTED_AT_ONCE:
            yield _listed(command, head, part)
            part = []
    if part:
        yield _listed(command, head, part)


def _listed(command: int, head: bytes, part: list[bytes]) -> Change:
    return _KIND | command, 0, _start("IPv4") + head + attribute(IPSET_ATTR_ADT, b"".join(part), nested=True)


def encoded(entry: str) -> bytes:
    """The attributes of an entry: ADDRESS, PROTOCOL:PORT, ADDRESS or NETWORK, as many as the set's type has."""
    try:
        address, *rest = entry.split(",")
        if address.isdigit():
            return _number(IPSET_ATTR_PORT, ">H", int(address))
        made = _ip(IPSET_ATTR_IP, address)
        if rest:
            protocol, _, port = rest[0].partition(":")
            made += _number(IPSET_ATTR_PORT, ">H", int(port)) + attribute(
                IPSET_ATTR_PROTO, bytes((_PROTOCOLS[protocol],))
            )
        if rest[1:]:
            second, slash, length = rest[1].partition("/")
            made += _ip(IPSET_ATTR_IP2, second)
            made += attribute(IPSET_ATTR_CIDR2, bytes((int(length),))) if slash else b""
    except (struct.error, KeyError, ValueError) as error:
        raise ValueError(f"{entry!r} is no entry of a set: {error}") from error
    return made


def entry_text(row: dict[int, bytes]) -> str:
    """An entry as text, from its attributes."""
    port = int.from_bytes(row.get(IPSET_ATTR_PORT, b""), "big")
    if IPSET_ATTR_IP not in row:
        return str(port)
    parts = [_ip_text(row[IPSET_ATTR_IP])]
    if IPSET_ATTR_PORT in row:
        protocol = row.get(IPSET_ATTR_PROTO, b"\0")[0]
        parts.append(f"{_NAMES.get(protocol, str(protocol))}:{port}")
    if IPSET_ATTR_IP2 in row:
        length = f"/{row[IPSET_ATTR_CIDR2][0]}" if IPSET_ATTR_CIDR2 in row else ""
        parts.append(_ip_text(row[IPSET_ATTR_IP2]) + length)
    return ",".join(parts)


@lru_cache(1 << 16)
def _ip(kind: int, address: str) -> bytes:
    value = packed(address)
    if not value:
        raise ValueError(f"{address!r} is no address")
    of = IPSET_ATTR_IPADDR_IPV6 if is_ipv6(address) else IPSET_ATTR_IPADDR_IPV4
    return attribute(kind, attribute(of | NLA_F_NET_BYTEORDER, value), nested=True)


def _is_plain(data: dict[int, bytes]) -> bool:
    if data.keys() & _RESTRICTIONS:
        return False
    ports = (int.from_bytes(data.get(kind, b""), "big") for kind in (IPSET_ATTR_PORT, IPSET_ATTR_PORT_TO))
    return IPSET_ATTR_PORT_TO not in data or tuple(ports) == (0, 65535)


def _ip_text(value: bytes) -> str:
    return unpacked(next(iter(attributes(value).values())))


def _number(kind: int, layout: str, value: int) -> bytes:
    return attribute(kind | NLA_F_NET_BYTEORDER, struct.pack(layout, value))


def _start(family: Family) -> bytes:
    return NFGENMSG.pack(ADDRESS_FAMILY[family], 0, 0) + attribute(IPSET_ATTR_PROTOCOL, bytes((IPSET_PROTOCOL,)))


def _name(name: str) -> bytes:
    return attribute(IPSET_ATTR_SETNAME, name.encode() + b"\0")
