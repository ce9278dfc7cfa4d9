"""The answer table: a plain query's bytes to its answer's bytes, one dict look-up on the hot path.

The key is the packet behind its id, with letters of the name in lower case: header, question and a bare OPT. So the
key holds everything an answer depends on. A packet that differs in anything else misses and is read with care.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Final

from kdns.dns.answer import Answer, ResponseKind
from kdns.dns.response import EVERYTHING, Reuse, Subject

MAX_TABLE_BYTES: Final = 64 << 20
"""Memory that a table's answers may take, about; arbitrary questions cannot make it larger."""

_QUESTION_TAIL: Final = 4
_OPT_TAIL: Final = 15  # qtype, qclass and an OPT without options

MAX_KINDS: Final = 10_000
"""Kinds of responses that are counted with their exact sizes."""


def key_of(packet: bytes) -> bytes:
    """The table's key for a packet; only the name's letters change case, never the type's or the class's bytes."""
    cut = -_OPT_TAIL if packet[11] else -_QUESTION_TAIL
    return packet[2:cut].lower() + packet[cut:]


class ResponseCounts:
    """How often responses of each kind were sent, by those that are in no table.

    Beyond MAX_KINDS a new kind's sizes are rounded up to powers of two: padded packets cannot make the counts many.
    """

    __slots__ = ("by_kind",)

    def __init__(self) -> None:
        self.by_kind: dict[ResponseKind, int] = {}

    def add(self, kind: ResponseKind, times: int = 1) -> None:
        """Count responses of one kind."""
        if len(self.by_kind) >= MAX_KINDS and kind not in self.by_kind:
            request_bytes, response_bytes = _power_of_two(kind.request_bytes), _power_of_two(kind.response_bytes)
            kind = kind._replace(request_bytes=request_bytes, response_bytes=response_bytes)
        if times:
            self.by_kind[kind] = self.by_kind.get(kind, 0) + times


def _power_of_two(size_bytes: int) -> int:
    """The smallest power of two that is not below."""
    return 1 << (size_bytes - 1).bit_length()


class Lane:
    """The answers for one transport and address family; `answers` is the hot path's dict."""

    def __init__(self, transport: str, family: int) -> None:
        self.transport = transport
        self.family = family
        self.answers: dict[bytes, Answer] = {}
        self.is_stream = transport != "udp"
        self.counts = ResponseCounts()

    def totals(self) -> Iterable[tuple[ResponseKind, int]]:
        """How often each kind of response was sent since the start, from the table and not."""
        totals = dict(self.counts.by_kind)
        for answer in self.answers.values():
            if answer.hits:
                totals[answer.kind] = totals.get(answer.kind, 0) + answer.hits
        return totals.items()


class AnswerTable:
    """The answers of one server, by lane, and which subjects they depend on; about `max_bytes` of them.

    `epoch` counts what was forgotten: an answer whose making began in another epoch may be stale.
    `next_expiry_s` is when `expire` has something to do, or earlier.
    """

    def __init__(self) -> None:
        self.max_bytes = MAX_TABLE_BYTES
        self.lanes: dict[tuple[str, int], Lane] = {}
        self.epoch = 0
        self.next_expiry_s = inf
        self._entries: dict[Subject, dict[tuple[Lane, bytes], None]] = {}
        self._expiries: list[tuple[float, int, Lane, bytes, Answer]] = []
        self._order = count()
        self._size_bytes = 0

    def lane(self, transport: str, family: int) -> Lane:
        """The lane of a transport ("udp", "tcp", …) and family (4 or 6)."""
        return self.lanes.setdefault((transport, family), Lane(transport, family))

    def remember(self, lane: Lane, key: bytes, answer: Answer, reuse: Reuse) -> None:
        """Keep an answer until one of its subjects is touched or it expires; a full table starts afresh."""
        if self._size_bytes > self.max_bytes:
            self.clear()
        if key in lane.answers:  # two queries were answered at the same time
            self._remove(lane, key)
        answer.size_bytes += sum(map(len, answer.bodies)) + len(key)
        self._size_bytes += answer.size_bytes
        lane.answers[key] = answer
        subjects = reuse.subjects
        if len(subjects) > 1:
            subjects = tuple(dict.fromkeys(subjects))
        entry = (lane, key)
        for subject in subjects:
            entries = self._entries.get(subject)
            if entries is None:
                self._entries[subject] = {entry: None}
            else:
                entries[entry] = None
        answer.subjects = subjects
        if reuse.expires_s is not None:
            answer.expires_s = reuse.expires_s
            heappush(self._expiries, (reuse.expires_s, next(self._order), lane, key, answer))
            self.next_expiry_s = self._expiries[0][0]

    def forget(self, subjects: Iterable[Subject]) -> None:
        """Drop every answer that depends on one of these subjects."""
        self.epoch += 1
        for subject in subjects:
            if subject == EVERYTHING:
                self.clear()
            for lane, key in tuple(self._entries.get(subject, ())):
                self._remove(lane, key)

    def expire(self, now_s: float) -> None:
        """Drop every answer whose time has come."""
        expiries = self._expiries
        while expiries and expiries[0][0] <= now_s:
            _, _, lane, key, answer = heappop(expiries)
            if lane.answers.get(key) is answer:
                self._remove(lane, key)
        self.next_expiry_s = expiries[0][0] if expiries else inf

    def _remove(self, lane: Lane, key: bytes) -> None:
        answer = lane.answers.pop(key)
        self._size_bytes -= answer.size_bytes
        lane.counts.add(answer.kind, answer.hits)
        for subject in answer.subjects:
            entries = self._entries[subject]
            del entries[lane, key]
            if not entries:
                del self._entries[subject]

    def clear(self) -> None:
        """Drop every answer."""
        self.epoch += 1
        for lane in self.lanes.values():
            for answer in lane.answers.values():
                lane.counts.add(answer.kind, answer.hits)
            lane.answers.clear()
        self._entries.clear()
        self._expiries.clear()
        self.next_expiry_s = inf
        self._size_bytes = 0

    def __len__(self) -> int:
        return sum(len(lane.answers) for lane in self.lanes.values())
