"""What the monitor of transactions makes of the kernel's messages, however many there are."""
# ruff: noqa: SLF001 - the test plays the kernel and the event loop

import errno
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from kdns.netlink.io.transactions import TransactionMonitor
from kdns.netlink.protocol import attribute
from kdns.netlink.transactions import changes_table

NEW_RULE, NEW_GENERATION = 10 << 8 | 6, 10 << 8 | 15
TABLE_NAME, GENERATION_PID, GENERATION_NAME = 1, 2, 3


def message(kind: int, *attributes: tuple[int, bytes], port: int = 7) -> bytes:
    body = bytes(4) + b"".join(attribute(*row) for row in attributes)
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, port) + body


def transaction(table: bytes = b"kdns", name: bytes = b"nft", port: int = 7) -> bytes:
    who = (GENERATION_PID, port.to_bytes(4, "big")), (GENERATION_NAME, name + b"\0")
    return message(NEW_RULE, (TABLE_NAME, table + b"\0"), port=port) + message(NEW_GENERATION, *who, port=port)


def end(name: bytes = b"nft") -> bytes:
    """All that the socket's filter leaves of a transaction that begins in another table."""
    return transaction(name=name)[len(message(NEW_RULE, (TABLE_NAME, b"kdns\0"))) :]


def cut() -> bytes:
    """The part of a transaction before its end."""
    return message(NEW_RULE, (TABLE_NAME, b"kdns\0"))


LOOK = "look"
BURST = 64
"""Datagrams that are read at once."""


class Queue:
    """In place of the socket."""

    def __init__(self, packets: Iterator[bytes | OSError]) -> None:
        self.packets, self.reads = packets, 0
        self.filters: list[int] = []

    def setsockopt(self, _level: int, _option: int, program: bytes) -> None:
        self.filters.append(struct.unpack("HP", program)[0])

    def recv(self, _most: int) -> bytes:
        self.reads += 1
        found = next(self.packets, BlockingIOError())
        if isinstance(found, OSError):
            raise found
        return found


def monitor(
    packets: list[bytes | OSError] | Iterator[bytes | OSError], table: str = "kdns"
) -> tuple[Any, Queue, list[str]]:
    said: list[str] = []
    opened: Any = TransactionMonitor(changes_table("kdns"), [], said.append, lambda: said.append(LOOK), table=table)
    opened._socket = queue = Queue(iter(packets))
    return opened, queue, said


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
    opened, _, said = monitor(packets)
    opened.readable()
    assert said == wanted


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
    opened, queue, said = monitor([*before, BlockingIOError(), *within])
    opened.begin()
    opened.end()
    opened.readable()
    assert said == wanted
    assert next(queue.packets, None) is None


def test_a_flood_leaves_others_their_turn() -> None:
    def flood() -> Iterator[bytes]:
        while True:
            yield transaction()

    opened, queue, said = monitor(flood())
    opened.readable()
    assert (queue.reads, len(said)) == (BURST, 1)
    opened.begin()
    assert queue.reads <= BURST + 4096


def test_own_programs_are_known_by_their_ports() -> None:
    opened, queue, said = monitor([], table="")

    def arrive(port: int) -> None:
        queue.packets = iter([transaction(port=port)])
        opened.readable()

    arrive(5)
    assert said == ["by nft (process 5)"]
    opened.begin()
    arrive(70)  # it may be the program that is being started
    assert said[1:] == []
    opened.own(70)
    opened.end(is_known=True)
    arrive(70)
    arrive(6)
    assert said[1:] == ["by nft (process 6)"]
    queue.packets = iter([transaction(port=70)])
    opened.read_all()
    opened.not_own(70)
    assert said[2:] == []
    arrive(70)  # another process has that id now
    assert said[2:] == ["by nft (process 70)"]
    opened.begin()
    arrive(8)
    opened.end(is_known=True)  # it could not be started
    assert said[3:] == ["by nft (process 8)"]
    queue.packets = iter([transaction(b"others")])
    opened.readable()
    assert said[4:] == []  # without a table others are not looked at
    queue.packets = iter([OSError(errno.ENOBUFS, "lost")])
    opened.readable()
    assert said[4:] == [LOOK]
    assert queue.filters == [4, 1]  # instructions: one port is dropped, and none
