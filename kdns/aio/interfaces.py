"""The addresses of this machine, and the sockets that stand for what `bind` says."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from kdns.corefile.address import HostPort
from kdns.errors import InputError, ListenError


@dataclass(frozen=True, slots=True)
class InterfaceAddress:
    """One address of an interface that is up."""

    interface: str
    address: str


async def interface_addresses() -> tuple[InterfaceAddress, ...]:
    """All addresses of the machine, IPv4 first, without link-local IPv6; none where netlink cannot be asked."""
    try:
        from pyroute2 import AsyncIPRoute  # type: ignore[attr-defined]  # noqa: PLC0415 - netlink is Linux's
    except ImportError:
        return ()
    names = dict(socket.if_nameindex())
    netlink: Any = AsyncIPRoute()  # type: ignore[misc]
    async with netlink as route:
        entries = [entry async for entry in await route.get_addr()]
    found = [InterfaceAddress(names.get(e["index"], ""), e.get("address")) for e in entries if e.get("address")]
    usable = [one for one in found if not ip_address(one.address).is_link_local]
    return tuple(sorted(usable, key=lambda one: ":" in one.address))


def bound_addresses(
    hosts: Iterable[str], exclude: Iterable[str], known: tuple[InterfaceAddress, ...]
) -> tuple[str, ...]:
    """The addresses that `bind` means: an address is itself, an interface all it has now; InputError for neither."""

    def resolved(host: str) -> list[str]:
        try:
            return [str(ip_address(host))]
        except ValueError:
            found = [one.address for one in known if one.interface == host]
            if not found:
                names = ", ".join(sorted({one.interface for one in known})) or "none"
                raise InputError(f"bind: no interface {host!r} with an address; there are: {names}") from None
            return found

    without = {address for host in exclude for address in resolved(host)}
    return tuple(dict.fromkeys(address for host in hosts for address in resolved(host) if address not in without))


def own_addresses(bound: Iterable[str], known: tuple[InterfaceAddress, ...]) -> tuple[bytes, ...]:
    """The packed addresses a server answers on: those bound, or all of the machine for a wildcard."""
    addresses = [ip_address(address) for address in bound]
    if any(address.is_unspecified for address in addresses):
        addresses = [ip for one in known if not (ip := ip_address(one.address)).is_loopback]
    return tuple(dict.fromkeys(address.packed for address in addresses))


def udp_sockets(hosts: Iterable[str], port: int) -> list[socket.socket]:
    """One bound UDP socket for each host, all on one port (0: the first one's choice); ListenError where that fails.

    A machine without IPv6 gets no socket for "::".
    """
    sockets: list[socket.socket] = []
    for host in hosts:
        try:
            sockets.append(udp_socket(host, port))
        except OSError as error:
            if host == "::" and sockets and error.errno in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}:
                continue
            for sock in sockets:
                sock.close()
            raise ListenError(str(HostPort(host, port)), error.strerror or str(error)) from error
        port = sockets[0].getsockname()[1]
    return sockets


def udp_socket(host: str, port: int) -> socket.socket:
    """A bound UDP socket; an IPv6 one takes no IPv4. OSError where the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock
