"""A link keeps the order of messages, never waits, and handles what was sent before the other side ended."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from fake_api import until

from kdns.dnsserver.io.workers.link import BUFFER_BYTES, QUEUE_BYTES, Link
from kdns.dnsserver.io.workers.messages import BATCH_BYTES, Clear, Detach, Message, Tail

LONG = bytes(BATCH_BYTES - 100)


@dataclass
class Side:
    """What one end has received, in order."""

    got: list[object] = field(default_factory=list)
    fds: list[int] = field(default_factory=list)

    def receive(self, message: Message, fd: int) -> None:
        self.got.append(message)
        if fd != -1:
            self.fds.append(fd)

    def ended(self) -> None:
        self.got.append("ended")

    def drained(self) -> None:
        self.got.append("drained")


@contextmanager
def pair() -> Iterator[tuple[Link, Side, socket.socket]]:
    """A link, what it has received, and the bare other end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    side = Side()
    link = Link(ours, side.receive, ended=side.ended, drained=side.drained)
    with theirs:
        yield link, side, theirs
        link.close()


async def test_messages_arrive_in_order_in_few_batches() -> None:
    with pair() as (link, _, theirs):
        other = Side()
        reader = Link(theirs, other.receive, ended=other.ended)
        sent = [Detach(number) for number in range(5000)]
        for message in sent:
            link.send(message)
        await until(lambda: len(other.got) == len(sent))
        assert other.got == sent
        link.close()
        await until(lambda: other.got[-1] == "ended")
        assert not reader.is_open


async def test_a_descriptor_comes_with_its_message() -> None:
    with pair() as (link, _, theirs), socket.socket() as passed:
        other = Side()
        reader = Link(theirs, other.receive, ended=other.ended)
        link.send(Detach(1))
        link.send(Detach(2), passed.fileno())
        link.send(Detach(3))
        await until(lambda: len(other.got) == 3)
        (fd,) = other.fds
        assert (other.got, os.fstat(fd).st_ino) == ([Detach(1), Detach(2), Detach(3)], os.fstat(passed.fileno()).st_ino)
        os.close(fd)
        reader.close()


async def test_a_side_that_does_not_read_makes_the_queue_full_and_nothing_waits() -> None:
    with pair() as (link, side, theirs):
        count = 0
        while not link.is_full:
            link.send(Tail(1, count, LONG))
            link.flush()
            count += 1
        was_blocked = link.is_blocked
        assert was_blocked
        assert QUEUE_BYTES < count * BATCH_BYTES < QUEUE_BYTES + 4 * BUFFER_BYTES
        link.send(Clear(1))
        other = Side()
        reader = Link(theirs, other.receive, ended=other.ended)
        await until(lambda: other.got[-1:] == [Clear(1)])
        assert [message.number for message in other.got if isinstance(message, Tail)] == list(range(count))
        await until(lambda: "drained" in side.got)
        assert (link.is_full, link.is_blocked) == (False, False)
        reader.close()


async def test_messages_of_a_side_that_has_ended_are_handled_first() -> None:
    with pair() as (link, side, theirs):
        writer = Link(theirs, Side().receive, ended=lambda: None)
        for number in range(200):
            writer.send(Detach(number))
        writer.flush()
        writer.close()
        await until(lambda: side.got[-1:] == ["ended"])
        assert side.got[:-1] == [Detach(number) for number in range(200)]
        assert not link.is_open
        link.send(Detach(1))  # is ignored


@pytest.mark.parametrize("reads_first", [True, False])
async def test_closing_handles_what_has_come(reads_first: bool) -> None:
    with pair() as (link, side, theirs):
        writer = Link(theirs, Side().receive, ended=lambda: None)
        writer.send(Detach(1))
        writer.flush()
        if reads_first:
            await until(lambda: side.got == [Detach(1)])
        link.close()
        assert side.got == [Detach(1)]
        await asyncio.sleep(0)
        writer.close()
