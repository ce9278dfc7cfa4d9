"""Objects, revisions, history and watches in memory, with etcd's semantics as the API shows them.

One counter numbers all commits. A commit first goes to `persist`, which may reject it by raising. Then, in one step, it
becomes visible to readers and is queued for watchers, at most one event each.

The history is bounded in commits per kind, and in bytes for all kinds together: the kind with the most bytes loses its
oldest commits. A watch or paged list resumes from any revision in the history, also after a restart; an older one is
410 Expired.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import msgspec

from kdns.cluster import selectors
from kdns.cluster.objects import Key
from kdns.cluster.selectors import Selector
from kdns.controlplane.apimachinery.errors import StatusError, conflict, gone
from kdns.controlplane.apimachinery.field_errors import quoted
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.schema.serialization import encoded, serialized
from kdns.controlplane.storage import field_selectors
from kdns.controlplane.storage.field_selectors import FieldSelector

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
HISTORY_COMMITS = 4096
"""Per kind."""

HISTORY_BYTES = 64 * 1024 * 1024
"""Replaced and deleted versions of all kinds together; the newest commit of each kind is always kept."""

QUEUE_EVENTS = 10_000
_UINT64_DIGITS = 20
QUEUE_BYTES = 64 * 1024 * 1024


class _Metadata(msgspec.Struct):
    metadata: Json


_metadata = msgspec.json.Decoder(_Metadata).decode


class StoredObject:
    """One version of an object. All readers share `obj`, so it must not be changed.

    `encoded` is `obj` as Go serializes it: the bytes that are sent and written to disk. `obj` is decoded on first use:
    after a restart few objects are ever decoded, and hardly any of the history.
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
    def metadata(self) -> Json:
        obj = self._obj
        return _metadata(self.encoded).metadata if obj is None else obj["metadata"]

    def copy(self) -> Json:
        """A new value, which the caller may change."""
        obj: Json = msgspec.json.decode(self.encoded)
        return obj

    def without_revision(self) -> StoredObject:
        """The answer to a dry run: it has no revision."""
        metadata = {name: value for name, value in self.obj["metadata"].items() if name != "resourceVersion"}
        return StoredObject(self.kind, self.key, 0, msgspec.json.encode({**self.obj, "metadata": metadata}))

    def drop_decoded(self) -> None:
        self._obj = None

    def at(self, revision: int) -> StoredObject:
        """The same content under another resourceVersion, patched into the bytes without encoding them again."""
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
    """The object with its resourceVersion, as Go serializes it."""
    return serialized(kind, {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}})


def stored_object_of(kind: Kind, key: Key, obj: Json, revision: int) -> StoredObject:
    exact = exact_of(kind, obj, revision)
    return StoredObject(kind, key, revision, msgspec.json.encode(exact), exact)


def joined_items(kind: Kind, versions: Sequence[StoredObject]) -> bytes:
    """Items of a list: without kind and apiVersion, separated by commas."""
    if not versions:
        return b""
    head = msgspec.json.encode({"kind": kind.kind, "apiVersion": kind.api_version})[:-1] + b","
    items = [version.encoded for version in versions]
    if not all(item.startswith(head) for item in items):  # written by an older release
        items = [encoded(kind, version.obj) for version in versions]
    return b"{" + b",{".join([item.removeprefix(head) for item in items])


class WatchEvent(msgspec.Struct, frozen=True, eq=False):
    """`type` is ADDED, MODIFIED or DELETED; a DELETED object is its last state with the revision of the deletion."""

    type: str
    stored: StoredObject

    @property
    def line(self) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (self.type.encode(), self.stored.encoded)


class Commit:
    """One change of one object; old is None for a create, new is None for a delete."""

    __slots__ = ("_event", "_lost", "key", "kind", "new", "old", "revision")

    def __init__(self, revision: int, kind: Kind, key: Key, old: StoredObject | None, new: StoredObject | None) -> None:
        self.revision, self.kind, self.key, self.old, self.new = revision, kind, key, old, new
        self._event: WatchEvent | None = None
        self._lost: WatchEvent | None = None

    @property
    def event(self) -> WatchEvent:
        """All watchers share it, so it is encoded once."""
        if self._event is None:
            self._event = WatchEvent("MODIFIED" if self.old else "ADDED", self.new) if self.new else self.lost
        return self._event

    @property
    def lost(self) -> WatchEvent:
        if self._lost is None:
            if self.old is None:
                raise ValueError("a created object was never seen before")
            self._lost = WatchEvent("DELETED", self.old.at(self.revision))
        return self._lost

    @property
    def size(self) -> int:
        """Bytes that it costs in the history: those of the replaced version, which nothing else holds."""
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
        """ADDED for an object that starts to match, DELETED for one that ceases to match."""
        before, now = self.matches(commit.old), self.matches(commit.new)
        if now and commit.new:
            return commit.event if before or not commit.old else WatchEvent("ADDED", commit.new)
        return commit.lost if before else None


def _nothing() -> None: ...


class Subscription:
    """One watcher's bounded queue. `wake` is called when events are queued, and once when it is closed.

    A watcher with more than QUEUE_EVENTS events or QUEUE_BYTES of objects in its queue is closed. Its client resumes
    from the last revision that it received.
    """

    def __init__(self, selection: Filter, leave: Callable[[Subscription], None]) -> None:
        self.selection = selection
        self._takes_all = selection.namespace is None and not selection.selects
        self.wake: Callable[[], None] = _nothing
        self.closed = False
        self._leave = leave
        self._events: deque[WatchEvent] = deque()
        self._to_catch_up = self._bytes = 0

    @property
    def waiting(self) -> int:
        return len(self._events)

    def start(self, events: Iterable[WatchEvent]) -> None:
        """Queues the initial events, which do not count against the limits."""
        self._events.extend(events)
        self._to_catch_up = len(self._events)

    def feed(self, commit: Commit) -> None:
        event = commit.event if self._takes_all else self.selection.event(commit)
        if event is None:
            return
        size = len(event.stored.encoded)
        queued = len(self._events) - self._to_catch_up
        if queued >= QUEUE_EVENTS or (queued and self._bytes + size > QUEUE_BYTES):
            self.close()
            return
        self._events.append(event)
        self._bytes += size
        self.wake()

    def take(self, most_bytes: float = inf) -> list[WatchEvent]:
        """Dequeues events, oldest first, until they have `most_bytes`."""
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


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list: `next_key` is the first key of the next page, None on the last.

    `remaining` is the number of objects after this page; None if selectors make it unknown.
    """

    items: tuple[StoredObject, ...]
    revision: int
    next_key: Key | None = None
    remaining: int | None = None


@dataclass(slots=True)
class _Collection:
    """All objects of a kind in key order, and the history of commits.

    `floor` is the revision of the newest dropped commit; the history after it is complete.
    """

    floor: int
    objects: dict[Key, StoredObject] = field(default_factory=dict)
    keys: list[Key] = field(default_factory=list)
    history: deque[Commit] = field(default_factory=deque)
    history_bytes: int = 0
    watchers: dict[Subscription, None] = field(default_factory=dict)

    def apply(self, commit: Commit) -> None:
        if commit.new is None:
            del self.objects[commit.key]
            del self.keys[bisect_left(self.keys, commit.key)]
        else:
            if commit.old is None:
                insort(self.keys, commit.key)
            self.objects[commit.key] = commit.new
        for watcher in tuple(self.watchers):
            watcher.feed(commit)

    def remember(self, commit: Commit) -> int:
        """Appends to the history; returns the commit's size in bytes."""
        size = commit.size
        self.history.append(commit)
        self.history_bytes += size
        return size

    def forget(self) -> Commit:
        forgotten = self.history.popleft()
        self.history_bytes -= forgotten.size
        self.floor = forgotten.revision
        return forgotten

    def since(self, revision: int) -> list[Commit]:
        """Commits after `revision`, oldest first. Raises 410 if some were dropped."""
        if revision < self.floor:
            raise gone(f"too old resource version: {revision} ({self.floor})")
        return list(self.history)[bisect_right(self.history, revision, key=lambda commit: commit.revision) :]

    def at(self, revision: int) -> tuple[dict[Key, StoredObject], Sequence[Key]]:
        """Objects and sorted keys as of `revision`: the current ones with later commits undone."""
        before = {commit.key: commit.old for commit in reversed(self.since(revision))}
        if not before:
            return self.objects, self.keys
        restored = {key: version for key, version in before.items() if version}
        keys = [key for key in self.keys if key not in before or key in restored]
        for key in restored.keys() - self.objects.keys():
            insort(keys, key)
        return {**self.objects, **restored}, keys


def _in_memory(_: Commit) -> None:
    """Accepts every commit: nothing is persisted."""


class Store:
    """Every served object. One event loop owns it.

    A restarted store continues at `revision` with `objects`, the commits of `history` (oldest first), and the floor of
    each kind, which defaults to `revision`. `forget` is called with each commit that leaves the history.
    """

    def __init__(
        self,
        objects: Iterable[StoredObject] = (),
        *,
        revision: int = 1,
        history: Iterable[Commit] = (),
        floors: Mapping[Kind, int] | None = None,
        persist: Callable[[Commit], None] = _in_memory,
        forget: Callable[[Commit], None] = _in_memory,
        history_commits: int = HISTORY_COMMITS,
        history_bytes: int = HISTORY_BYTES,
    ) -> None:
        self.revision = revision
        self._start, self._floors = revision, floors or {}
        self._persist, self._forget = persist, forget
        self._commits_max, self._bytes_max = history_commits, history_bytes
        self._collections: dict[Kind, _Collection] = {}
        self._history_bytes = 0
        for version in sorted(objects, key=lambda version: version.key):
            collection = self._collection(version.kind)
            collection.objects[version.key] = version
            collection.keys.append(version.key)
        for commit in history:
            self._history_bytes += self._collection(commit.kind).remember(commit)
        self._compact(self._collections.values())

    def get(self, kind: Kind, key: Key) -> StoredObject | None:
        collection = self._collections.get(kind)
        return collection.objects.get(key) if collection else None

    def commit(self, draft: StoredObject, replaces: StoredObject | None) -> StoredObject:
        """Commits a version under the next revision; `replaces` is None for a create.

        Raises 409 Conflict if `replaces` is not the latest version.
        """
        revision = self.revision + 1
        new = draft if draft.revision == revision else draft.at(revision)
        self._commit(Commit(revision, new.kind, new.key, replaces, new))
        return new

    def delete(self, version: StoredObject) -> StoredObject:
        """Returns the last state with the revision of the deletion. 409 as in `commit`."""
        commit = Commit(self.revision + 1, version.kind, version.key, version, None)
        self._commit(commit)
        return commit.lost.stored

    def page(self, kind: Kind, selection: Filter, *, revision: int = 0, start: Key = ("", ""), limit: int = 0) -> Page:
        """Objects in key order from `start`, at most `limit` (0: all), as of `revision` (0: now)."""
        revision = revision or self.revision
        objects, keys = self._collection(kind).at(revision)
        namespace, name = selection.namespace, selection.fields.name
        first = bisect_left(keys, start if namespace is None else max(start, (namespace, name)))
        end = len(keys)
        if namespace is not None:
            end = bisect_left(keys, (namespace, f"{name}\0") if name else (f"{namespace}\0", ""))
        items: list[StoredObject] = []
        for position in range(first, end):
            version = objects[keys[position]]
            if not selection.matches(version):
                continue
            if limit and len(items) == limit:
                remaining = None if selection.selects else end - position
                return Page(tuple(items), revision, keys[position], remaining)
            items.append(version)
        return Page(tuple(items), revision)

    def watch(self, kind: Kind, selection: Filter, *, since: int | None, initial: bool = False) -> Subscription:
        """Watches every commit after `since` (None: new ones). Raises 410 if the history is too short.

        `initial` first queues an ADDED event for each object; `since` is then ignored.
        """
        collection = self._collection(kind)
        subscription = Subscription(selection, lambda watcher: collection.watchers.pop(watcher, None))
        if initial:
            subscription.start(WatchEvent("ADDED", version) for version in self.page(kind, selection).items)
        elif since is not None:
            events = (selection.event(commit) for commit in collection.since(since))
            subscription.start(event for event in events if event)
        collection.watchers[subscription] = None
        return subscription

    def end_watches(self, kind: Kind) -> None:
        for watcher in tuple(self._collection(kind).watchers):
            watcher.close()

    def oldest(self, kind: Kind) -> int:
        """The oldest revision from which a watch can resume."""
        return self._collection(kind).floor

    def _collection(self, kind: Kind) -> _Collection:
        collection = self._collections.get(kind)
        if collection is None:
            collection = self._collections[kind] = _Collection(floor=self._floors.get(kind, self._start))
        return collection

    def _commit(self, commit: Commit) -> None:
        collection = self._collections.get(commit.kind) or self._collection(commit.kind)
        if collection.objects.get(commit.key) is not commit.old:
            raise conflict(commit.kind, commit.key[1], MODIFIED)
        self._persist(commit)
        self.revision = commit.revision
        self._history_bytes += collection.remember(commit)
        collection.apply(commit)
        if commit.old:
            commit.old.drop_decoded()  # it is in the history now
        if len(collection.history) > self._commits_max or self._history_bytes > self._bytes_max:
            self._compact((collection,))

    def _compact(self, changed: Iterable[_Collection]) -> None:
        """Drops the oldest commits beyond the bounds; only `changed` collections can have too many."""
        for collection in changed:
            while len(collection.history) > self._commits_max:
                self._drop_oldest(collection)
        while self._history_bytes > self._bytes_max:
            droppable = [collection for collection in self._collections.values() if len(collection.history) > 1]
            if not droppable:
                return
            self._drop_oldest(max(droppable, key=lambda collection: collection.history_bytes))

    def _drop_oldest(self, collection: _Collection) -> None:
        forgotten = collection.forget()
        self._history_bytes -= forgotten.size
        self._forget(forgotten)


def parsed_revision(text: str) -> int:
    """Raises ValueError with Go's message for other text and for more than 64 bits."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"strconv.ParseUint: parsing {quoted(text)}: invalid syntax")
    digits = text.lstrip("0") or "0"
    if len(digits) > _UINT64_DIGITS or int(digits) >= 1 << 64:
        raise ValueError(f"strconv.ParseUint: parsing {quoted(text)}: value out of range")
    return int(digits)


def too_large(revision: int, current: int) -> StatusError:
    """504: the requested revision does not exist yet; clients retry after a second."""
    message = f"Timeout: Too large resource version: {revision}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return StatusError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})
