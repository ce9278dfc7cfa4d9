"""This machine's own addresses, and the news that they changed."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

from kdns.aio.netlink import ROUTE, Requests, attributes, opened
from kdns.proxy.config import Address, is_link_local_ipv6

_GET_ADDRESSES: Final = 22
_ADDRESS, _LOCAL = 1, 2
_MESSAGE: Final = struct.Struct("=BBBBI")
_GROUPS: Final = 5, 9  # RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR
_SETTLE_S: Final = 0.2


async def own_addresses() -> tuple[Address, ...]:
    """All addresses but loopback ones and IPv6's link-local ones, sorted; OSError where the kernel does not tell.

    An IPv6 link-local address comes with the link of every Pod, and would have everything planned anew.
    """
    return await asyncio.to_thread(_own_addresses)


def _own_addresses() -> tuple[Address, ...]:
    found: set[Address] = set()

    def entry(body: bytes) -> None:
        row = attributes(body, _MESSAGE.size)
        packed = row.get(_LOCAL) or row.get(_ADDRESS)  # where both are there, the second is the other end's
        if packed:
            found.add(ip_address(packed))

    requests = Requests(ROUTE)
    try:
        requests.dump(_GET_ADDRESSES, _MESSAGE.pack(socket.AF_UNSPEC, 0, 0, 0, 0), entry)
    finally:
        requests.close()
    usable = (each for each in found if not each.is_loopback and not is_link_local_ipv6(each))
    return tuple(sorted(usable, key=lambda each: (each.version, int(each))))


async def watch_addresses(changed: Callable[[tuple[Address, ...]], None]) -> None:
    """Call `changed` with the addresses, and whenever they may have changed, until cancelled."""
    loop = asyncio.get_running_loop()
    news = asyncio.Event()
    monitor = opened(ROUTE, *_GROUPS)
    monitor.setblocking(False)

    def readable() -> None:
        with suppress(OSError):  # nothing more, or more than there was room for: the list tells
            while True:
                monitor.recv(1 << 16)
        news.set()

    loop.add_reader(monitor, readable)
    news.set()  # whoever asked before may have missed some
    try:
        while True:
            await news.wait()
            await asyncio.sleep(_SETTLE_S)  # addresses come in groups
            news.clear()
            with suppress(OSError):
                changed(await own_addresses())
    finally:
        loop.remove_reader(monitor)
        monitor.close()
