"""The addresses of this machine, and the sockets for the addresses of `bind`."""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from ipaddress import ip_address
from itertools import chain
from typing import Final

from kdns.errors import InputError, ListenError
from kdns.net import HostPort, is_ipv6, is_link_local_ipv6, join_host_port
from kdns.netlink.addresses import InterfaceAddress
from kdns.netlink.io.addresses import interface_addresses
from kdns.runtime.connections import BACKLOG, bind_failure

KERNEL_SEND_BYTES: Final = 32 << 10
KERNEL_RECEIVE_BYTES: Final = 16 << 10
"""The buffer sizes of a connection, which the kernel doubles and counts as memory of the container."""
MAX_ATTEMPTS: Final = 20
"""The most attempts to find a port that is free for UDP and TCP."""


class Sharing(Enum):
    """Whether other processes of kdns bind the same addresses, by SO_REUSEPORT (socket(7)).

    The first worker binds without it, so that an address that another program uses is an error.
    """

    NONE = 0
    FIRST = 1
    FURTHER = 2


async def usable_addresses() -> tuple[InterfaceAddress, ...]:
    """The addresses of the machine, IPv4 first; none if netlink fails.

    IPv6 link-local addresses are excluded, because they are valid with an interface only. IPv4 ones, such as NodeLocal
    DNSCache's 169.254.20.10, are included.
    """
    try:
        addresses = await interface_addresses()
    except OSError:
        return ()
    return tuple(address for address in addresses if not is_link_local_ipv6(ip_address(address.address)))


def bound_addresses(
    hosts: Iterable[str], exclude: Iterable[str], known: tuple[InterfaceAddress, ...]
) -> tuple[str, ...]:
    """The addresses of `bind`, where a name is an interface with all its addresses; InputError for other words."""

    def resolved(host: str) -> list[str]:
        try:
            return [str(ip_address(host))]
        except ValueError:
            addresses = [address.address for address in known if address.interface == host]
            if not addresses:
                names = ", ".join(sorted({address.interface for address in known})) or "none"
                raise InputError(f"bind: no interface {host!r} with an address; there are: {names}") from None
            return addresses

    without = {address for host in exclude for address in resolved(host)}
    return tuple(dict.fromkeys(address for host in hosts for address in resolved(host) if address not in without))


def own_addresses(bound: Iterable[str], known: tuple[InterfaceAddress, ...]) -> tuple[bytes, ...]:
    """Packed; for a wildcard all of the machine's but loopback."""
    addresses = [ip_address(address) for address in bound]
    if any(address.is_unspecified for address in addresses):
        addresses = [address for interface in known if not (address := ip_address(interface.address)).is_loopback]
    return tuple(dict.fromkeys(address.packed for address in addresses))


@dataclass(frozen=True, slots=True)
class DnsSockets:
    """The sockets of one address and port. For a wildcard, UDP has further sockets for single addresses behind it."""

    udp: tuple[socket.socket, ...] = ()
    tcp: socket.socket | None = None

    @property
    def all(self) -> list[socket.socket]:
        return [*self.udp, self.tcp] if self.tcp else [*self.udp]

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.all[0].getsockname()[:2]
        return host, port


def dns_sockets(
    hosts: Iterable[str], port: int, transports: Collection[str], *, is_shared: bool, sharing: Sharing
) -> list[DnsSockets]:
    """Bound sockets for each host, all on one port (0: a port that is free for all); raises ListenError.

    On a machine without IPv6, "::" is left out. `is_shared`: other sockets of this process may still have the address,
    see `shared_ports`.
    """
    for attempt in range(MAX_ATTEMPTS):
        sockets: list[DnsSockets] = []
        for host in hosts:
            try:
                at = sockets[0].address[1] if sockets else port
                sockets.append(_sockets(host, at, transports, is_shared=is_shared, sharing=sharing))
            except OSError as error:
                if host == "::" and sockets and error.errno in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}:
                    continue
                close_all(sockets)
                if port == 0 and error.errno == errno.EADDRINUSE and attempt < MAX_ATTEMPTS - 1:
                    break
                raise ListenError(join_host_port(host, port), bind_failure(error, port)) from error
        else:
            return sockets
    raise AssertionError("the last attempt returns or raises")


def with_closer(sockets: DnsSockets, known: Iterable[InterfaceAddress], sharing: Sharing) -> DnsSockets:
    """Adds a UDP socket for each address to a wildcard, so that answers are sent from the queried address.

    The kernel delivers to the most specific socket; the wildcard's answers get their source address by route. The port
    is shared only while these are bound, so that another process cannot bind it later. New addresses, and those that
    cannot be bound, are left to the wildcard.
    """
    udp = [*sockets.udp]
    for wildcard in sockets.udp:
        port, of_ipv6 = wildcard.getsockname()[1], wildcard.family == socket.AF_INET6
        wildcard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        hosts = [address.address for address in known if is_ipv6(address.address) == of_ipv6]
        for address in dict.fromkeys(hosts):
            with suppress(OSError):
                udp.append(_bound(wildcard.family, socket.SOCK_DGRAM, address, port, is_shared=True, sharing=sharing))
    for sock in udp:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    return replace(sockets, udp=tuple(udp))


def close_all(sockets: Iterable[DnsSockets]) -> None:
    for sock in chain.from_iterable(pair.all for pair in sockets):
        sock.close()


def _sockets(host: str, port: int, transports: Collection[str], *, is_shared: bool, sharing: Sharing) -> DnsSockets:
    bind = partial(_bound, socket.AF_INET6 if is_ipv6(host) else socket.AF_INET, is_shared=is_shared, sharing=sharing)
    udp = (bind(socket.SOCK_DGRAM, host, port),) if "udp" in transports else ()
    if "tcp" not in transports:
        return DnsSockets(udp)
    try:
        return DnsSockets(udp, bind(socket.SOCK_STREAM, host, udp[0].getsockname()[1] if udp else port))
    except OSError:
        close_all([DnsSockets(udp)])
        raise


def _bound(
    family: socket.AddressFamily | int,
    kind: socket.SocketKind,
    host: str,
    port: int,
    *,
    is_shared: bool,
    sharing: Sharing,
) -> socket.socket:
    """A TCP socket listens; an IPv6 socket accepts no IPv4."""
    sock = socket.socket(family, kind)
    try:
        if kind == socket.SOCK_STREAM or is_shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sharing is Sharing.FURTHER or (kind == socket.SOCK_STREAM and is_shared):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
        if kind == socket.SOCK_STREAM:
            limit_kernel_buffers(sock)
            sock.listen(BACKLOG)
        if sys.platform != "win32":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, sharing is not Sharing.NONE)
    except OSError:
        sock.close()
        raise
    return sock


def limit_kernel_buffers(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_SEND_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_RECEIVE_BYTES)


def reachable(host: str, port: int) -> HostPort:
    """An address at which local clients reach a listener: they cannot connect to a wildcard."""
    return HostPort({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)
