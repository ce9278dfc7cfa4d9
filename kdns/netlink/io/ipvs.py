"""IPVS over generic netlink (linux/ip_vs.h): virtual servers, their destinations, timeouts. All of it blocks.

A first load has 60,000 messages, of which each is a few bytes that differ: they are packed by two structs and sent
many at a time (`Requests.do_all`). Addresses always take 16 bytes.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from kdns.net import is_ipv6, join_host_port, packed, unpacked
from kdns.netlink.io.generic import GENLMSGHDR, family_id
from kdns.netlink.io.protocol import Change, Requests, attribute, attributes, requests, text_of
from kdns.netlink.uapi import (
    IP_VS_CONN_F_MASQ,
    IP_VS_SVC_F_PERSISTENT,
    IP_VS_SVC_F_SCHED1,
    IP_VS_SVC_F_SCHED2,
    IPVS_CMD_ATTR_DEST,
    IPVS_CMD_ATTR_SERVICE,
    IPVS_CMD_ATTR_TIMEOUT_TCP,
    IPVS_CMD_ATTR_TIMEOUT_TCP_FIN,
    IPVS_CMD_ATTR_TIMEOUT_UDP,
    IPVS_CMD_DEL_DEST,
    IPVS_CMD_DEL_SERVICE,
    IPVS_CMD_GET_CONFIG,
    IPVS_CMD_GET_DEST,
    IPVS_CMD_GET_SERVICE,
    IPVS_CMD_NEW_DEST,
    IPVS_CMD_NEW_SERVICE,
    IPVS_CMD_SET_CONFIG,
    IPVS_CMD_SET_DEST,
    IPVS_CMD_SET_SERVICE,
    IPVS_DEST_ATTR_ACTIVE_CONNS,
    IPVS_DEST_ATTR_ADDR,
    IPVS_DEST_ATTR_ADDR_FAMILY,
    IPVS_DEST_ATTR_FWD_METHOD,
    IPVS_DEST_ATTR_INACT_CONNS,
    IPVS_DEST_ATTR_L_THRESH,
    IPVS_DEST_ATTR_PORT,
    IPVS_DEST_ATTR_U_THRESH,
    IPVS_DEST_ATTR_WEIGHT,
    IPVS_GENL_VERSION,
    IPVS_STATS_ATTR_CONNS,
    IPVS_SVC_ATTR_ADDR,
    IPVS_SVC_ATTR_AF,
    IPVS_SVC_ATTR_FLAGS,
    IPVS_SVC_ATTR_FWMARK,
    IPVS_SVC_ATTR_NETMASK,
    IPVS_SVC_ATTR_PORT,
    IPVS_SVC_ATTR_PROTOCOL,
    IPVS_SVC_ATTR_SCHED_NAME,
    IPVS_SVC_ATTR_STATS,
    IPVS_SVC_ATTR_STATS64,
    IPVS_SVC_ATTR_TIMEOUT,
    NETLINK_GENERIC,
)

NAME: Final = "IPVS"
PROC: Final = Path("/proc/thread-self/net/ip_vs")
_PROTOCOLS: Final = {"TCP": socket.IPPROTO_TCP, "UDP": socket.IPPROTO_UDP, "SCTP": socket.IPPROTO_SCTP}
_NAMES: Final = {number: name for name, number in _PROTOCOLS.items()}
_OF_SETTINGS: Final = IP_VS_SVC_F_PERSISTENT | IP_VS_SVC_F_SCHED1 | IP_VS_SVC_F_SCHED2
"""The flags that are settings; others say in which state the virtual server is."""
_NETMASK: Final[Mapping[int, bytes]] = {socket.AF_INET: b"\xff\xff\xff\xff", socket.AF_INET6: struct.pack("=I", 128)}
"""Clients with affinity are told apart by their whole address: a mask for IPv4, a number of bits for IPv6."""

_IDENTITY: Final = struct.Struct("=HHH2x HHH2x HH16s HH2s2x")
_DESTINATION: Final = struct.Struct("=HH HH16s HH2s2x HHI HHI HHI HHI HHH2x")
_DESTINATION_KEY: Final = struct.Struct("=HH HH16s HH2s2x HHH2x")
_PORT: Final = struct.Struct(">H")


ServerKey: TypeAlias = tuple[str, int, str]
"""A virtual server: its address in canonical form, port and protocol (TCP, UDP, SCTP)."""
DestinationKey: TypeAlias = tuple[str, int]
"""A destination, which operators call real server: its address in canonical form, and port."""


class ServerOptions(NamedTuple):
    """What a virtual server has beside its destinations: scheduler, flags (IP_VS_SVC_F_…), and 0 or its persistence."""

    scheduler: str
    flags: int = 0
    persistence_s: int = 0


class Destination(NamedTuple):
    """A destination as the kernel has it: weight, and connections that are open and that end."""

    weight: int
    active: int
    inactive: int
    masquerades: bool


class Verb(Enum):
    """What is done with a virtual server or one of its destinations."""

    NEW_SERVER = IPVS_CMD_NEW_SERVICE
    SET_SERVER = IPVS_CMD_SET_SERVICE
    DELETE_SERVER = IPVS_CMD_DEL_SERVICE
    NEW_DESTINATION = IPVS_CMD_NEW_DEST
    SET_DESTINATION = IPVS_CMD_SET_DEST
    DELETE_DESTINATION = IPVS_CMD_DEL_DEST


class Operation(NamedTuple):
    """One change. `options` are those of NEW_SERVER and SET_SERVER; `destination` and `weight` are of a destination."""

    verb: Verb
    server: ServerKey
    destination: DestinationKey | None = None
    weight: int = 0
    options: ServerOptions | None = None

    def __str__(self) -> str:
        what = self.verb.name.lower().replace("_", " ")
        address, port, protocol = self.server
        subject = f" {join_host_port(*self.destination)} of" if self.destination else ""
        scheduler = f" with scheduler {self.options.scheduler}" if self.options else ""
        return f"{what}{subject} {join_host_port(address, port)}/{protocol}{scheduler}"


class Timeouts(NamedTuple):
    """Seconds until an idle connection is forgotten; 0 leaves the kernel's value."""

    tcp_s: int = 0
    tcp_fin_s: int = 0
    udp_s: int = 0


Failures: TypeAlias = Sequence[tuple[Operation, int]]
"""Operations that the kernel refused, each with its error."""

_MISSING: Final = frozenset({errno.ENOENT, errno.ESRCH})
_DELETIONS: Final = frozenset({Verb.DELETE_SERVER, Verb.DELETE_DESTINATION})
_AGAIN: Final = {Verb.NEW_SERVER: Verb.SET_SERVER, Verb.NEW_DESTINATION: Verb.SET_DESTINATION}


class Ipvs:
    """Requests to IPVS, one after the other."""

    def __init__(self, kernel: Requests) -> None:
        self._kernel = kernel
        self._family = family_id(kernel, NAME)

    def servers(self) -> dict[ServerKey, ServerOptions]:
        """Every virtual server that has an address and a protocol of Services; those of firewall marks are not seen."""
        found: dict[ServerKey, ServerOptions] = {}

        def receive(body: bytes) -> None:
            row = attributes(attributes(body, GENLMSGHDR.size)[IPVS_CMD_ATTR_SERVICE])
            if key := _server_key(row):
                found[key] = _options(row)

        self._kernel.dump(self._family, _header(IPVS_CMD_GET_SERVICE), receive)
        return found

    def connections(self) -> dict[ServerKey, int]:
        """How many connections each virtual server has scheduled since it was made."""
        found: dict[ServerKey, int] = {}

        def receive(body: bytes) -> None:
            row = attributes(attributes(body, GENLMSGHDR.size)[IPVS_CMD_ATTR_SERVICE])
            if key := _server_key(row):
                stats = row.get(IPVS_SVC_ATTR_STATS64) or row.get(IPVS_SVC_ATTR_STATS, b"")
                found[key] = _integer(attributes(stats).get(IPVS_STATS_ATTR_CONNS, b""))

        self._kernel.dump(self._family, _header(IPVS_CMD_GET_SERVICE), receive)
        return found

    def server(self, key: ServerKey) -> ServerOptions | None:
        """One virtual server; None where there is no such."""
        try:
            answer = self._kernel.ask(self._family, _header(IPVS_CMD_GET_SERVICE) + _identity(key))
        except OSError as error:
            if error.errno in _MISSING:
                return None
            raise
        return _options(attributes(attributes(answer, GENLMSGHDR.size)[IPVS_CMD_ATTR_SERVICE]))

    def destinations(self, key: ServerKey) -> dict[DestinationKey, Destination]:
        """The destinations of a virtual server; none where it is not there."""
        found: dict[DestinationKey, Destination] = {}
        family = _family(key[0])

        def receive(body: bytes) -> None:
            row = attributes(attributes(body, GENLMSGHDR.size)[IPVS_CMD_ATTR_DEST])
            of = _integer(row[IPVS_DEST_ATTR_ADDR_FAMILY]) if IPVS_DEST_ATTR_ADDR_FAMILY in row else family
            address, port = _address(of, row[IPVS_DEST_ATTR_ADDR]), int.from_bytes(row[IPVS_DEST_ATTR_PORT], "big")
            found[address, port] = Destination(
                _integer(row[IPVS_DEST_ATTR_WEIGHT]),
                _integer(row[IPVS_DEST_ATTR_ACTIVE_CONNS]),
                _integer(row[IPVS_DEST_ATTR_INACT_CONNS]),
                _integer(row[IPVS_DEST_ATTR_FWD_METHOD]) & 7 == IP_VS_CONN_F_MASQ,
            )

        try:
            self._kernel.dump(self._family, _header(IPVS_CMD_GET_DEST) + _identity(key), receive)
        except OSError as error:
            if error.errno not in _MISSING:
                raise
        return found

    def carry_out(self, operations: Sequence[Operation]) -> Failures:
        """Carry out operations in their order, each for itself; those that the kernel refused.

        What is new and there already gets the options or weight all the same, and what is deleted may be absent.
        """
        again: list[Operation] = []
        failures: list[tuple[Operation, int]] = []
        for operation, error in self._carried_out(operations):
            if error == errno.EEXIST and operation.verb in _AGAIN:
                again.append(operation._replace(verb=_AGAIN[operation.verb]))
            elif operation.verb not in _DELETIONS or error not in _MISSING:
                failures.append((operation, error))
        return failures + list(self._carried_out(again)) if again else failures

    def _carried_out(self, operations: Sequence[Operation]) -> Iterator[tuple[Operation, int]]:
        sent: list[Operation] = []
        messages: list[Change] = []
        for operation, body in zip(operations, bodies(operations), strict=True):
            if body:
                sent.append(operation)
                messages.append((self._family, 0, body))
            else:
                yield operation, errno.EINVAL
        for index, error in self._kernel.do_all(messages).items():
            yield sent[index], error

    def timeouts(self) -> Timeouts:
        """The kernel's timeouts."""
        row = attributes(self._kernel.ask(self._family, _header(IPVS_CMD_GET_CONFIG)), GENLMSGHDR.size)
        kinds = IPVS_CMD_ATTR_TIMEOUT_TCP, IPVS_CMD_ATTR_TIMEOUT_TCP_FIN, IPVS_CMD_ATTR_TIMEOUT_UDP
        return Timeouts(*(_integer(row[kind]) for kind in kinds))

    def set_timeouts(self, timeouts: Timeouts) -> None:
        """Set the timeouts; those of 0 stay as they are."""
        kinds = IPVS_CMD_ATTR_TIMEOUT_TCP, IPVS_CMD_ATTR_TIMEOUT_TCP_FIN, IPVS_CMD_ATTR_TIMEOUT_UDP
        values = (attribute(kind, struct.pack("=I", value)) for kind, value in zip(kinds, timeouts, strict=True))
        self._kernel.do(self._family, _header(IPVS_CMD_SET_CONFIG) + b"".join(values))


@contextmanager
def ipvs() -> Iterator[Ipvs]:
    """Requests to IPVS on a socket that is closed at the end; OSError where the kernel has none."""
    with requests(NETLINK_GENERIC) as kernel:
        yield Ipvs(kernel)


def all_destinations() -> dict[ServerKey, dict[DestinationKey, Destination]]:
    """The destinations of every virtual server that has an address, read from /proc.

    Over netlink there is one dump for each virtual server, which takes six times as long for all of 10,000.
    FileNotFoundError where the kernel has no IPVS, or not yet.
    """
    found: dict[ServerKey, dict[DestinationKey, Destination]] = {}
    of: dict[DestinationKey, Destination] = {}
    with PROC.open(encoding="ascii") as file:
        for line in file:
            first, *rest = line.split()
            if first == "->" and rest[4:] and rest[2].isdigit():
                weight, active, inactive = map(int, rest[2:5])
                of[_place(rest[0])] = Destination(weight, active, inactive, rest[1] == "Masq")
            elif first in _PROTOCOLS:
                of = found.setdefault((*_place(rest[0]), first), {})
            else:
                of = {}
    return found


def _place(text: str) -> tuple[str, int]:
    """Address and port of 0A600001:0050 or [fd00:0000:…:0001]:0050."""
    address, _, port = text.rpartition(":")
    if address.startswith("["):
        return str(ip_address(address[1:-1])), int(port, 16)
    return socket.inet_ntoa(bytes.fromhex(address)), int(port, 16)


def bodies(operations: Iterable[Operation]) -> Iterator[bytes]:
    """The payloads of operations; b"" for one with an address, port or weight that its field does not hold."""
    last: ServerKey | None = None
    identity = b""
    for operation in operations:
        try:
            if operation.server is not last:
                identity, last = _identity(operation.server), operation.server
            yield _body(operation, identity)
        except (struct.error, ValueError):
            yield b""


def _body(operation: Operation, identity: bytes) -> bytes:
    verb, server, destination, weight, options = operation
    header = _HEADERS[verb]
    if destination is None:
        if options is None:
            return header + identity
        return header + attribute(IPVS_CMD_ATTR_SERVICE, identity[4:] + _encoded(server, options))
    family = _family(destination[0])
    address, port = _packed(destination[0]), _PORT.pack(destination[1])
    place = (_DESTINATION_KEY.size, IPVS_CMD_ATTR_DEST, 20, IPVS_DEST_ATTR_ADDR, address, 6, IPVS_DEST_ATTR_PORT, port)
    if verb is Verb.DELETE_DESTINATION:
        return header + identity + _DESTINATION_KEY.pack(*place, 6, IPVS_DEST_ATTR_ADDR_FAMILY, family)
    # fmt: off
    return header + identity + _DESTINATION.pack(
        _DESTINATION.size, *place[1:],
        8, IPVS_DEST_ATTR_FWD_METHOD, IP_VS_CONN_F_MASQ,
        8, IPVS_DEST_ATTR_WEIGHT, weight,
        8, IPVS_DEST_ATTR_U_THRESH, 0,
        8, IPVS_DEST_ATTR_L_THRESH, 0,
        6, IPVS_DEST_ATTR_ADDR_FAMILY, family,
    )
    # fmt: on


def _header(command: int) -> bytes:
    return GENLMSGHDR.pack(command, IPVS_GENL_VERSION, 0)


_HEADERS: Final = {verb: _header(verb.value) for verb in Verb}


def _identity(key: ServerKey) -> bytes:
    """IPVS_CMD_ATTR_SERVICE with what identifies a virtual server."""
    address, port, protocol = key
    if protocol not in _PROTOCOLS:
        raise ValueError(f"{protocol!r} is no protocol of virtual servers")
    # fmt: off
    content = _IDENTITY.pack(
        6, IPVS_SVC_ATTR_AF, _family(address),
        6, IPVS_SVC_ATTR_PROTOCOL, _PROTOCOLS[protocol],
        20, IPVS_SVC_ATTR_ADDR, _packed(address),
        6, IPVS_SVC_ATTR_PORT, _PORT.pack(port),
    )
    # fmt: on
    return attribute(IPVS_CMD_ATTR_SERVICE, content)


def _encoded(key: ServerKey, options: ServerOptions) -> bytes:
    return b"".join(
        (
            attribute(IPVS_SVC_ATTR_SCHED_NAME, options.scheduler.encode() + b"\0"),
            attribute(IPVS_SVC_ATTR_FLAGS, struct.pack("=II", options.flags, 0xFFFFFFFF)),
            attribute(IPVS_SVC_ATTR_TIMEOUT, struct.pack("=I", options.persistence_s)),
            attribute(IPVS_SVC_ATTR_NETMASK, _NETMASK[_family(key[0])]),
        )
    )


def _server_key(row: dict[int, bytes]) -> ServerKey | None:
    if IPVS_SVC_ATTR_FWMARK in row:
        return None
    protocol = _NAMES.get(_integer(row[IPVS_SVC_ATTR_PROTOCOL]))
    address = _address(_integer(row[IPVS_SVC_ATTR_AF]), row[IPVS_SVC_ATTR_ADDR])
    return (address, int.from_bytes(row[IPVS_SVC_ATTR_PORT], "big"), protocol) if protocol else None


def _options(row: dict[int, bytes]) -> ServerOptions:
    flags = _integer(row[IPVS_SVC_ATTR_FLAGS][:4]) & _OF_SETTINGS
    persistence_s = _integer(row[IPVS_SVC_ATTR_TIMEOUT]) if flags & IP_VS_SVC_F_PERSISTENT else 0
    scheduler = text_of(row.get(IPVS_SVC_ATTR_SCHED_NAME, b""))
    return ServerOptions(scheduler, flags, persistence_s)


@lru_cache(1 << 16)
def _packed(address: str) -> bytes:
    found = packed(address)
    if not found:
        raise ValueError(f"{address!r} is no address")
    return found + bytes(16 - len(found))


def _family(address: str) -> int:
    return socket.AF_INET6 if is_ipv6(address) else socket.AF_INET


def _address(family: int, value: bytes) -> str:
    return unpacked(value[:4] if family == socket.AF_INET else value[:16])


def _integer(value: bytes) -> int:
    return int.from_bytes(value, sys.byteorder)


def reason(failures: Failures) -> str:
    """What was wanted, and why the kernel refused: the first failure, and how many more there are."""
    operation, error = failures[0]
    rest = f", and {len(failures) - 1} more" if failures[1:] else ""
    return f"{operation}: {os.strerror(error)}{rest}"
