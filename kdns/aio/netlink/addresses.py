"""This machine's addresses by interface, and the notice that they changed."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from kdns.aio.netlink.protocol import attributes, netlink_socket, requests
from kdns.aio.netlink.uapi import (
    IFA_ADDRESS,
    IFA_LOCAL,
    NETLINK_ROUTE,
    RTM_GETADDR,
    RTNLGRP_IPV4_IFADDR,
    RTNLGRP_IPV6_IFADDR,
)
from kdns.net import Address, is_ipv6, is_link_local_ipv6, unpacked

_IFADDRMSG: Final = struct.Struct("=BBBBI")
"""Address family, prefix length, flags, scope, interface index."""
_SETTLE_S: Final = 0.2
"""Addresses come in groups, so they are listed once after this time."""


@dataclass(frozen=True, slots=True)
class InterfaceAddress:
    """One address of an interface."""

    interface: str
    address: str


async def interface_addresses() -> tuple[InterfaceAddress, ...]:
    """All addresses of the machine, IPv4 first; OSError where the kernel does not list them."""
    return await asyncio.to_thread(_interface_addresses)


def _interface_addresses() -> tuple[InterfaceAddress, ...]:
    names = dict(socket.if_nameindex())
    found: list[InterfaceAddress] = []

    def receive(body: bytes) -> None:
        _, _, _, _, index = _IFADDRMSG.unpack_from(body)
        row = attributes(body, _IFADDRMSG.size)
        packed = row.get(IFA_LOCAL) or row.get(IFA_ADDRESS)  # with both, IFA_ADDRESS is the peer's, as on a tunnel
        if packed:
            found.append(InterfaceAddress(names.get(index, ""), unpacked(packed)))

    with requests(NETLINK_ROUTE) as kernel:
        kernel.dump(RTM_GETADDR, _IFADDRMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0), receive)
    return tuple(sorted(found, key=lambda each: is_ipv6(each.address)))


async def node_addresses() -> tuple[Address, ...]:
    """The machine's addresses without loopback and IPv6 link-local ones, sorted; OSError as `interface_addresses`.

    An IPv6 link-local address comes with the link of every Pod: each would make a new plan of everything.
    """
    found = {ip_address(each.address) for each in await interface_addresses()}
    usable = (each for each in found if not each.is_loopback and not is_link_local_ipv6(each))
    return tuple(sorted(usable, key=lambda each: (each.version, int(each))))


async def watch_node_addresses(changed: Callable[[tuple[Address, ...]], None]) -> None:
    """Call `changed` with `node_addresses`, now and whenever they may have changed, until cancelled."""
    loop = asyncio.get_running_loop()
    notified = asyncio.Event()
    monitor = netlink_socket(NETLINK_ROUTE, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR)
    monitor.setblocking(False)

    def readable() -> None:
        with suppress(OSError):  # nothing is left, or messages were lost: the list that follows has all
            while True:
                monitor.recv(1 << 16)
        notified.set()

    loop.add_reader(monitor, readable)
    notified.set()  # addresses may have changed before this socket joined the groups
    try:
        while True:
            await notified.wait()
            await asyncio.sleep(_SETTLE_S)
            notified.clear()
            with suppress(OSError):
                changed(await node_addresses())
    finally:
        loop.remove_reader(monitor)
        monitor.close()
