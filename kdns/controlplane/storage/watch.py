"""Watch events: for each watcher a commit becomes at most one event, according to the watcher's selectors.

Events are queued in the commit itself and in commit order, so no commit is missed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from kdns.cluster import selectors
from kdns.cluster.objects import Key
from kdns.cluster.selectors import Selector
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.schema.serialization import encoded, serialized
from kdns.controlplane.storage import field_selectors
from kdns.controlplane.storage.field_selectors import FieldSelector

QUEUE_BYTES = 64 * 1024 * 1024


class _Metadata(msgspec.Struct):
    metadata: Json


_metadata = msgspec.json.Decoder(_Metadata).decode


class StoredObject:
    """One version of an object. All readers share `obj`, so it must not be changed.

    `encoded` is `obj` as JSON, as Go serializes it: the bytes that are sent and written to disk. `obj` is decoded
    from it on first use: after a restart few objects are ever decoded, and hardly any of the history.
    """

    __slots__ = ("_obj", "encoded", "key", "kind", "revision")

    def __init__(self, kind: Kind, key: Key, revision: int, encoded: bytes, obj: Json | None = None) -> None:
        self.kind, self.key, self.revision, self.encoded, self._obj = kind, key, revision, encoded, obj

    @property
    def obj(self) -> Json:
        obj = self._obj
        if obj is None:
            obj = self._obj = msgspec.json.decode(self.encoded)
        return obj

    @property
    def is_decoded(self) -> bool:
        """Whether `obj` is decoded."""
        return self._obj is not None

    @property
    def metadata(self) -> Json:
        obj = self._obj
        return _metadata(self.encoded).metadata if obj is None else obj["metadata"]

    def copy(self) -> Json:
        """Returns the object as a new value, which belongs to the caller."""
        obj: Json = msgspec.json.decode(self.encoded)
        return obj

    def without_revision(self) -> StoredObject:
        """Returns the object as the answer to a dry run shows it, before it has a revision."""
        metadata = {name: value for name, value in self.obj["metadata"].items() if name != "resourceVersion"}
        return StoredObject(self.kind, self.key, 0, msgspec.json.encode({**self.obj, "metadata": metadata}))

    def rest(self) -> None:
        """Drops the decoded object; `obj` decodes it again."""
        self._obj = None

    def at(self, revision: int) -> StoredObject:
        """The same content under another resourceVersion, which takes no look at the rest."""
        before, after = b'"resourceVersion":"%d"' % self.revision, b'"resourceVersion":"%d"' % revision
        if self.encoded.count(before) != 1:  # also that of an object referred to, or an annotation of this name
            return stored_object_of(self.kind, self.key, self.obj, revision)
        later = StoredObject(self.kind, self.key, revision, self.encoded.replace(before, after))
        if (obj := self._obj) is not None:
            later._obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}
        return later

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredObject):
            return NotImplemented
        mine, theirs = (self.kind, self.key, self.revision), (other.kind, other.key, other.revision)
        return mine == theirs and self.encoded == other.encoded

    def __hash__(self) -> int:
        return hash((self.kind, self.key, self.revision))

    def __repr__(self) -> str:
        return f"StoredObject({self.kind.kind}, {self.key}, {self.revision})"


def exact_of(kind: Kind, obj: Json, revision: int) -> Json:
    """Returns the object with its resourceVersion, as Go serializes it."""
    return serialized(kind, {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}})


def stored_object_of(kind: Kind, key: Key, obj: Json, revision: int) -> StoredObject:
    """Returns the same, encoded."""
    exact = exact_of(kind, obj, revision)
    return StoredObject(kind, key, revision, msgspec.json.encode(exact), exact)


def joined_items(kind: Kind, versions: Sequence[StoredObject]) -> bytes:
    """Returns objects as the items of a list: without kind and apiVersion, separated by commas."""
    if not versions:
        return b""
    head = msgspec.json.encode({"kind": kind.kind, "apiVersion": kind.api_version})[:-1] + b","
    items = [version.encoded for version in versions]
    if not all(each.startswith(head) for each in items):  # written by an older release
        items = [encoded(kind, version.obj) for version in versions]
    return b"{" + b",{".join([each.removeprefix(head) for each in items])


@dataclass(frozen=True, slots=True, eq=False)
class WatchEvent:
    """`type` is ADDED, MODIFIED or DELETED; a DELETED object is its last state with the revision of the deletion."""

    type: str
    stored: StoredObject

    @property
    def line(self) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (self.type.encode(), self.stored.encoded)


@dataclass(frozen=True)
class Commit:
    """One change of one object; old is None for a create, new is None for a delete."""

    revision: int
    kind: Kind
    key: Key
    old: StoredObject | None
    new: StoredObject | None

    @cached_property
    def event(self) -> WatchEvent:
        if self.new is None:
            return self.lost
        return WatchEvent("MODIFIED" if self.old else "ADDED", self.new)

    @cached_property
    def lost(self) -> WatchEvent:
        if self.old is None:
            raise ValueError("a created object was never seen before")
        return WatchEvent("DELETED", self.old.at(self.revision))

    @property
    def size(self) -> int:
        """The bytes that it costs in the history: those of the version that it replaced, which nothing else holds."""
        return len((self.old or self.new or self.lost.stored).encoded)


@dataclass(frozen=True, slots=True)
class Filter:
    """The selection of a list or watch; namespace None means all."""

    namespace: str | None = None
    labels: Selector = selectors.EVERYTHING
    fields: FieldSelector = field_selectors.EVERYTHING

    @property
    def selects(self) -> bool:
        """Whether anything but the namespace narrows the result."""
        return bool(self.labels.requirements or self.fields.terms or self.fields.name)

    def matches(self, version: StoredObject | None) -> bool:
        if version is None or (self.namespace is not None and version.key[0] != self.namespace):
            return False
        if self.fields.name not in {"", version.key[1]}:
            return False
        if not self.labels.requirements and not self.fields.terms:
            return True
        if not self.labels.matches(version.metadata.get("labels")):
            return False
        return not self.fields.terms or self.fields.matches(version.obj)

    def event(self, commit: Commit) -> WatchEvent | None:
        """Returns the event of a commit: ADDED for an object that starts to match, DELETED for one that ceases to
        match.
        """
        before, now = self.matches(commit.old), self.matches(commit.new)
        if now and commit.new:
            return commit.event if before or not commit.old else WatchEvent("ADDED", commit.new)
        return commit.lost if before else None


def _nothing() -> None:
    pass


class Subscription:
    """One watcher's bounded queue. `wake` is called when events are queued, and once when it is closed.

    A watcher with more than `limit` events or `limit_bytes` of objects in its queue is closed; its client resumes from
    the last revision that it received.
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
        return len(self._events)

    def start(self, events: Iterable[WatchEvent]) -> None:
        """Queues the initial events; they do not count against the limits."""
        self._events.extend(events)
        self._to_catch_up = len(self._events)

    def feed(self, commit: Commit) -> None:
        """Queues the event of a commit, if this watcher has one."""
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
        """Removes and returns queued events, oldest first: all, or as many as reach `most_bytes`."""
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

    def cancel(self) -> None:
        """Ends the watch without waking its owner."""
        self.wake = _nothing
        self.close()

    def close(self) -> None:
        """Ends the watch; queued events can still be taken."""
        if not self.closed:
            self.closed = True
            self._leave(self)
            self.wake()
