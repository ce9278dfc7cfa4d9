"""Elements go to the kernel over one socket that is kept: to open and close one for each change costs milliseconds."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence

import pytest

from kdns.errors import ApplyError
from kdns.netlink.uapi import NETLINK_NETFILTER, NFNL_SUBSYS_NFTABLES
from kdns.proxy.nftables.elements import Request
from kdns.proxy.nftables.io import nft

REFUSED = [(2, b"refused")]


class Kernel:
    """Sockets in the order in which they were opened: what was sent by each, and whether it is closed."""

    def __init__(self) -> None:
        self.sockets: list[Socket] = []

    def requests(self, protocol: int) -> Socket:
        assert protocol == NETLINK_NETFILTER
        self.sockets.append(Socket())
        return self.sockets[-1]


class Socket:
    port = 7

    def __init__(self) -> None:
        self.sent: list[Sequence[Request]] = []
        self.is_closed = False

    def transact(self, subsystem: int, changes: Sequence[Request]) -> None:
        assert subsystem == NFNL_SUBSYS_NFTABLES
        self.sent.append(changes)
        if changes is REFUSED:
            raise OSError(errno.ENOENT, "No such file or directory")

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    monkeypatch.setattr(nft, "Requests", made.requests)
    monkeypatch.setattr(nft, "elements", nft.ElementSocket())
    return made


async def _apply(*transactions: list[Request]) -> None:
    for transaction in transactions:
        await nft.apply_elements(transaction)


def test_changes_large_and_small_are_sent_by_one_socket(kernel: Kernel) -> None:
    small, large = [(1, b"small")], [(1, bytes(nft.AT_ONCE_BYTES + 1))]
    asyncio.run(_apply(small, large, small))
    (only,) = kernel.sockets
    assert only.sent == [small, large, small]
    assert not only.is_closed


def test_nothing_opens_no_socket(kernel: Kernel) -> None:
    asyncio.run(_apply([]))
    assert not kernel.sockets


def test_after_an_error_another_socket_is_opened(kernel: Kernel) -> None:
    with pytest.raises(ApplyError, match="No such file"):
        asyncio.run(_apply([(1, b"before")], REFUSED))
    asyncio.run(_apply([(1, b"after")]))
    refused, other = kernel.sockets
    assert refused.is_closed
    assert other.sent == [[(1, b"after")]]
    assert not other.is_closed
