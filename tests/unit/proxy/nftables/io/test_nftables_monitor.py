"""What the monitor of kdns's tables makes of the kernel's messages, however many there are."""
# ruff: noqa: SLF001 - the test plays the kernel and the event loop

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from kdns.netlink.io.transactions import TransactionSocket
from kdns.netlink.protocol import attribute
from kdns.netlink.transactions import TransactionReader, changes_table
from kdns.proxy.nftables.io import monitor as nftmonitor
from kdns.proxy.nftables.io.monitor import TablesMonitor
from kdns.proxy.nftables.objects import TABLE

NEW_RULE, NEW_GENERATION = 10 << 8 | 6, 10 << 8 | 15
TABLE_NAME, GENERATION_PID, GENERATION_NAME = 1, 2, 3


def message(kind: int, *attributes: tuple[int, bytes]) -> bytes:
    body = bytes(4) + b"".join(attribute(*each) for each in attributes)
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


def transaction(table: bytes = b"kdns", name: bytes = b"nft") -> bytes:
    who = (GENERATION_PID, (7).to_bytes(4, "big")), (GENERATION_NAME, name + b"\0")
    return message(NEW_RULE, (TABLE_NAME, table + b"\0")) + message(NEW_GENERATION, *who)


def end(name: bytes = b"nft") -> bytes:
    """All that the socket's filter leaves of a transaction that begins in another table."""
    return transaction(name=name)[len(message(NEW_RULE, (TABLE_NAME, b"kdns\0"))) :]


def cut() -> bytes:
    """The part of a transaction before its end."""
    return message(NEW_RULE, (TABLE_NAME, b"kdns\0"))


LOOK = "look"


class Queue:
    """In place of the socket."""

    def __init__(self, packets: Iterator[bytes | OSError]) -> None:
        self.packets, self.reads = packets, 0

    def recv(self, _most: int) -> bytes:
        self.reads += 1
        found = next(self.packets, BlockingIOError())
        if isinstance(found, OSError):
            raise found
        return found


def monitor(packets: list[bytes | OSError] | Iterator[bytes | OSError]) -> tuple[Any, Queue, list[str]]:
    told: list[str] = []
    made: Any = TablesMonitor(told.append, lambda: told.append(LOOK))
    transactions: Any = TransactionSocket.__new__(TransactionSocket)
    transactions._reader = TransactionReader(changes_table(TABLE))
    transactions.forget()
    transactions._socket = queue = Queue(iter(packets))
    made._socket = transactions
    return made, queue, told


@pytest.mark.parametrize(
    ("packets", "wanted"),
    [
        ([], []),
        ([transaction()], ["by nft (process 7)"]),
        ([transaction(b"others")], [LOOK]),
        ([end(), end()], [LOOK]),
        ([transaction(name=b"one") + transaction(name=b"two")], ["by two (process 7)"]),
        ([transaction(b"others"), transaction(b"kube-proxy"), transaction()], ["by nft (process 7)", LOOK]),
        ([OSError(errno.ENOBUFS, "lost")], [LOOK]),
        ([OSError(errno.ENOBUFS, "lost"), transaction(b"others")], [LOOK]),
        ([OSError(errno.ENOBUFS, "lost"), cut()], ["more changes than could be followed", LOOK]),
        ([cut(), BlockingIOError(), end()], []),
    ],
)
def test_strangers(packets: list[bytes | OSError], wanted: list[str]) -> None:
    """A repair is a full sync: what a neighbour writes into its own tables must not cause one, however much it is."""
    made, _, told = monitor(packets)
    made._readable()
    assert told == wanted


@pytest.mark.parametrize(
    ("before", "within", "wanted"),
    [
        ([], [transaction()], []),
        ([transaction()], [transaction()], ["by nft (process 7)"]),
        ([], [transaction(), transaction()], ["at the same time as kdns itself"]),
        ([transaction(b"others")] * 1000, [transaction()], [LOOK]),
        ([], [transaction(b"others")] * 1000 + [transaction()], [LOOK]),
        ([], [OSError(errno.ENOBUFS, "lost"), transaction()], [LOOK]),
        ([], [OSError(errno.ENOBUFS, "lost"), cut()], [LOOK]),
    ],
)
def test_an_own_transaction(before: list[bytes], within: list[bytes | OSError], wanted: list[str]) -> None:
    """All that is there when it begins is of before, and all that is there when it ends is its own."""
    made, queue, told = monitor([*before, BlockingIOError(), *within])
    made._transaction(True)
    made._transaction(False)
    made._readable()
    assert told == wanted
    assert next(queue.packets, None) is None


def test_a_flood_leaves_others_their_turn() -> None:
    def flood() -> Iterator[bytes]:
        while True:
            yield transaction()

    made, queue, told = monitor(flood())
    made._readable()
    assert (queue.reads, len(told)) == (nftmonitor._BURST, 1)
    made._transaction(True)
    assert queue.reads <= nftmonitor._BURST + nftmonitor._QUEUED
