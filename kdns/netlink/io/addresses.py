"""This machine's links and addresses, and the notice that addresses changed."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import Final

from kdns.net import Address, is_ipv6, is_link_local_ipv6
from kdns.netlink import uapi
from kdns.netlink.addresses import (
    LIST_ALL,
    NODE_LOCAL_LINK,
    VIRTUAL_LINK,
    IndexedAddress,
    InterfaceAddress,
    Link,
    addition,
    address_of,
    deletion,
    index_of,
)
from kdns.netlink.io.requests import InterruptedDumpError, Requests, netlink_socket
from kdns.netlink.protocol import attribute, attributes, messages, text_attribute, text_of

_OF_SERVICES: Final = (VIRTUAL_LINK, NODE_LOCAL_LINK)
_IFINFOMSG: Final = struct.Struct("=BxHiII")
"""Address family, type of hardware, index, flags, and which flags a request changes."""
_BEYOND: Final = {4: (socket.AF_INET, "198.51.100.1"), 6: (socket.AF_INET6, "2001:db8::1")}
"""Addresses for documentation, to which only a default route leads (RFC 5737, RFC 3849)."""
_NOTICES_AT_ONCE: Final = 64
_SETTLE_S: Final = 0.2
"""Addresses come in groups, so they are listed once after this time."""


async def interface_addresses() -> tuple[InterfaceAddress, ...]:
    """All addresses of the machine, IPv4 first; OSError if the kernel does not list them."""
    return await asyncio.to_thread(_interface_addresses)


def _interface_addresses() -> tuple[InterfaceAddress, ...]:
    names = dict(socket.if_nameindex())
    rows = (InterfaceAddress(names.get(row.interface, ""), row.local) for row in _listed() if row.local)
    return tuple(sorted(rows, key=lambda row: is_ipv6(row.address)))


def _listed() -> list[IndexedAddress]:
    with Requests(uapi.NETLINK_ROUTE) as kernel:
        return kernel.dump(uapi.RTM_GETADDR, LIST_ALL, address_of)


async def node_addresses() -> tuple[Address, ...]:
    """The machine's addresses without loopback, IPv6 link-local and Services' ones, sorted; OSError as above.

    An IPv6 link-local address comes with the link of every Pod: each would make a new plan of everything.
    """
    found = {ip_address(row.address) for row in await interface_addresses() if row.interface not in _OF_SERVICES}
    usable = (address for address in found if not address.is_loopback and not is_link_local_ipv6(address))
    return tuple(sorted(usable, key=lambda address: (address.version, int(address))))


def primary_addresses(own: Iterable[Address]) -> tuple[Address, ...]:
    """Of these sorted addresses of the machine the one of each family by which a kubelet would name its Node.

    The source of what takes the default route, else the first that is not link-local. Nothing is sent.
    """
    found = []
    for version, (family, beyond) in _BEYOND.items():
        usable = [address for address in own if address.version == version and not address.is_link_local]
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as any_socket:
            any_socket.connect((beyond, 9))
            source = ip_address(any_socket.getsockname()[0])
            usable = [source] if source in usable else usable
        found += usable[:1]
    return tuple(found)


def is_link_up(index: int) -> bool:
    """Whether the link of virtual IPs still has this index, and is up."""
    with suppress(OSError), Requests(uapi.NETLINK_ROUTE) as kernel:
        answer = kernel.ask(uapi.RTM_GETLINK, _ifinfomsg(index))
        name = text_of(attributes(answer, _IFINFOMSG.size)[uapi.IFLA_IFNAME])
        return _link_of(answer).is_up and name == VIRTUAL_LINK
    return False


def link_addresses(index: int) -> set[str]:
    own = {row.peer for row in _listed() if row.interface == index}
    return {peer for peer in own if not is_link_local_ipv6(ip_address(peer))}


def change_link_addresses(index: int, new: Iterable[str], old: Iterable[str]) -> dict[str, int]:
    """Adds addresses to a link and deletes others; returns the errors of refused ones. Blocks.

    Existing new addresses and missing old ones are ignored.
    """
    additions, deletions = tuple(new), tuple(old)
    changes = [addition(index, address) for address in additions]
    changes += [deletion(index, address) for address in deletions]
    with Requests(uapi.NETLINK_ROUTE) as kernel:
        refused = kernel.do_all(changes)
    expected = [*(errno.EEXIST,) * len(additions), *(errno.EADDRNOTAVAIL,) * len(deletions)]
    addresses = additions + deletions
    return {addresses[at]: error for at, error in refused.items() if error != expected[at]}


@contextmanager
def address_notices(is_selected: Callable[[bytes], bool]) -> Iterator[asyncio.Event]:
    """An event that is set when messages about addresses are selected, and after lost ones."""
    loop = asyncio.get_running_loop()
    notified = asyncio.Event()
    monitor = netlink_socket(uapi.NETLINK_ROUTE, uapi.RTNLGRP_IPV4_IFADDR, uapi.RTNLGRP_IPV6_IFADDR)
    monitor.setblocking(False)

    def readable() -> None:
        notices = bytearray()
        try:
            for _ in range(_NOTICES_AT_ONCE):
                notices += monitor.recv(1 << 16)
        except BlockingIOError:
            pass
        except OSError:  # messages were lost: the list that follows has all
            notified.set()
        if notices and is_selected(bytes(notices)):
            notified.set()

    loop.add_reader(monitor, readable)
    try:
        yield notified
    finally:
        loop.remove_reader(monitor)
        monitor.close()


async def watch_node_addresses(changed: Callable[[tuple[Address, ...]], None]) -> None:
    """Calls `changed` with `node_addresses`, now and whenever they may have changed, until cancelled.

    On systems without netlink it never calls.
    """
    if sys.platform != "linux":
        await asyncio.Event().wait()
    with address_notices(_concerns_node) as notified:
        notified.set()  # addresses may have changed before the notices began
        while True:
            await notified.wait()
            await asyncio.sleep(_SETTLE_S)
            notified.clear()
            try:
                changed(await node_addresses())
            except InterruptedDumpError:
                notified.set()  # the addresses that changed may be Services', which are not reported
            except OSError:
                continue


def removes_address(buffer: bytes, addresses: Collection[str]) -> bool:
    removed = (address_of(notice.body).local for notice in messages(buffer) if notice.kind == uapi.RTM_DELADDR)
    return any(address in addresses for address in removed)


def _concerns_node(buffer: bytes) -> bool:
    """Whether some address is not a Service's. Services have many addresses, and each list has all.

    The links are listed: to ask for one by a name that is missing makes the kernel run modprobe, and wait for it.
    """
    indices = {index for index, name in socket.if_nameindex() if name in _OF_SERVICES}
    return any(index_of(notice.body) not in indices for notice in messages(buffer))


def find_link(name: str) -> Link | None:
    try:
        with Requests(uapi.NETLINK_ROUTE) as kernel:
            answer = kernel.ask(uapi.RTM_GETLINK, _ifinfomsg() + text_attribute(uapi.IFLA_IFNAME, name))
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise
        return None
    return _link_of(answer)


def _link_of(body: bytes) -> Link:
    _, _, index, flags, _ = _IFINFOMSG.unpack_from(body)
    return Link(index, bool(flags & uapi.IFF_UP))


def add_link(name: str, kind: str) -> None:
    """Adds a link, which is not up yet. EEXIST if there is one of this name, EOPNOTSUPP for an unknown kind."""
    info = attribute(uapi.IFLA_LINKINFO, text_attribute(uapi.IFLA_INFO_KIND, kind), nested=True)
    body = _ifinfomsg() + text_attribute(uapi.IFLA_IFNAME, name) + info
    _change_link(uapi.RTM_NEWLINK, body, uapi.NLM_F_CREATE | uapi.NLM_F_EXCL)


def bring_link_up(index: int) -> None:
    _change_link(uapi.RTM_NEWLINK, _ifinfomsg(index, uapi.IFF_UP))


def remove_link(index: int) -> None:
    _change_link(uapi.RTM_DELLINK, _ifinfomsg(index))


def _change_link(kind: int, body: bytes, flags: int = 0) -> None:
    with Requests(uapi.NETLINK_ROUTE) as kernel:
        kernel.do(kind, body, flags)


def _ifinfomsg(index: int = 0, flags: int = 0) -> bytes:
    return _IFINFOMSG.pack(uapi.AF_UNSPEC, 0, index, flags, flags)
