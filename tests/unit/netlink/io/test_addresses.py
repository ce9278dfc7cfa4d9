"""What is made of the kernel's list of addresses."""

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import TypeVar

import pytest

from kdns.net import Address
from kdns.netlink.addresses import VIRTUAL_LINK, InterfaceAddress
from kdns.netlink.io import addresses
from kdns.netlink.io.addresses import interface_addresses, link_addresses, node_addresses
from kdns.netlink.protocol import attribute
from kdns.netlink.uapi import IFA_ADDRESS, IFA_LOCAL, NETLINK_ROUTE, RTM_DELADDR, RTM_GETADDR

LO = socket.if_nametoindex("lo")
Row = dict[int, str]
T = TypeVar("T")


class Kernel:
    """Answers a dump with these rows."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    def dump(self, kind: int, _body: bytes, decode: Callable[[bytes], T]) -> list[T]:
        assert kind == RTM_GETADDR
        head = struct.pack("=BBBBI", 0, 0, 0, 0, LO)
        bodies = [[attribute(kind, ip_address(text).packed) for kind, text in row.items()] for row in self.rows]
        return [decode(head + b"".join(body)) for body in bodies]


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    made: list[Row] = []

    @contextmanager
    def requests(protocol: int) -> Iterator[Kernel]:
        assert protocol == NETLINK_ROUTE
        yield Kernel(made)

    monkeypatch.setattr(addresses, "Requests", requests)
    return made


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ([{IFA_ADDRESS: "10.0.0.1", IFA_LOCAL: "10.0.0.1"}], ["10.0.0.1"]),
        ([{IFA_ADDRESS: "10.0.0.2", IFA_LOCAL: "10.0.0.1"}], ["10.0.0.1"]),  # a tunnel to 10.0.0.2
        ([{IFA_ADDRESS: "fd00::1"}, {IFA_LOCAL: "10.0.0.1"}], ["10.0.0.1", "fd00::1"]),
        ([{IFA_ADDRESS: "fe80::1"}, {}], ["fe80::1"]),
    ],
)
async def test_addresses_by_interface(kernel: list[Row], expected: list[str], rows: list[Row]) -> None:
    rows += kernel
    assert await interface_addresses() == tuple(InterfaceAddress("lo", each) for each in expected)


async def test_the_addresses_of_a_node(rows: list[Row]) -> None:
    texts = ("fd00::2", "10.0.0.2", "127.0.0.1", "::1", "fe80::1", "169.254.0.1", "10.0.0.1", "10.0.0.2")
    rows += [{IFA_LOCAL: text} for text in texts]
    assert list(map(str, await node_addresses())) == ["10.0.0.1", "10.0.0.2", "169.254.0.1", "fd00::2"]


async def test_this_machine() -> None:
    assert InterfaceAddress("lo", "127.0.0.1") in await interface_addresses()


def test_the_addresses_of_a_link(rows: list[Row]) -> None:
    rows += [{IFA_ADDRESS: "10.96.0.1"}, {IFA_ADDRESS: "fe80::1"}]
    assert link_addresses(LO) == {"10.96.0.1"}


async def test_many_notices_list_the_links_once_and_look_for_none_by_name(
    monkeypatch: pytest.MonkeyPatch, rows: list[Row]
) -> None:
    """To look for a missing link by its name makes the kernel run modprobe, which takes milliseconds each time."""
    rows.append({IFA_LOCAL: "10.0.0.1"})
    ours, kernels = socket.socketpair(type=socket.SOCK_DGRAM)
    services, lists, told = 7, 0, list[tuple[Address, ...]]()

    def links() -> list[tuple[int, str]]:
        nonlocal lists
        lists += 1
        return [(LO, "lo"), (services, VIRTUAL_LINK)]

    def looked_for(name: str) -> int:
        raise AssertionError(name)

    def notice(link: int) -> bytes:
        body = struct.pack("=BBBBI", socket.AF_INET, 32, 0, 0, link)
        return struct.pack("=IHHII", 16 + len(body), RTM_DELADDR, 0, 0, 0) + body

    monkeypatch.setattr(addresses, "netlink_socket", lambda *_: ours)
    monkeypatch.setattr(addresses, "_SETTLE_S", 0.0)
    monkeypatch.setattr(socket, "if_nameindex", links)
    monkeypatch.setattr(socket, "if_nametoindex", looked_for)
    watch = asyncio.create_task(addresses.watch_node_addresses(told.append))
    try:
        async with asyncio.timeout(60):
            while not told:  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.001)
            lists = 0
            for _ in range(50):
                kernels.send(notice(services))
            while not lists:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            assert (lists, len(told)) == (1, 1)
            kernels.send(notice(services) + notice(LO))
            while len(told) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    finally:
        watch.cancel()
        kernels.close()
