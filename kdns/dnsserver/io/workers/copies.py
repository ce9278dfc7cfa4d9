"""A worker's copies of answers, and the counts of their uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from math import inf
from typing import TypeVar, assert_never

from kdns.dnsserver.answers.answer import Answer, response_kind
from kdns.dnsserver.answers.response import Reuse
from kdns.dnsserver.answers.table import AnswerIndex, AnswerTable, Generations, Partition
from kdns.dnsserver.io.workers.messages import ITEMS, Clear, Forget, Keep, KindCount, Report, Tail
from kdns.tally import Tally

T = TypeVar("T")

_head = lru_cache(1024)(bytes)
"""Makes equal heads one object, as in the server: a look-up touches less memory."""


class CopyTable(AnswerTable):
    """The copies of one server's answers; `dropped` gets each copy that is not kept any more, counted."""

    def __init__(self, generations: Generations, dropped: Callable[[Answer], None]) -> None:
        super().__init__(generations)
        self._dropped = dropped

    def unlink(self, answer: Answer, index: AnswerIndex) -> None:
        """See AnswerTable."""
        super().unlink(answer, index)
        self._dropped(answer)


class NumberedTally(Tally):
    """The tallies of answers in the server's process, by their number; `answers` is the number of copies with them."""

    __slots__ = ("answers", "number")

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.answers = 0


class AnswerCopies:
    """The copies of all servers, by their numbers; they use as much memory as the answer tables of the server may."""

    def __init__(self) -> None:
        self._generations = Generations()
        self._tables: dict[int, CopyTable] = {}
        self._tails: dict[int, dict[int, list[bytes]]] = {}
        self._tallies: dict[int, NumberedTally] = {}
        self._dropped = Counter[int]()

    def partition(self, server: int, family: int) -> Partition:
        """Returns the partition of a server for queries over UDP."""
        return self._table(server).partition("udp", family)

    def apply(self, message: Keep | Forget | Tail | Clear) -> None:
        """Keeps or drops copies."""
        match message:
            case Keep():
                self._keep(message)
            case Forget(server, subjects):
                self._table(server).forget(subjects)
            case Tail(server, number, body):
                self._tails.setdefault(server, {}).setdefault(number, [b""])[0] = body
            case Clear(server):
                self._tails.pop(server, None)
                self._table(server).clear()
            case _:
                assert_never(message)

    def used(self) -> list[tuple[Answer, Partition]]:
        """Returns the copies that were used since they were counted, with their partitions."""
        indexes = (
            index
            for table in self._tables.values()
            for partition in table.partitions.values()
            for index in partition.indexes
        )
        return [
            (answer, index.partition)
            for index in indexes
            for answer in index.answers.values()
            if answer.hits != answer.counted
        ]

    def reports(self) -> Iterator[Report]:
        """Yields what was counted since the last call, and begins new counts; dropped copies come last."""
        for server, table in self._tables.items():
            for (_, family), partition in table.partitions.items():
                kinds = partition.counts.by_kind
                for part in _parts(kinds.items()):
                    yield Report(kinds=tuple(KindCount(server, family, kind, times) for kind, times in part))
                kinds.clear()
        for tallies in _parts(self._tallies.values()):
            yield Report(uses={tally.number: tally.count for tally in tallies if tally.count})
            for tally in tallies:
                tally.count = 0
                if not tally.answers:
                    del self._tallies[tally.number]
        for dropped in _parts(self._dropped.items()):
            yield Report(dropped=dict(dropped))
        self._dropped.clear()

    def _table(self, server: int) -> CopyTable:
        if server not in self._tables:
            self._tables[server] = CopyTable(self._generations, self._drop)
        return self._tables[server]

    def _keep(self, message: Keep) -> None:
        """Keeps a copy, whose uses continue those of the answer."""
        tally = self._tallies.setdefault(message.tallies, NumberedTally(message.tallies)) if message.tallies else None
        if tally:
            tally.answers += 1
        answer = Answer(
            _head(message.head),
            message.question_end,
            self._tails[message.server][message.tail] if message.tail else message.bodies,
            response_kind(*message.kind),
            message.hits,
            (tally,) if tally else (),
            inf if message.until_s == inf else message.until_s,  # one object for all, as in the server
            message.aged_from_s,
            message.ttls,
            counted=message.hits,
        )
        reuse = Reuse(message.subjects, None if message.expires_s == inf else message.expires_s)
        self._table(message.server).remember(self.partition(message.server, message.family), message.key, answer, reuse)

    def _drop(self, answer: Answer) -> None:
        for tally in answer.tallies:
            if isinstance(tally, NumberedTally):
                tally.answers -= 1
                self._dropped[tally.number] += 1


def _parts(items: Collection[T]) -> Iterator[list[T]]:
    """Yields the items in lists that fit into one message."""
    every = list(items)
    return (every[at : at + ITEMS] for at in range(0, len(every), ITEMS))
