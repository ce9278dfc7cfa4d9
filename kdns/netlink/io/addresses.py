"""This machine's addresses by interface, and the notice that they changed."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import socket
import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from kdns.net import Address, is_ipv6, is_link_local_ipv6, packed, unpacked
from kdns.netlink.io.protocol import (
    InterruptedDumpError,
    attribute,
    attributes,
    messages,
    netlink_socket,
    requests,
)
from kdns.netlink.links import NODE_LOCAL_LINK, VIRTUAL_LINK
from kdns.netlink.uapi import (
    IFA_ADDRESS,
    IFA_F_NODAD,
    IFA_LOCAL,
    NETLINK_ROUTE,
    NLM_F_CREATE,
    NLM_F_EXCL,
    RTM_DELADDR,
    RTM_GETADDR,
    RTM_NEWADDR,
    RTNLGRP_IPV4_IFADDR,
    RTNLGRP_IPV6_IFADDR,
)

_OF_SERVICES: Final = (VIRTUAL_LINK, NODE_LOCAL_LINK)
_IFADDRMSG: Final = struct.Struct("=BBBBI")
"""Address family, prefix length, flags, scope, interface index."""
_IFREQ_BYTES: Final = 40
_IFFLAGS: Final = struct.Struct("=16xH")
_SIOCGIFFLAGS: Final = 0x8913
_IFF_UP: Final = 0x1
_BEYOND: Final = {4: (socket.AF_INET, "198.51.100.1"), 6: (socket.AF_INET6, "2001:db8::1")}
"""Addresses for documentation, to which only a default route leads (RFC 5737, RFC 3849)."""
_ATTEMPTS: Final = 10
"""A list that changed while it was read is read again: addresses come with Pods, and with Services in mode ipvs."""
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
    for body in _listed():
        _, _, _, _, index = _IFADDRMSG.unpack_from(body)
        row = attributes(body, _IFADDRMSG.size)
        packed = row.get(IFA_LOCAL) or row.get(IFA_ADDRESS)  # with both, IFA_ADDRESS is the peer's, as on a tunnel
        if packed:
            found.append(InterfaceAddress(names.get(index, ""), unpacked(packed)))
    return tuple(sorted(found, key=lambda each: is_ipv6(each.address)))


def _listed() -> list[bytes]:
    """The messages of a list of all addresses."""
    with requests(NETLINK_ROUTE) as kernel:
        for attempt in range(_ATTEMPTS):
            found: list[bytes] = []
            try:
                kernel.dump(RTM_GETADDR, _IFADDRMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0), found.append)
            except InterruptedDumpError:
                if attempt + 1 == _ATTEMPTS:
                    raise
            else:
                break
    return found


async def node_addresses() -> tuple[Address, ...]:
    """The machine's addresses without loopback, IPv6 link-local and Services' ones, sorted; OSError as before.

    An IPv6 link-local address comes with the link of every Pod: each would make a new plan of everything.
    """
    found = {ip_address(each.address) for each in await interface_addresses() if each.interface not in _OF_SERVICES}
    usable = (each for each in found if not each.is_loopback and not is_link_local_ipv6(each))
    return tuple(sorted(usable, key=lambda each: (each.version, int(each))))


def primary_addresses(own: Iterable[Address]) -> tuple[Address, ...]:
    """Of these sorted addresses of the machine the one of each family by which a kubelet would name its Node.

    The source of what takes the default route, else the first that is not link-local. Nothing is sent.
    """
    found = []
    for version, (family, beyond) in _BEYOND.items():
        usable = [each for each in own if each.version == version and not each.is_link_local]
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as any_socket:
            any_socket.connect((beyond, 9))
            source = ip_address(any_socket.getsockname()[0])
            usable = [source] if source in usable else usable
        found += usable[:1]
    return tuple(found)


def is_link_up(index: int) -> bool:
    """Whether the link of virtual IPs is still the one of this index, and is up."""
    request = VIRTUAL_LINK.encode().ljust(_IFREQ_BYTES, b"\0")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            (flags,) = _IFFLAGS.unpack_from(fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))
        return bool(flags & _IFF_UP) and socket.if_nametoindex(VIRTUAL_LINK) == index
    except OSError:
        return False


def link_addresses(index: int) -> set[str]:
    """The addresses of one link, without IPv6 link-local ones. Blocks."""
    own = (body for body in _listed() if _IFADDRMSG.unpack_from(body)[4] == index)
    found = {unpacked(attributes(body, _IFADDRMSG.size)[IFA_ADDRESS]) for body in own}
    return {each for each in found if not is_link_local_ipv6(ip_address(each))}


def change_link_addresses(index: int, new: Iterable[str], old: Iterable[str]) -> dict[str, int]:
    """Add addresses to a link and delete others; the errors of those that the kernel refuses. Blocks.

    Those that are there already, or not there any more, are no matter.
    """
    wanted = [(each, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL) for each in new] + [(each, RTM_DELADDR, 0) for each in old]
    changes = [(kind, flags, _of_link(index, address)) for address, kind, flags in wanted]
    with requests(NETLINK_ROUTE) as kernel:
        refused = kernel.do_all(changes)
    is_done = {RTM_NEWADDR: errno.EEXIST, RTM_DELADDR: errno.EADDRNOTAVAIL}
    return {wanted[at][0]: error for at, error in refused.items() if error != is_done[wanted[at][1]]}


def _of_link(index: int, address: str) -> bytes:
    """An address of a link, and of no network. Without duplicate address detection: it is on every node."""
    value = packed(address)
    family, bits, flags = (socket.AF_INET6, 128, IFA_F_NODAD) if is_ipv6(address) else (socket.AF_INET, 32, 0)
    return _IFADDRMSG.pack(family, bits, flags, 0, index) + attribute(IFA_LOCAL, value) + attribute(IFA_ADDRESS, value)


@contextmanager
def address_notices(is_wanted: Callable[[bytes], bool]) -> Iterator[asyncio.Event]:
    """An event that is set whenever a datagram about addresses is wanted, or some were lost."""
    loop = asyncio.get_running_loop()
    notified = asyncio.Event()
    monitor = netlink_socket(NETLINK_ROUTE, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR)
    monitor.setblocking(False)

    def readable() -> None:
        try:
            while True:
                if is_wanted(monitor.recv(1 << 16)):
                    notified.set()
        except BlockingIOError:
            return
        except OSError:  # messages were lost: the list that follows has all
            notified.set()

    loop.add_reader(monitor, readable)
    try:
        yield notified
    finally:
        loop.remove_reader(monitor)
        monitor.close()


async def watch_node_addresses(changed: Callable[[tuple[Address, ...]], None]) -> None:
    """Call `changed` with `node_addresses`, now and whenever they may have changed, until cancelled."""
    with address_notices(_concerns_node) as notified:
        notified.set()  # addresses may have changed before the notices began
        while True:
            await notified.wait()
            await asyncio.sleep(_SETTLE_S)
            notified.clear()
            try:
                changed(await node_addresses())
            except InterruptedDumpError:
                notified.set()  # those that changed meanwhile may be virtual ones, of which no notice comes
            except OSError:
                continue


def removes_address(buffer: bytes, addresses: Collection[str]) -> bool:
    """Whether a datagram says that one of these addresses is gone from some link."""
    rows = (attributes(each.body, _IFADDRMSG.size) for each in messages(buffer) if each.kind == RTM_DELADDR)
    return any(unpacked(value) in addresses for row in rows if (value := row.get(IFA_LOCAL) or row.get(IFA_ADDRESS)))


def _concerns_node(buffer: bytes) -> bool:
    """Whether some address is no Service's: of those come as many as there are Services, and each list has all."""
    indices = set()
    for name in _OF_SERVICES:
        with suppress(OSError):
            indices.add(socket.if_nametoindex(name))
    return any(_IFADDRMSG.unpack_from(each.body)[4] not in indices for each in messages(buffer))
