"""IPVS over generic netlink (linux/ip_vs.h): virtual servers, their destinations, and the messages that have them.

Addresses always take 16 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from kdns.net import join_host_port, unpacked
from kdns.netlink import uapi
from kdns.netlink.protocol import (
    GENLMSGHDR,
    PROTOCOL_NAMES,
    PROTOCOL_NUMBERS,
    address_family,
    attribute,
    attributes,
    big_endian,
    integer_of,
    packed_address,
    text_attribute,
    text_of,
)

_OF_SETTINGS: Final = uapi.IP_VS_SVC_F_PERSISTENT | uapi.IP_VS_SVC_F_SCHED1 | uapi.IP_VS_SVC_F_SCHED2
"""The flags that are settings; others are the state of the virtual server."""
_NETMASK: Final[Mapping[int, bytes]] = {uapi.AF_INET: b"\xff\xff\xff\xff", uapi.AF_INET6: struct.pack("=I", 128)}
"""Clients with affinity are distinguished by their whole address: a mask for IPv4, a number of bits for IPv6."""

_FAMILY: Final = struct.Struct("=H")
_PORT: Final = struct.Struct(">H")
_NUMBER: Final = struct.Struct("=I")
_FORWARDING: Final = b"".join(
    attribute(kind, _NUMBER.pack(value))
    for kind, value in (
        (uapi.IPVS_DEST_ATTR_FWD_METHOD, uapi.IP_VS_CONN_F_MASQ),
        (uapi.IPVS_DEST_ATTR_U_THRESH, 0),
        (uapi.IPVS_DEST_ATTR_L_THRESH, 0),
    )
)
"""What all destinations have."""


class VirtualServerKey(NamedTuple):
    """A virtual server: its address in canonical form, port and protocol (TCP, UDP, SCTP)."""

    address: str
    port: int
    protocol: str

    def __str__(self) -> str:
        return f"{join_host_port(self.address, self.port)}/{self.protocol}"


DestinationKey: TypeAlias = tuple[str, int]
"""A destination, which operators call real server: its address in canonical form, and port."""


class ServerOptions(NamedTuple):
    """Options of a virtual server: scheduler, flags (IP_VS_SVC_F_…), and seconds of persistence (0: none)."""

    scheduler: str
    flags: int = 0
    persistence_s: int = 0


class Destination(NamedTuple):
    """Weight (0: no new connections), established and closing connections, and whether IPVS masquerades them."""

    weight: int = 1
    active: int = 0
    inactive: int = 0
    masquerades: bool = True

    @property
    def is_used(self) -> bool:
        return bool(self.active or self.inactive)


class VirtualServer(NamedTuple):
    """A virtual server, desired or of the kernel."""

    options: ServerOptions
    destinations: Mapping[DestinationKey, Destination]


class Verb(Enum):
    """An operation on a virtual server or one of its destinations."""

    NEW_SERVER = uapi.IPVS_CMD_NEW_SERVICE
    SET_SERVER = uapi.IPVS_CMD_SET_SERVICE
    DELETE_SERVER = uapi.IPVS_CMD_DEL_SERVICE
    NEW_DESTINATION = uapi.IPVS_CMD_NEW_DEST
    SET_DESTINATION = uapi.IPVS_CMD_SET_DEST
    DELETE_DESTINATION = uapi.IPVS_CMD_DEL_DEST


class Operation(NamedTuple):
    """One change. `options` are those of NEW_SERVER and SET_SERVER; `destination` and `weight` are of a destination."""

    verb: Verb
    server: VirtualServerKey
    destination: DestinationKey | None = None
    weight: int = 0
    options: ServerOptions | None = None

    def __str__(self) -> str:
        verb = self.verb.name.lower().replace("_", " ")
        subject = f" {join_host_port(*self.destination)} of" if self.destination else ""
        scheduler = f" with scheduler {self.options.scheduler}" if self.options else ""
        return f"{verb}{subject} {self.server}{scheduler}"


class Timeouts(NamedTuple):
    """Seconds until an idle connection expires; 0 keeps the kernel's value."""

    tcp_s: int = 0
    tcp_fin_s: int = 0
    udp_s: int = 0


_TIMEOUT_KINDS: Final = (
    uapi.IPVS_CMD_ATTR_TIMEOUT_TCP,
    uapi.IPVS_CMD_ATTR_TIMEOUT_TCP_FIN,
    uapi.IPVS_CMD_ATTR_TIMEOUT_UDP,
)


def bodies(operations: Iterable[Operation]) -> Iterator[bytes]:
    last: VirtualServerKey | None = None
    identity = b""
    for operation in operations:
        if operation.server is not last:
            identity, last = identity_of(operation.server), operation.server
        yield _body(operation, identity)


def _body(operation: Operation, identity: bytes) -> bytes:
    verb, server, destination, weight, options = operation
    header = _HEADERS[verb]
    if destination is None:
        if options is None:
            return header + identity
        return header + attribute(uapi.IPVS_CMD_ATTR_SERVICE, identity[4:] + _encoded(server, options))
    address, port = destination
    place = attribute(uapi.IPVS_DEST_ATTR_ADDR, _packed(address)) + attribute(
        uapi.IPVS_DEST_ATTR_PORT, _PORT.pack(port)
    )
    place += attribute(uapi.IPVS_DEST_ATTR_ADDR_FAMILY, _FAMILY.pack(address_family(address)))
    if verb is not Verb.DELETE_DESTINATION:
        place += _FORWARDING + attribute(uapi.IPVS_DEST_ATTR_WEIGHT, _NUMBER.pack(weight))
    return header + identity + attribute(uapi.IPVS_CMD_ATTR_DEST, place)


def header(command: int) -> bytes:
    return GENLMSGHDR.pack(command, uapi.IPVS_GENL_VERSION, 0)


_HEADERS: Final = {verb: header(verb.value) for verb in Verb}


def identity_of(key: VirtualServerKey) -> bytes:
    """IPVS_CMD_ATTR_SERVICE with the attributes that identify a virtual server."""
    address, port, protocol = key
    content = (
        attribute(uapi.IPVS_SVC_ATTR_AF, _FAMILY.pack(address_family(address)))
        + attribute(uapi.IPVS_SVC_ATTR_PROTOCOL, _FAMILY.pack(PROTOCOL_NUMBERS[protocol]))
        + attribute(uapi.IPVS_SVC_ATTR_ADDR, _packed(address))
        + attribute(uapi.IPVS_SVC_ATTR_PORT, _PORT.pack(port))
    )
    return attribute(uapi.IPVS_CMD_ATTR_SERVICE, content)


def _encoded(key: VirtualServerKey, options: ServerOptions) -> bytes:
    return (
        text_attribute(uapi.IPVS_SVC_ATTR_SCHED_NAME, options.scheduler)
        + attribute(uapi.IPVS_SVC_ATTR_FLAGS, struct.pack("=II", options.flags, 0xFFFFFFFF))
        + attribute(uapi.IPVS_SVC_ATTR_TIMEOUT, _NUMBER.pack(options.persistence_s))
        + attribute(uapi.IPVS_SVC_ATTR_NETMASK, _NETMASK[address_family(key[0])])
    )


def _server_key(row: dict[int, bytes]) -> VirtualServerKey | None:
    if uapi.IPVS_SVC_ATTR_FWMARK in row:
        return None
    protocol = PROTOCOL_NAMES.get(integer_of(row[uapi.IPVS_SVC_ATTR_PROTOCOL]))
    address = _address(integer_of(row[uapi.IPVS_SVC_ATTR_AF]), row[uapi.IPVS_SVC_ATTR_ADDR])
    return VirtualServerKey(address, big_endian(row[uapi.IPVS_SVC_ATTR_PORT]), protocol) if protocol else None


def _options(row: dict[int, bytes]) -> ServerOptions:
    flags = integer_of(row[uapi.IPVS_SVC_ATTR_FLAGS][:4]) & _OF_SETTINGS
    persistence_s = integer_of(row[uapi.IPVS_SVC_ATTR_TIMEOUT]) if flags & uapi.IP_VS_SVC_F_PERSISTENT else 0
    scheduler = text_of(row.get(uapi.IPVS_SVC_ATTR_SCHED_NAME, b""))
    return ServerOptions(scheduler, flags, persistence_s)


@lru_cache(1 << 16)
def _packed(address: str) -> bytes:
    value = packed_address(address)
    return value + bytes(16 - len(value))


def _address(family: int, value: bytes) -> str:
    return unpacked(value[:4] if family == uapi.AF_INET else value[:16])


def server_of(body: bytes) -> tuple[VirtualServerKey, ServerOptions] | None:
    """None for a virtual server of a firewall mark, and for protocols that Services do not have."""
    row = attributes(attributes(body, GENLMSGHDR.size)[uapi.IPVS_CMD_ATTR_SERVICE])
    key = _server_key(row)
    return (key, _options(row)) if key else None


def connections_of(body: bytes) -> tuple[VirtualServerKey, int] | None:
    """How many connections the virtual server has scheduled since it was created; None as in `server_of`."""
    row = attributes(attributes(body, GENLMSGHDR.size)[uapi.IPVS_CMD_ATTR_SERVICE])
    stats = row.get(uapi.IPVS_SVC_ATTR_STATS64) or row.get(uapi.IPVS_SVC_ATTR_STATS, b"")
    key = _server_key(row)
    return (key, integer_of(attributes(stats).get(uapi.IPVS_STATS_ATTR_CONNS, b""))) if key else None


def destination_of(body: bytes, server: VirtualServerKey) -> tuple[DestinationKey, Destination]:
    row = attributes(attributes(body, GENLMSGHDR.size)[uapi.IPVS_CMD_ATTR_DEST])
    family = address_family(server.address)
    if uapi.IPVS_DEST_ATTR_ADDR_FAMILY in row:
        family = integer_of(row[uapi.IPVS_DEST_ATTR_ADDR_FAMILY])
    key = _address(family, row[uapi.IPVS_DEST_ATTR_ADDR]), big_endian(row[uapi.IPVS_DEST_ATTR_PORT])
    return key, Destination(
        integer_of(row[uapi.IPVS_DEST_ATTR_WEIGHT]),
        integer_of(row[uapi.IPVS_DEST_ATTR_ACTIVE_CONNS]),
        integer_of(row[uapi.IPVS_DEST_ATTR_INACT_CONNS]),
        integer_of(row[uapi.IPVS_DEST_ATTR_FWD_METHOD]) & 7 == uapi.IP_VS_CONN_F_MASQ,
    )


def timeouts_of(body: bytes) -> Timeouts:
    row = attributes(body, GENLMSGHDR.size)
    return Timeouts(*(integer_of(row[kind]) for kind in _TIMEOUT_KINDS))


def timeout_attributes(timeouts: Timeouts) -> bytes:
    values = zip(_TIMEOUT_KINDS, timeouts, strict=True)
    return b"".join(attribute(kind, _NUMBER.pack(value)) for kind, value in values)
