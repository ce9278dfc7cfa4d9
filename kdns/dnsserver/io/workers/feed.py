"""The server's side of a worker's copies: which messages follow from what happens to the answer tables."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from kdns.dnsserver.answers.answer import Answer
from kdns.dnsserver.answers.response import Subject
from kdns.dnsserver.io.workers.messages import (
    ITEMS,
    MESSAGE_BYTES,
    Clear,
    Forget,
    Keep,
    Message,
    Report,
    Tail,
    framed,
)
from kdns.tally import Tally


class Sender(Protocol):
    """Sends messages in order: see kdns.dnsserver.io.workers.link.Link."""

    @property
    def is_full(self) -> bool:
        """Whether as much waits as may wait."""
        ...

    def send(self, message: Message) -> None:
        """Queues a message."""
        ...

    def send_frame(self, frame: bytes) -> None:
        """Queues an encoded message."""
        ...


@dataclass(slots=True)
class SharedTail:
    """A list of bodies that negative answers share, and what a worker knows of it."""

    number: int
    bodies: list[bytes]
    sent: bytes


class Feed:
    """The messages to one running worker: copies of answers and what they depend on, in the order of the events."""

    def __init__(self, link: Sender) -> None:
        self._link = link
        self._tails: dict[int, dict[int, SharedTail]] = {}
        """By server, and the identity of the list."""
        self._tallies: dict[int, tuple[Tally, ...]] = {}
        self._tally_numbers: dict[tuple[Tally, ...], int] = {}
        self._copies: dict[int, int] = {}
        """The number of copies with these tallies."""
        self._last_number = 0
        self._overflowed: set[int] = set()
        """Servers whose copies are all dropped at the end of the queue, because it was full."""

    def keep(self, server: int, family: int, answer: Answer) -> None:
        """Sends a copy of an answer, unless too much waits to be sent."""
        if self._link.is_full or server in self._overflowed:
            return
        tail, bodies = 0, answer.bodies
        if isinstance(bodies, list):
            tail, bodies = self._tail(server, bodies), ()
        tallies = self._number_of(answer.tallies) if answer.tallies else 0
        frame = framed(
            Keep(
                server,
                family,
                answer.key,
                answer.head,
                answer.question_end,
                bodies,
                tail,
                answer.kind,
                answer.hits,
                tallies,
                answer.until_s,
                answer.aged_from_s,
                answer.ttls,
                answer.expires_s,
                tuple(map(hash, answer.subjects)),
            )
        )
        if len(frame) <= MESSAGE_BYTES:
            self._link.send_frame(frame)
            self._count_copies(tallies, 1)
        else:
            self._count_copies(tallies, 0)

    def forget(self, server: int, subjects: Collection[Subject]) -> None:
        """Drops the copies that depend on these subjects; all of them, if too much waits to be sent."""
        if server in self._overflowed:
            return
        if self._link.is_full:
            self.clear(server)
            self._overflowed.add(server)
            return
        for tail in self._tails.get(server, {}).values():
            self._renew(server, tail)
        hashes = tuple(map(hash, subjects))
        for at in range(0, len(hashes), ITEMS):
            self._link.send(Forget(server, hashes[at : at + ITEMS]))

    def clear(self, server: int) -> None:
        """Drops all copies of a server's answers."""
        if server not in self._overflowed:
            self._tails.pop(server, None)
            self._link.send(Clear(server))

    def drained(self) -> None:
        """Sends copies again after the queue was full."""
        self._overflowed.clear()

    def add_uses(self, report: Report) -> None:
        """Adds the uses of copies to their tallies."""
        for number, uses in report.uses.items():
            for tally in self._tallies[number]:
                tally.count += uses
        for number, times in report.dropped.items():
            self._count_copies(number, -times)

    def _count_copies(self, tallies: int, change: int) -> None:
        """Changes the number of copies with these tallies, which lose their number with the last one; 0: no tallies."""
        if tallies:
            self._copies[tallies] += change
            if not self._copies[tallies]:
                del self._copies[tallies], self._tally_numbers[self._tallies.pop(tallies)]

    def _tail(self, server: int, bodies: list[bytes]) -> int:
        """Returns the number of a shared tail, whose bytes the worker has."""
        tails = self._tails.setdefault(server, {})
        tail = tails.get(id(bodies))
        if tail is None:
            self._last_number += 1
            tail = tails[id(bodies)] = SharedTail(self._last_number, bodies, b"")
        self._renew(server, tail)
        return tail.number

    def _renew(self, server: int, tail: SharedTail) -> None:
        if tail.sent is not tail.bodies[0]:
            tail.sent = tail.bodies[0]
            self._link.send(Tail(server, tail.number, tail.sent))

    def _number_of(self, tallies: tuple[Tally, ...]) -> int:
        number = self._tally_numbers.get(tallies)
        if number is None:
            self._last_number = number = self._last_number + 1
            self._tally_numbers[tallies] = number
            self._tallies[number] = tallies
            self._copies[number] = 0
        return number
