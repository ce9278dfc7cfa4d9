"""When a change of endpoints is there: each mode's way to see it from outside of kdns.

The kernel tells of transactions of nftables, so of those of iptables-nft too. What it does not tell of is asked for
again and again, which costs next to nothing: how large a table of iptables-legacy is, how many destinations a virtual
server of IPVS has. Relays of mode userspace have nothing in the kernel that depends on endpoints: there, /metrics says
when kdns was done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final, Protocol, TypeAlias

from _node import front, metric

from kdns.netlink.io.ipvs import ipvs
from kdns.netlink.io.requests import netlink_socket
from kdns.netlink.io.xtables import legacy_size
from kdns.netlink.ipvs import VirtualServerKey
from kdns.netlink.protocol import attributes, messages
from kdns.netlink.uapi import NETLINK_NETFILTER, NFNLGRP_NFTABLES, NFT_MSG_NEWGEN, NFTA_TABLE_NAME

PATIENCE_S: Final = 60.0


class Arrival(Protocol):
    """Sees one change after the other."""

    def expect(self, number: int) -> None:
        """What this Service's endpoints are is about to change."""
        ...

    def wait(self) -> float:
        """When the change was there (monotonic)."""
        ...


Arrivals: TypeAlias = Callable[[], AbstractContextManager[Arrival]]


class _Transaction:
    """What nftables tells of a table; there may be one of that name for each family."""

    def __init__(self, table: str) -> None:
        self._table = f"{table}\0".encode()
        self.socket = netlink_socket(NETLINK_NETFILTER, NFNLGRP_NFTABLES)

    def expect(self, number: int) -> None:
        """Forget what has been told so far."""
        del number
        self.socket.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                self.socket.recv(1 << 18)
        self.socket.settimeout(PATIENCE_S)

    def wait(self) -> float:
        """When the next transaction on the table was told."""
        is_ours = False
        while True:
            for message in messages(self.socket.recv(1 << 18)):
                if message.kind & 0xFF == NFT_MSG_NEWGEN:
                    if is_ours:
                        return time.monotonic()
                else:
                    is_ours = is_ours or attributes(message.body, 4).get(NFTA_TABLE_NAME) == self._table


class _Number:
    """A number of a Service that every change changes, read every so often."""

    def __init__(self, read: Callable[[int], float], every_s: float) -> None:
        self._read, self._every_s = read, every_s
        self._service, self._before = 0, 0.0

    def expect(self, number: int) -> None:
        """Another value is what is waited for."""
        self._service, self._before = number, self._read(number)

    def other(self) -> float:
        """The other value."""
        deadline_s = time.monotonic() + PATIENCE_S
        while (value := self._read(self._service)) == self._before:
            if time.monotonic() > deadline_s:
                raise SystemExit(f"no change came: {value:g} is what it was before")
            time.sleep(self._every_s)
        return value

    def wait(self) -> float:
        """When the value was another one."""
        self.other()
        return time.monotonic()


class _Sync(_Number):
    """The time at which kdns says it was done."""

    def wait(self) -> float:
        """The same as monotonic time."""
        return self.other() - time.time() + time.monotonic()


def transactions(table: str) -> Arrivals:
    """Transactions on a table of nftables."""

    @contextmanager
    def opened() -> Iterator[Arrival]:
        made = _Transaction(table)
        with made.socket:
            yield made

    return opened


@contextmanager
def legacy_tables() -> Iterator[Arrival]:
    """The size of iptables-legacy's table nat."""
    yield _Number(lambda _: legacy_size("IPv4", "nat")[0], 0.0002)


@contextmanager
def destinations() -> Iterator[Arrival]:
    """How many destinations of the virtual server take connections."""
    with ipvs() as kernel:
        yield _Number(
            lambda n: sum(
                destination.weight > 0 for destination in kernel.destinations(VirtualServerKey(*front(n))).values()
            ),
            0.0002,
        )


@contextmanager
def syncs() -> Iterator[Arrival]:
    """kdns's own word."""
    yield _Sync(lambda _: metric("kubeproxy_sync_proxy_rules_last_timestamp_seconds"), 0.05)
