"""The store together with the allocations, owners and owned objects of its objects.

All writes and deletions go through it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kdns.cluster.objects import Key
from kdns.controlplane.meta.kinds import Json, Kind
from kdns.controlplane.resources.registry import PreparedObject, Registry
from kdns.controlplane.storage import listing
from kdns.controlplane.storage.owners import Owners
from kdns.controlplane.storage.store import Store
from kdns.controlplane.storage.watch import Filter, StoredObject, stored_object_of


@dataclass(frozen=True, slots=True)
class InterruptedDeletions:
    """Deletions that the last stop interrupted: terminating objects, and objects whose owners are gone."""

    terminating: tuple[StoredObject, ...]
    ownerless: tuple[tuple[Kind, Key], ...]


class ObjectStore:
    """Keeps store, registry and owners consistent. The objects in the store at start are registered at once.

    Owned objects (the IPAddresses of a Service) are made and removed together with their owner; `begin` sets their
    metadata. The journal writes the commits of one step as one transaction: after a crash both exist, or neither.
    """

    def __init__(self, store: Store, registry: Registry, begin: Callable[[Kind, Json], None]) -> None:
        self.store, self.registry, self._begin = store, registry, begin
        self.kinds, self.owners = registry.kinds, Owners()
        terminating, uids = [], set()
        for kind in self.kinds.stored:
            is_restored = self.kinds[kind].restored is not None
            for version in self.store.page(kind, Filter()).items:
                if is_restored:
                    registry.restore(version)
                metadata = self.owners.learn(version)
                uids.add(metadata.uid)
                if metadata.deletion_timestamp:
                    terminating.append(version)
        self.interrupted = InterruptedDeletions(tuple(terminating), tuple(self.owners.ownerless(uids)))
        owning = {kind: self.kinds[kind].owned_objects for kind in self.kinds.stored}
        self._owner_kinds = {owned.kind: kind for kind, owned in owning.items() if owned}
        for kind in self._owner_kinds.values():
            for version in store.page(kind, Filter()).items:  # a release without owned objects may have stored them
                self._accompany(kind, version.key, None, version.obj)

    def draft(self, kind: Kind, obj: Json) -> StoredObject:
        """Returns `obj`, which must not be changed afterwards, as `put` takes it. Any thread may call it."""
        obj = self.registry.on_read(kind, obj)
        key = listing.key(kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        return stored_object_of(kind, key, obj, 0)

    def put(
        self, draft: StoredObject, replaces: StoredObject | None, prepared: PreparedObject | None = None
    ) -> StoredObject:
        """Store a draft under the next revision, and commit the allocations of `prepared`."""
        kind, key = draft.kind, draft.key
        version = self.store.commit(draft, replaces)
        if prepared:
            prepared.commit()
        self.owners.track(replaces, version)
        self.registry.stored(kind, version.obj)
        self._accompany(kind, key, replaces.obj if replaces else None, version.obj)
        return version

    def remove(self, version: StoredObject) -> StoredObject:
        """Removes an object and releases its allocations; returns its last state."""
        last = self.store.delete(version)
        self.owners.track(version, None)
        self.registry.deleted(version.kind, version.obj)
        self._accompany(version.kind, version.key, version.obj, None)
        return last

    def user_of(self, version: StoredObject) -> StoredObject | None:
        """Returns the object that has this owned object, such as the Service of an IPAddress; else None."""
        if (kind := self._owner_kinds.get(version.kind)) and (owned_objects := self.kinds[kind].owned_objects):
            key = owned_objects.owner(version.obj)
            owner = self.store.get(kind, key) if key else None
            return owner if owner and version.key[1] in owned_objects.names(owner.obj) else None
        return None

    def _accompany(self, of: Kind, owner: Key, old: Json | None, new: Json | None) -> None:
        """Makes the owned objects that an object gained, and removes those that it lost.

        One that is held by a finalizer, or that belongs to another object, stays.
        """
        owned_objects = self.kinds[of].owned_objects
        if owned_objects is None or (old and new and owned_objects.source(old) == owned_objects.source(new)):
            return
        kind, before, now = owned_objects.kind, owned_objects.names(old), owned_objects.names(new)
        for name in sorted(before - now):
            version = self.store.get(kind, ("", name))
            if version and owned_objects.owner(version.obj) == owner and not version.obj["metadata"].get("finalizers"):
                self.remove(version)
        for name in sorted(now - before):
            if self.store.get(kind, ("", name)) is None:
                obj = owned_objects.make(owner, name)
                self._begin(kind, obj)
                self.store.put(kind, ("", name), obj, None)
                self.registry.stored(kind, obj)
