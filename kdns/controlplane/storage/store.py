"""Objects, revisions and history in memory, with etcd's semantics as the API shows them.

One counter numbers all commits. A commit first goes to `persist`, which may reject it by raising; then it becomes
visible to readers and is queued for watchers, in one step. The history is bounded: in commits for each kind, and in
bytes for all kinds together: the kind with the most bytes loses its oldest commits. A watch or paged list resumes from
any revision in the history, also after a restart; an older one is 410 Expired.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.errors import StatusError, conflict, gone
from kdns.controlplane.apimachinery.field_errors import quoted
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.storage.watch import (
    QUEUE_BYTES,
    Commit,
    Filter,
    StoredObject,
    Subscription,
    WatchEvent,
    stored_object_of,
)

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
HISTORY_COMMITS = 4096
"""Commits of each kind."""

HISTORY_BYTES = 64 * 1024 * 1024
"""Replaced and deleted versions of all kinds together; the newest commit of each kind is always kept."""

QUEUE_EVENTS = 10_000
_UINT64_DIGITS = 20
_DECODED_COMMITS = 64
"""How many of the newest commits of a kind keep their versions decoded; older ones are seldom read."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list: `next_key` is the first key of the following page, None after the last.

    `remaining` is the number of objects that follow; None if selectors make it unknown.
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
        """Appends a commit to the history; returns its size in bytes."""
        history, size = self.history, commit.size
        history.append(commit)
        self.history_bytes += size
        if len(history) > _DECODED_COMMITS:
            for version in (history[-_DECODED_COMMITS].old, history[-_DECODED_COMMITS].new):
                if version:
                    version.rest()
        return size

    def forget(self) -> Commit:
        """Drops the oldest commit of the history."""
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
        """Returns objects and sorted keys as of `revision`: the current ones with later commits undone."""
        before = {commit.key: commit.old for commit in reversed(self.since(revision))}
        if not before:
            return self.objects, self.keys
        there = {key: version for key, version in before.items() if version}
        keys = [key for key in self.keys if key not in before or key in there]
        for key in there.keys() - self.objects.keys():
            insort(keys, key)
        return {**self.objects, **there}, keys


def _in_memory(_: Commit) -> None:
    """Accepts every commit: nothing is persisted."""


class Store:
    """Every served object. One event loop owns it.

    A restarted store continues at `revision` with `objects`, the commits of `history` (oldest first), and the floor of
    each kind (default: `revision`). `forget` is called with each commit that leaves the history.
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
        """Returns the latest version, or None."""
        collection = self._collections.get(kind)
        return collection.objects.get(key) if collection else None

    def put(self, kind: Kind, key: Key, obj: Json, replaces: StoredObject | None) -> StoredObject:
        """Commit a new version, as `commit` does. `obj` belongs to the store afterwards."""
        return self.commit(stored_object_of(kind, key, obj, 0), replaces)

    def commit(self, draft: StoredObject, replaces: StoredObject | None) -> StoredObject:
        """Commit a version under the next revision; `replaces` is the one that it replaces, None for a create.

        Raises 409 Conflict if that is no longer the latest.
        """
        revision = self.revision + 1
        new = draft if draft.revision == revision else draft.at(revision)
        self._commit(Commit(revision, new.kind, new.key, replaces, new))
        return new

    def delete(self, version: StoredObject) -> StoredObject:
        """Commits a deletion; returns the last state with the revision of the deletion. 409 as in `put`."""
        commit = Commit(self.revision + 1, version.kind, version.key, version, None)
        self._commit(commit)
        return commit.lost.stored

    def page(self, kind: Kind, wanted: Filter, *, revision: int = 0, start: Key = ("", ""), limit: int = 0) -> Page:
        """Returns objects in key order from `start`, at most `limit` (0: all), as of `revision` (0: now)."""
        revision = revision or self.revision
        objects, keys = self._collection(kind).at(revision)
        namespace, name = wanted.namespace, wanted.fields.name
        first = bisect_left(keys, start if namespace is None else max(start, (namespace, name)))
        end = len(keys)
        if namespace is not None:
            end = bisect_left(keys, (namespace, f"{name}\0") if name else (f"{namespace}\0", ""))
        items: list[StoredObject] = []
        for position in range(first, end):
            version = objects[keys[position]]
            if not wanted.matches(version):
                continue
            if limit and len(items) == limit:
                remaining = None if wanted.selects else end - position
                return Page(tuple(items), revision, keys[position], remaining)
            items.append(version)
        return Page(tuple(items), revision)

    def watch(
        self,
        kind: Kind,
        wanted: Filter,
        *,
        since: int | None,
        initial: bool = False,
        limit: int = QUEUE_EVENTS,
        limit_bytes: int = QUEUE_BYTES,
    ) -> Subscription:
        """Returns a watcher of every commit after `since` (None: new ones). Raises 410 if the history is too short.

        `initial` first queues an ADDED event for each object; `since` is then ignored.
        """
        collection = self._collection(kind)
        subscription = Subscription(wanted, limit, lambda watcher: _unsubscribe(collection, watcher), limit_bytes)
        if initial:
            subscription.start(WatchEvent("ADDED", version) for version in self.page(kind, wanted).items)
        elif since is not None:
            events = (wanted.event(commit) for commit in collection.since(since))
            subscription.start(event for event in events if event)
        collection.watchers[subscription] = None
        return subscription

    def end_watches(self, kind: Kind) -> None:
        for watcher in tuple(self._collection(kind).watchers):
            watcher.close()

    def oldest(self, kind: Kind) -> int:
        """Returns the oldest revision a watch of `kind` can resume from."""
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
        if len(collection.history) > self._commits_max or self._history_bytes > self._bytes_max:
            self._compact((collection,))

    def _compact(self, changed: Iterable[_Collection]) -> None:
        """Drops the oldest commits beyond the bounds; only the `changed` collections can have too many."""
        for collection in changed:
            while len(collection.history) > self._commits_max:
                self._drop_oldest(collection)
        while self._history_bytes > self._bytes_max:
            several = [collection for collection in self._collections.values() if len(collection.history) > 1]
            if not several:
                return
            self._drop_oldest(max(several, key=lambda collection: collection.history_bytes))

    def _drop_oldest(self, collection: _Collection) -> None:
        forgotten = collection.forget()
        self._history_bytes -= forgotten.size
        self._forget(forgotten)


def _unsubscribe(collection: _Collection, watcher: Subscription) -> None:
    collection.watchers.pop(watcher, None)


def parsed_revision(text: str) -> int:
    """Returns a resourceVersion as a number; ValueError with Go's message for other text and for more than 64 bits."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"strconv.ParseUint: parsing {quoted(text)}: invalid syntax")
    digits = text.lstrip("0") or "0"
    if len(digits) > _UINT64_DIGITS or int(digits) >= 1 << 64:
        raise ValueError(f"strconv.ParseUint: parsing {quoted(text)}: value out of range")
    return int(digits)


def too_large(revision: int, current: int) -> StatusError:
    """Returns 504: the requested revision does not exist yet; clients retry after a second."""
    message = f"Timeout: Too large resource version: {revision}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return StatusError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})
