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


@dataclass(frozen=True, slots=True)
class Stored:
    """One version of one object: shared by everybody who reads it, so nobody may change `obj`.

    `encoded` is `obj` as JSON; it is written to disk, lists, answers and watches as it is.
    """

    kind: Kind
    key: Key
    revision: int
    obj: Json
    encoded: bytes

    def at(self, revision: int) -> Stored:
        """The same content under another resourceVersion."""
        return stored(self.kind, self.key, self.obj, revision)


def stored(kind: Kind, key: Key, obj: Json, revision: int) -> Stored:
    """`obj` with its resourceVersion set, encoded once; top-level values below metadata are shared, not copied."""
    versioned = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}
    return Stored(kind, key, revision, versioned, msgspec.json.encode(versioned))


@dataclass(frozen=True)
class WatchEvent:
    """type is ADDED, MODIFIED or DELETED; a DELETED object is its last state under the revision of the deletion."""

    type: str
    stored: Stored

    @cached_property
    def line(self) -> bytes:
        """The event as a line of a JSON watch stream, encoded once for all watchers."""
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


@dataclass(frozen=True, slots=True)
class Filter:
    """What a list or watch asks for; namespace None means all."""

    namespace: str | None = None
    labels: Selector = selectors.EVERYTHING
    fields: FieldSelector = fields.EVERYTHING

    @property
    def selects(self) -> bool:
        """Whether anything but the namespace narrows the result."""
        return bool(self.labels.requirements or self.fields.terms)

    def matches(self, version: Stored | None) -> bool:
        """Whether this version of an object is asked for."""
        if version is None or (self.namespace is not None and version.key[0] != self.namespace):
            return False
        if not self.selects:
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

    A watcher that lets `limit` events pile up is closed: its client resumes from the last revision it saw.
    """

    def __init__(self, wanted: Filter, limit: int, leave: Callable[[Subscription], None]) -> None:
        self.wanted, self.limit = wanted, limit
        self.wake: Callable[[], None] = _nothing
        self.closed = False
        self._leave = leave
        self._events: deque[WatchEvent] = deque()

    def start(self, events: Iterable[WatchEvent]) -> None:
        """Queue what the watcher has to catch up with; it does not count against the limit."""
        self._events.extend(events)
        self.limit += len(self._events)

    def feed(self, commit: Commit) -> None:
        """Queue the commit's event, if the watcher sees one."""
        event = self.wanted.event(commit)
        if event is None:
            return
        if len(self._events) >= self.limit:
            self.close()
            return
        self._events.append(event)
        self.wake()

    def take(self) -> list[WatchEvent]:
        """All queued events, oldest first; the queue is empty afterwards."""
        events = list(self._events)
        self._events.clear()
        return events

    def close(self) -> None:
        """Hear nothing more; queued events stay to be taken."""
        if not self.closed:
            self.closed = True
            self._leave(self)
            self.wake()
