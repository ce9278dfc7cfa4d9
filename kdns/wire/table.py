"""The answer table: a plain query's bytes to its answer's bytes, one dict look-up on the hot path.

The key is the packet behind its id, with letters of the name in lower case: header, question and a bare OPT. So the
key holds everything an answer depends on. A packet that differs in anything else misses and is read with care.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kdns.records.subjects import NAMESPACES, Subject

MAX_TABLE_BYTES: Final = 64 << 20
"""Memory that a table's answers may take, about; arbitrary questions cannot make it larger."""
ANSWER_BYTES: Final = 500
"""What an answer costs beside its key and bodies, about."""

_QUESTION_TAIL: Final = 4
_OPT_TAIL: Final = 15  # qtype, qclass and an OPT without options

MAX_KINDS: Final = 10_000
"""Kinds of forgotten answers that are counted with their exact sizes."""

COUNTED_TYPES: Final = frozenset((1, 2, 5, 6, 12, 15, 16, 28, 33, 43, 46, 47, 48, 50, 65, 251, 252, 255))
"""Types that are counted one by one, from A and NS to IXFR, AXFR and ANY: those that CoreDNS names in its metrics."""


def counted_type(qtype: int) -> int:
    """The type as it is counted; all others are 0, so that no client can make the counters many."""
    return qtype if qtype in COUNTED_TYPES else 0


class Kept(NamedTuple):
    """What metrics want to know of an answer: all of it is the same each time the answer is sent.

    `qtype` is a `counted_type`.
    """

    zone: str
    qtype: int
    rcode: int
    do: bool
    request_bytes: int
    response_bytes: int


class Answer:
    """A compiled answer: `head` goes behind the id, one of `bodies` behind the question.

    The bodies are one answer with its addresses rotated; `hits` counts uses and picks the next one.
    `subjects` is what it is about, where that is more than one thing.
    """

    __slots__ = ("bodies", "count", "head", "hits", "kept", "question_end", "size_bytes", "subjects")

    def __init__(self, head: bytes, question_end: int, bodies: list[bytes], kept: Kept) -> None:
        self.head = head
        self.question_end = question_end
        self.bodies = bodies
        self.count = len(bodies)
        self.kept = kept
        self.hits = 0
        self.size_bytes = ANSWER_BYTES + sum(map(len, bodies))
        self.subjects: tuple[Subject, ...] = ()

    def wire(self, packet: bytes) -> bytes:
        """The whole response to `packet`, counted."""
        self.hits = hits = self.hits + 1
        body = self.bodies[hits % self.count]
        return packet[:2] + self.head + packet[12 : self.question_end] + body


def key_of(packet: bytes) -> bytes:
    """The table's key for a packet; only the name's letters change case, never the type's or the class's bytes."""
    cut = -_OPT_TAIL if packet[11] else -_QUESTION_TAIL
    return packet[2:cut].lower() + packet[cut:]


@dataclass(slots=True)
class Tally:
    """Answers that were forgotten, and how often they had been sent.

    Beyond MAX_KINDS a new kind's sizes are rounded up to powers of two: padded packets cannot make the counts many.
    """

    counts: dict[Kept, int]

    def add(self, kept: Kept, hits: int) -> None:
        """Remember the hits of an answer that is about to go."""
        if len(self.counts) >= MAX_KINDS and kept not in self.counts:
            kept = kept._replace(
                request_bytes=_power_of_two(kept.request_bytes), response_bytes=_power_of_two(kept.response_bytes)
            )
        if hits:
            self.counts[kept] = self.counts.get(kept, 0) + hits


def _power_of_two(size_bytes: int) -> int:
    """The smallest power of two that is not below."""
    return 1 << (size_bytes - 1).bit_length()


class Lane:
    """The answers for one transport and address family; `answers` is the hot path's dict."""

    def __init__(self, proto: str, family: int) -> None:
        self.proto = proto
        self.family = family
        self.answers: dict[bytes, Answer] = {}
        self.is_stream = proto != "udp"
        self.tally = Tally({})

    def counts(self) -> Iterable[tuple[Kept, int]]:
        """How often each kind of answer was sent since the start."""
        totals = dict(self.tally.counts)
        for answer in self.answers.values():
            if answer.hits:
                totals[answer.kept] = totals.get(answer.kept, 0) + answer.hits
        return totals.items()


class AnswerTable:
    """All answers of one directive, by lane, and which subjects they depend on; about `max_bytes` of them."""

    def __init__(self) -> None:
        self.max_bytes = MAX_TABLE_BYTES
        self.lanes: dict[tuple[str, int], Lane] = {}
        self._keys: dict[Subject, dict[tuple[Lane, bytes], None]] = {}
        self._size_bytes = 0

    def lane(self, proto: str, family: int) -> Lane:
        """The lane of a transport ("udp", "tcp", …) and family (4 or 6)."""
        return self.lanes.setdefault((proto, family), Lane(proto, family))

    def remember(self, lane: Lane, key: bytes, answer: Answer, subjects: Iterable[Subject]) -> None:
        """Keep an answer until one of its subjects is touched; a full table starts afresh."""
        if self._size_bytes > self.max_bytes:
            self.clear()
        self._size_bytes += answer.size_bytes + len(key)
        lane.answers[key] = answer
        about = tuple(subject for subject in dict.fromkeys(subjects) if subject != NAMESPACES)
        answer.subjects = about if len(about) > 1 else ()
        for subject in about:
            self._keys.setdefault(subject, {})[lane, key] = None

    def forget(self, subjects: Iterable[Subject]) -> None:
        """Drop every answer that depends on one of these subjects."""
        for subject in subjects:
            if subject == NAMESPACES:
                self.clear()
            for lane, key in self._keys.pop(subject, ()):
                answer = lane.answers.pop(key, None)
                if answer is not None:
                    self._size_bytes -= answer.size_bytes + len(key)
                    lane.tally.add(answer.kept, answer.hits)
                    for other in answer.subjects:
                        self._unlink(other, (lane, key))

    def _unlink(self, subject: Subject, entry: tuple[Lane, bytes]) -> None:
        """Take an answer that went for another reason out of a subject's list."""
        entries = self._keys.get(subject)
        if entries is not None:
            entries.pop(entry, None)
            if not entries:
                del self._keys[subject]

    def clear(self) -> None:
        """Drop every answer."""
        for lane in self.lanes.values():
            for answer in lane.answers.values():
                lane.tally.add(answer.kept, answer.hits)
            lane.answers.clear()
        self._keys.clear()
        self._size_bytes = 0

    def __len__(self) -> int:
        return sum(len(lane.answers) for lane in self.lanes.values())
