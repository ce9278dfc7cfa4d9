"""The netlink protocol: messages and attributes as bytes (RFC 3549).

pyroute2 makes an object of each message; conntrack may have 100,000 flows and a map of fronts 10,000 elements, and kdns
needs a few numbers of each, so these messages are read in place.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from kdns.net import Family, is_ipv6, packed
from kdns.netlink import uapi

NLMSGHDR: Final = struct.Struct("=IHHII")
"""The header of every message: length, type, flags, sequence number, port id."""
NFGENMSG: Final = struct.Struct("=BBH")
"""The header of every netfilter message: address family, version, resource id."""
GENLMSGHDR: Final = struct.Struct("=BBH")
"""The header of every message of generic netlink: command, version, reserved."""
ADDRESS_FAMILY: Final[dict[Family, int]] = {"IPv4": uapi.AF_INET, "IPv6": uapi.AF_INET6}
PROTOCOL_NUMBERS: Final = {"TCP": uapi.IPPROTO_TCP, "UDP": uapi.IPPROTO_UDP, "SCTP": uapi.IPPROTO_SCTP}
PROTOCOL_NAMES: Final = {number: name for name, number in PROTOCOL_NUMBERS.items()}

_NLATTR: Final = struct.Struct("=HH")

Change: TypeAlias = tuple[int, int, bytes]
"""A request that changes something: its type, its flags beside NLM_F_REQUEST, and its payload."""


class Message(NamedTuple):
    """One message. `sequence` is that of the request it answers, `port` the port id of its sender."""

    kind: int
    flags: int
    sequence: int
    port: int
    body: bytes


def messages(buffer: bytes) -> Iterator[Message]:
    at = 0
    while at + NLMSGHDR.size <= len(buffer):
        length, kind, flags, sequence, port = NLMSGHDR.unpack_from(buffer, at)
        if length < NLMSGHDR.size:
            return
        yield Message(kind, flags, sequence, port, buffer[at + NLMSGHDR.size : at + length])
        at += _aligned(length)


def message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    """The body is aligned, as attributes are."""
    return NLMSGHDR.pack(NLMSGHDR.size + len(body), kind, flags, sequence, 0) + body


def error_of(body: bytes) -> int:
    """The error of an NLMSG_ERROR or NLMSG_DONE message; 0 if the request succeeded."""
    return -int.from_bytes(body[:4], sys.byteorder, signed=True)


def attributes(buffer: bytes, at: int = 0) -> dict[int, bytes]:
    """Values by type, from offset `at` on; of several attributes of one type, the last."""
    return {kind: buffer[start:end] for kind, start, end in attribute_spans(buffer, at, len(buffer))}


def attribute_spans(buffer: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Type, start and end of the value of each attribute between two offsets."""
    while at + _NLATTR.size <= end:
        length, kind = _NLATTR.unpack_from(buffer, at)
        if length < _NLATTR.size:
            return
        yield kind & uapi.NLA_TYPE_MASK, at + _NLATTR.size, at + length
        at += _aligned(length)


def attribute(kind: int, value: bytes, *, nested: bool = False) -> bytes:
    header = _NLATTR.pack(_NLATTR.size + len(value), kind | (uapi.NLA_F_NESTED if nested else 0))
    return header + value + bytes(_aligned(len(value)) - len(value))


def text_attribute(kind: int, text: str) -> bytes:
    return attribute(kind, text.encode() + b"\0")


def text_of(value: bytes) -> str:
    return value.rstrip(b"\0").decode(errors="replace")


def integer_of(value: bytes) -> int:
    """In the byte order of this machine."""
    return int.from_bytes(value, sys.byteorder)


def big_endian(value: bytes) -> int:
    return int.from_bytes(value, "big")


def netfilter_header(family: Family | None = None) -> bytes:
    return NFGENMSG.pack(ADDRESS_FAMILY[family] if family else uapi.AF_UNSPEC, 0, 0)


def packed_address(text: str) -> bytes:
    """`packed`, but ValueError for other text: the kernel would take no bytes, or zeros, for an address."""
    if value := packed(text):
        return value
    raise ValueError(f"expected an IP address, got {text!r}")


def address_family(address: str) -> int:
    return uapi.AF_INET6 if is_ipv6(address) else uapi.AF_INET


def _aligned(length: int) -> int:
    return (length + 3) & ~3
