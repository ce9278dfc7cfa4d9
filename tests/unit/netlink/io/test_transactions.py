"""What the monitor of transactions makes of the kernel's messages, however many there are."""
# ruff: noqa: SLF001 - the test plays the kernel and the event loop

import errno
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from kdns.netlink.io import transactions
from kdns.netlink.io.transactions import TransactionMonitor, own, own_program
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


@pytest.fixture(autouse=True)
def own_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "_own_ports", set())


def monitor(
    packets: list[bytes | OSError] | Iterator[bytes | OSError], table: str = "kdns"
) -> tuple[Any, Queue, list[str]]:
    said: list[str] = []
    opened: Any = TransactionMonitor(changes_table("kdns"), said.append, lambda: said.append(LOOK), table=table)
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


def test_a_flood_leaves_others_their_turn() -> None:
    def flood() -> Iterator[bytes]:
        while True:
            yield transaction()

    opened, queue, said = monitor(flood())
    opened.readable()
    assert (queue.reads, len(said)) == (BURST, 1)
    opened.read_all()
    assert queue.reads <= BURST + 4096


def test_own_programs_are_known_by_their_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, queue, said = monitor([], table="")
    monkeypatch.setattr(transactions, "_monitors", [opened])

    def arrive(*packets: bytes | OSError) -> None:
        queue.packets = iter(packets)
        opened.readable()

    arrive(transaction(port=5))
    assert said == ["by nft (process 5)"]
    with own_program() as started:
        arrive(transaction(port=70))  # it may be the program that is being started
        arrive(OSError(errno.ENOBUFS, "lost"), cut())
        assert said[1:] == []
        started(70)
        assert said[1:] == [LOOK]
        arrive(transaction(port=70))
        arrive(transaction(port=6))
        assert said[2:] == ["by nft (process 6)"]
        queue.packets = iter([transaction(port=70)])  # it is read before the port is free
    assert said[3:] == []
    arrive(transaction(port=70))  # another process has that id now
    assert said[3:] == ["by nft (process 70)"]
    with own_program():
        arrive(transaction(port=8))  # it could not be started
        assert said[4:] == []
    assert said[4:] == ["by nft (process 8)"]
    arrive(transaction(b"others"))
    assert said[5:] == []  # without a table others are not looked at
    arrive(OSError(errno.ENOBUFS, "lost"))
    assert said[5:] == [LOOK]
    assert queue.filters == [4, 1]  # instructions: one port is dropped, and none


def test_a_port_that_is_own_before_a_monitor_listens() -> None:
    own(70)
    opened, _, said = monitor([transaction(port=70), transaction(port=71)])
    opened.readable()
    assert said == ["by nft (process 71)"]
