"""The answer table: a plain query's bytes → its answer's bytes, one dict look-up on the hot path.

The key is the packet after its id, with the name in lower case: header, question and an OPT, without hop-by-hop
options. So the key has everything that an answer depends on. Any other packet is a miss and is parsed in full.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from struct import Struct
from typing import Final

from kdns.answers.answer import TTL_BYTES, Answer, ResponseKind
from kdns.answers.padding import is_padded, padded
from kdns.answers.response import EVERYTHING, Reuse, Subject
from kdns.dns.query import BARE_OPT_BYTES, HEADER_BYTES, MAX_MESSAGE_BYTES, Query, read_query

MAX_TABLE_BYTES: Final = 64 << 20
"""The limit of all answers, tables and indexes of the process."""
GENERATIONS: Final = 8
"""Answers that were not used for this many generations are evicted."""
MAX_DEPENDENTS: Final = 4096
"""Up to this many answers of a subject are dropped one by one, in milliseconds; with more, the table is cleared."""
SWEEP_STEPS: Final = 64
"""The most answers that are checked for each new answer while there is room."""

# CPython's overhead beside the bytes themselves, as tests measure it.
_ANSWER_BYTES: Final = 300
"""An answer, its key and its entries in two dicts, on average: dicts grow by doubling."""
_BODY_BYTES: Final = 48
_AGING_BYTES: Final = 48
"""An answer whose TTLs count down, beside 6 bytes for each TTL."""
_SUBJECT_BYTES: Final = 150
"""A subject without its text, which is about half as long as the key."""
_SINGLE_BYTES: Final = 110
"""The only answer of a subject, and its entry in a dict."""
_GROUP_BYTES: Final = 390
"""The dict of several answers of a subject, and its entry in a dict."""

_COUNTS: Final = Struct("!HHH")
_COUNTS_AT: Final = 4
"""The position of the record counts in a head, which begins after the id."""

_SHORTEST_BYTES: Final = HEADER_BYTES + 5
"""A query for the root. A shorter packet has no key: it could equal that of another one."""
_QUESTION_TAIL: Final = -4
_OPT_TAIL: Final = -15  # qtype, qclass and an OPT without options

MAX_KINDS: Final = 10_000
"""The most kinds of responses that are counted with exact sizes."""


def packet_key(packet: bytes) -> bytes:
    """The packet after its id, with the name in lower case; b"" if its answer is never in the table (Query.has_key).

    lower() may also change the header, but only of queries with the bit Z, whose answers are not in the table; to
    lower only the name would take a third longer. Type and class keep their bytes.
    If the OPT has options, the key ends in the OPT's length, without the options; no other key does.
    """
    if len(packet) <= HEADER_BYTES:
        return b""
    cut = _OPT_TAIL if packet[11] else _QUESTION_TAIL
    if packet[11] and (packet[-1] or packet[-2] or len(packet) < _SHORTEST_BYTES):
        query = read_query(packet)
        if not isinstance(query, Query) or not query.has_key:
            return b""
        packet = packet[: query.question_end + BARE_OPT_BYTES]
    return packet[2:cut].lower() + packet[cut:]


class ResponseCounts:
    """Counts of sent responses by kind, beside the `hits` of answers in the table.

    Beyond MAX_KINDS, sizes of new kinds are rounded up to powers of two, so that padded packets cannot make many kinds.
    """

    __slots__ = ("by_kind",)

    def __init__(self) -> None:
        self.by_kind: dict[ResponseKind, int] = {}

    def add(self, kind: ResponseKind, times: int = 1) -> None:
        if len(self.by_kind) >= MAX_KINDS and kind not in self.by_kind:
            request_bytes, response_bytes = _power_of_two(kind.request_bytes), _power_of_two(kind.response_bytes)
            kind = kind._replace(request_bytes=request_bytes, response_bytes=response_bytes)
        if times:
            self.by_kind[kind] = self.by_kind.get(kind, 0) + times


def _power_of_two(size_bytes: int) -> int:
    return 1 << (size_bytes - 1).bit_length()


@dataclass(slots=True, eq=False)
class AnswerIndex:
    """The answers of a partition by key. `clear` starts a new index; the old one is emptied in small steps."""

    partition: Partition
    answers: dict[bytes, Answer] = field(default_factory=dict)


class Partition:
    """The answers for one transport and address family.

    `answers` is the hot path's dict of valid answers; `clear` replaces it. `pads`: the transport is encrypted, so
    responses to padded queries are padded when sent.
    """

    def __init__(self, table: AnswerTable, transport: str, family: int, *, pads: bool = False) -> None:
        self.table = table
        self.pads = pads
        self.transport = transport
        self.family = family
        self.is_stream = transport != "udp"
        self.counts = ResponseCounts()
        self.index = AnswerIndex(self)
        self.indexes = [self.index]
        self.answers = self.index.answers

    def wire(self, answer: Answer, packet: bytes, limit_bytes: int = MAX_MESSAGE_BYTES) -> bytes:
        """Counts a hit. On an encrypted transport padded if the query is (RFC 7830 §4)."""
        wire = answer.wire(packet)
        return padded(wire, limit_bytes) if self.pads and is_padded(packet, answer.question_end) else wire

    def totals(self) -> Iterable[tuple[ResponseKind, int]]:
        """Sent responses of each kind since the start; brings tallies up to date."""
        for index in self.indexes:
            for answer in index.answers.values():
                self.count(answer)
        return self.counts.by_kind.items()

    def count(self, answer: Answer) -> None:
        uses = answer.hits - answer.counted
        if uses:
            self.counts.add(answer.kind, uses)
            answer.counted = answer.hits
            for tally in answer.tallies:
                tally.count += uses

    def clear(self) -> None:
        self.index = AnswerIndex(self)
        self.answers = self.index.answers
        self.indexes = [index for index in self.indexes if index.answers] + [self.index]


class Generations:
    """The answers of all tables of a process, oldest first, within `max_bytes`.

    When memory is short, the oldest generation is emptied: answers that were used since they were added to it move to
    the youngest one (second chance), others are dropped; a few for each new answer.
    """

    def __init__(self, max_bytes: int = MAX_TABLE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.size_bytes = 0
        self._by_number: dict[int, dict[Answer, AnswerIndex]] = {0: {}}
        self._youngest = 0
        self._youngest_bytes = 0

    def add(self, answer: Answer, index: AnswerIndex) -> None:
        if self._youngest_bytes * GENERATIONS >= self.max_bytes:
            self._youngest += 1
            self._youngest_bytes = 0
            self._by_number[self._youngest] = {}
        answer.generation = self._youngest
        self._by_number[self._youngest][answer] = index
        self._youngest_bytes += answer.weight_bytes

    def remove(self, answer: Answer) -> AnswerIndex:
        """Returns the index that still has the answer."""
        return self._by_number[answer.generation].pop(answer)

    def count(self, answer: Answer) -> None:
        self._by_number[answer.generation][answer].partition.count(answer)

    def sweep(self) -> None:
        """Makes room, and empties generations that are too old."""
        if self.size_bytes <= self.max_bytes and len(self._by_number) <= GENERATIONS + 1:
            return
        for step in count():
            has_room = self.size_bytes <= self.max_bytes
            if has_room and (step >= SWEEP_STEPS or len(self._by_number) <= GENERATIONS + 1):
                return
            number, oldest = next(iter(self._by_number.items()))
            if not oldest:
                if number == self._youngest:
                    return
                del self._by_number[number]
                continue
            answer, index = oldest.popitem()
            if answer.hits != answer.counted and step < SWEEP_STEPS and index is index.partition.index:
                index.partition.count(answer)
                self.add(answer, index)
            else:
                index.partition.table.unlink(answer, index)


class AnswerTable:
    """The answers of one server, by partition, and the subjects on which they depend.

    `epoch` counts invalidations: an answer whose chain began in an earlier epoch may be stale. An expired answer is not
    used, but stays until it is replaced or evicted.
    """

    def __init__(self, generations: Generations | None = None) -> None:
        self.generations = generations or Generations()
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.epoch = 0
        self._dependents: dict[Subject, tuple[Answer] | dict[Answer, None]] = {}

    def partition(self, transport: str, family: int, *, pads: bool = False) -> Partition:
        """For a transport ("udp", "tcp", "quic") and family (4 or 6); `pads`: the transport is encrypted.

        The streams of one server are all encrypted, or none is.
        """
        key = (transport, family)
        if key not in self.partitions:
            self.partitions[key] = Partition(self, transport, family, pads=pads)
        return self.partitions[key]

    def remember(self, partition: Partition, key: bytes, answer: Answer, reuse: Reuse) -> None:
        if key in partition.answers:  # two queries were answered at the same time
            self._drop(partition.answers[key])
        answer.key = key
        subjects = reuse.subjects
        answer.subjects = subjects = tuple(dict.fromkeys(subjects)) if len(subjects) > 1 else subjects
        answer.weight_bytes = weight_of(answer)
        partition.answers[key] = answer
        self.generations.size_bytes += answer.weight_bytes
        self.generations.add(answer, partition.index)
        for subject in subjects:
            group = self._dependents.get(subject)
            if group is None:
                self._dependents[subject] = (answer,)
                self.generations.size_bytes += _SINGLE_BYTES
            elif isinstance(group, dict):
                group[answer] = None
            else:
                self._dependents[subject] = {group[0]: None, answer: None}
                self.generations.size_bytes += _GROUP_BYTES - _SINGLE_BYTES
        if reuse.expires_s is not None:
            answer.expires_s = reuse.expires_s
            answer.until_s = min(answer.until_s, reuse.expires_s)
        self.generations.sweep()

    def forget(self, subjects: Iterable[Subject]) -> None:
        self.epoch += 1
        for subject in subjects:
            if subject == EVERYTHING:
                self.clear()
            dependents = self._dependents.get(subject, ())
            if len(dependents) > MAX_DEPENDENTS:
                self.clear()
                del self._dependents[subject]
                self.generations.size_bytes -= _GROUP_BYTES
            else:
                for answer in tuple(dependents):
                    self._drop(answer)

    def settle(self, subject: Subject) -> None:
        """Counts the hits so far of answers that depend on a subject, so that their tallies are exact."""
        for answer in self._dependents.get(subject, ()):
            self.generations.count(answer)

    def clear(self) -> None:
        """Drops all answers at once. Their memory is freed in small steps with later answers."""
        self.epoch += 1
        for partition in self.partitions.values():
            partition.clear()

    def unlink(self, answer: Answer, index: AnswerIndex) -> None:
        partition = index.partition
        partition.count(answer)
        del index.answers[answer.key]
        if not index.answers and index is not partition.index:
            partition.indexes.remove(index)
        self.generations.size_bytes -= answer.weight_bytes
        for subject in answer.subjects:
            group = self._dependents.get(subject, ())  # a group of too many was forgotten as a whole
            if isinstance(group, dict):
                if group.pop(answer, self) is None and not group:
                    del self._dependents[subject]
                    self.generations.size_bytes -= _GROUP_BYTES
            elif group and group[0] is answer:
                del self._dependents[subject]
                self.generations.size_bytes -= _SINGLE_BYTES

    def _drop(self, answer: Answer) -> None:
        self.unlink(answer, self.generations.remove(answer))

    def __len__(self) -> int:
        return sum(len(partition.answers) for partition in self.partitions.values())


def weight_of(answer: Answer) -> int:
    """The memory of an answer in the table, within a few percent, without bodies that are shared with others."""
    key_bytes, subjects, bodies = len(answer.key), len(answer.subjects), answer.bodies
    weight_bytes = _ANSWER_BYTES + key_bytes + subjects * (_SUBJECT_BYTES + key_bytes // 2)
    if answer.aged_from_s is not None:
        weight_bytes += _AGING_BYTES + TTL_BYTES * sum(_COUNTS.unpack_from(answer.head, _COUNTS_AT))
    if isinstance(bodies, tuple):
        weight_bytes += sum(map(len, bodies)) + len(bodies) * _BODY_BYTES
    return weight_bytes
