"""What a watcher sees: every commit becomes at most one event, judged against the watcher's selectors.

Events come in commit order and are queued at the commit itself, so nothing can slip between a write and its watchers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import msgspec

from kdns.cluster import selectors
from kdns.cluster.objects import Key
from kdns.cluster.selectors import Selector
from kdns.controlplane import fields
from kdns.controlplane.fields import FieldSelector
from kdns.controlplane.kinds import Json, Kind

QUEUE_BYTES = 64 * 1024 * 1024


class Stored:
    """One version of one object: shared by everybody who reads it, so nobody may change `obj`.

    `encoded` is `obj` as JSON; it is written to disk, lists, answers and watches as it is. `obj` is decoded from it
    when it is asked for: few of the objects of a restart, and hardly any of those in history, ever are.
    """

    __slots__ = ("_obj", "encoded", "key", "kind", "revision")

    def __init__(self, kind: Kind, key: Key, revision: int, obj: Json | None, encoded: bytes) -> None:
        self.kind, self.key, self.revision, self._obj, self.encoded = kind, key, revision, obj, encoded

    @property
    def obj(self) -> Json:
        """The object."""
        if self._obj is None:
            self._obj = msgspec.json.decode(self.encoded)
        return self._obj

    @property
    def is_decoded(self) -> bool:
        """Whether `obj` is at hand."""
        return self._obj is not None

    def rest(self) -> None:
        """Keep the bytes only, until somebody asks for `obj` again."""
        self._obj = None

    def at(self, revision: int) -> Stored:
        """The same content under another resourceVersion."""
        return stored(self.kind, self.key, self.obj, revision)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stored):
            return NotImplemented
        mine, theirs = (self.kind, self.key, self.revision), (other.kind, other.key, other.revision)
        return mine == theirs and self.encoded == other.encoded

    def __hash__(self) -> int:
        return hash((self.kind, self.key, self.revision))

    def __repr__(self) -> str:
        return f"Stored({self.kind.kind}, {self.key}, {self.revision})"


def stored(kind: Kind, key: Key, obj: Json, revision: int) -> Stored:
    """`obj` with its resourceVersion set, encoded once; top-level values below metadata are shared, not copied."""
    versioned = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}
    return Stored(kind, key, revision, versioned, msgspec.json.encode(versioned))


@dataclass(frozen=True, slots=True, eq=False)
class WatchEvent:
    """type is ADDED, MODIFIED or DELETED; a DELETED object is its last state under the revision of the deletion."""

    type: str
    stored: Stored

    @property
    def line(self) -> bytes:
        """The event as a line of a JSON watch stream: the object's own bytes, whoever watches."""
        return b'{"type":"%b","object":%b}\n' % (self.type.encode(), self.stored.encoded)


@dataclass(frozen=True)
class Commit:
    """One change of one object; old is None for a create, new is None for a delete."""

    revision: int
    kind: Kind
    key: Key
    old: Stored | None
    new: Stored | None

    @cached_property
    def event(self) -> WatchEvent:
        """What a watcher without selectors sees."""
        if self.new is None:
            return self.lost
        return WatchEvent("MODIFIED" if self.old else "ADDED", self.new)

    @cached_property
    def lost(self) -> WatchEvent:
        """What a watcher sees that may no longer see the object."""
        if self.old is None:
            raise ValueError("a created object was never seen before")
        return WatchEvent("DELETED", self.old.at(self.revision))

    @property
    def size(self) -> int:
        """The bytes that remembering it costs: the newer of its versions was an older commit's, or is the store's."""
        return len((self.old or self.new or self.lost.stored).encoded)


@dataclass(frozen=True, slots=True)
class Filter:
    """What a list or watch asks for; namespace None means all."""

    namespace: str | None = None
    labels: Selector = selectors.EVERYTHING
    fields: FieldSelector = fields.EVERYTHING

    @property
    def selects(self) -> bool:
        """Whether anything but the namespace narrows the result."""
        return bool(self.labels.requirements or self.fields.terms or self.fields.name)

    def matches(self, version: Stored | None) -> bool:
        """Whether this version of an object is asked for."""
        if version is None or (self.namespace is not None and version.key[0] != self.namespace):
            return False
        if self.fields.name not in {"", version.key[1]}:
            return False
        if not self.labels.requirements and not self.fields.terms:
            return True
        return self.labels.matches(version.obj["metadata"].get("labels")) and self.fields.matches(version.obj)

    def event(self, commit: Commit) -> WatchEvent | None:
        """The event of a commit: starting to match is ADDED, ceasing to match is DELETED."""
        before, now = self.matches(commit.old), self.matches(commit.new)
        if now and commit.new:
            return commit.event if before or not commit.old else WatchEvent("ADDED", commit.new)
        return commit.lost if before else None


def _nothing() -> None:
    pass


class Subscription:
    """One watcher's bounded queue. `wake` is called when there is something to take, and once when it is closed.

    A watcher that lets `limit` events or `limit_bytes` of objects pile up is closed: its client resumes from the last
    revision it saw.
    """

    def __init__(
        self, wanted: Filter, limit: int, leave: Callable[[Subscription], None], limit_bytes: int = QUEUE_BYTES
    ) -> None:
        self.wanted, self.limit, self.limit_bytes = wanted, limit, limit_bytes
        self.wake: Callable[[], None] = _nothing
        self.closed = False
        self._leave = leave
        self._events: deque[WatchEvent] = deque()
        self._to_catch_up = self._bytes = 0

    @property
    def waiting(self) -> int:
        """How many events are queued."""
        return len(self._events)

    def start(self, events: Iterable[WatchEvent]) -> None:
        """Queue what the watcher has to catch up with; it does not count against the limits."""
        self._events.extend(events)
        self._to_catch_up = len(self._events)

    def feed(self, commit: Commit) -> None:
        """Queue the commit's event, if the watcher sees one."""
        event = self.wanted.event(commit)
        if event is None:
            return
        size = len(event.stored.encoded)
        queued = len(self._events) - self._to_catch_up
        if queued >= self.limit or (queued and self._bytes + size > self.limit_bytes):
            self.close()
            return
        self._events.append(event)
        self._bytes += size
        self.wake()

    def take(self, most_bytes: int | None = None) -> list[WatchEvent]:
        """Queued events, oldest first: all, or those that together just reach `most_bytes`."""
        if most_bytes is None:
            events = list(self._events)
            self._events.clear()
            self._to_catch_up = self._bytes = 0
            return events
        events = []
        while self._events and most_bytes > 0:
            event = self._events.popleft()
            events.append(event)
            size = len(event.stored.encoded)
            most_bytes -= size
            if self._to_catch_up:
                self._to_catch_up -= 1
            else:
                self._bytes -= size
        return events

    def close(self) -> None:
        """Hear nothing more; queued events stay to be taken."""
        if not self.closed:
            self.closed = True
            self._leave(self)
            self.wake()
