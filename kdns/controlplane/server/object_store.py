"""The store together with the allocations, owners and companions of its objects.

All writes and deletions go through it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kdns.cluster.objects import Key
from kdns.controlplane.meta.kinds import KINDS, Json, Kind
from kdns.controlplane.resources.registry import PreparedObject, Registry
from kdns.controlplane.resources.strategy import STRATEGIES, Companions
from kdns.controlplane.storage import listing
from kdns.controlplane.storage.owners import Owners
from kdns.controlplane.storage.store import Store
from kdns.controlplane.storage.watch import Filter, Version, version_of


@dataclass(frozen=True, slots=True)
class InterruptedDeletions:
    """Deletions that the last stop interrupted: terminating objects, and objects whose owners are gone."""

    going: tuple[Version, ...]
    ownerless: tuple[tuple[Kind, Key], ...]


class ObjectStore:
    """Keeps store, registry and owners consistent. The objects in the store at start are registered at once.

    Companions (the IPAddresses of a Service) are made and removed together with their object; `begin` sets their
    metadata. The journal writes what one step commits as one transaction: after a crash there are both or neither.
    """

    def __init__(self, store: Store, registry: Registry, begin: Callable[[Kind, Json], None]) -> None:
        self.store, self.registry, self._begin = store, registry, begin
        self.owners = Owners()
        going, uids = [], set()
        for kind in KINDS:
            is_restored = STRATEGIES[kind].restored is not None
            for version in self.store.page(kind, Filter()).items:
                if is_restored:
                    registry.restore(version)
                marks = self.owners.learn(version)
                uids.add(marks.uid)
                if marks.deletion_timestamp:
                    going.append(version)
        self.interrupted = InterruptedDeletions(tuple(going), tuple(self.owners.ownerless(uids)))
        for kind in KINDS:
            companions = STRATEGIES[kind].companions
            if companions and not store.page(companions.kind, Filter(), limit=1).items:
                for version in store.page(kind, Filter()).items:  # stored by a version without companions
                    self._accompany(companions, version.key, None, version.obj)

    def draft(self, kind: Kind, obj: Json) -> Version:
        """`obj`, which nobody may change afterwards, as `put` takes it; also in other threads than the store's."""
        obj = self.registry.on_read(kind, obj)
        key = listing.key(kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        return version_of(kind, key, obj, 0)

    def put(self, draft: Version, replaces: Version | None, prepared: PreparedObject | None = None) -> Version:
        """Store a draft under the next revision, and commit the allocations of `prepared`."""
        kind, key = draft.kind, draft.key
        version = self.store.commit(draft, replaces)
        if prepared:
            prepared.commit()
        self.owners.track(replaces, version)
        self.registry.stored(kind, version.obj)
        if companions := STRATEGIES[kind].companions:
            self._accompany(companions, key, replaces.obj if replaces else None, version.obj)
        return version

    def remove(self, version: Version) -> Version:
        """Remove an object and release what it held; returns its last state."""
        last = self.store.delete(version)
        self.owners.track(version, None)
        self.registry.deleted(version.kind, version.obj)
        if companions := STRATEGIES[version.kind].companions:
            self._accompany(companions, version.key, version.obj, None)
        return last

    def _accompany(self, companions: Companions, owner: Key, old: Json | None, new: Json | None) -> None:
        """Make the companions that an object gained, and remove those that it lost.

        One that is held by a finalizer, or that belongs to another object, stays; the repair loop checks it.
        """
        if old and new and companions.source(old) == companions.source(new):
            return
        kind, before, now = companions.kind, companions.names(old), companions.names(new)
        for name in sorted(before - now):
            version = self.store.get(kind, ("", name))
            if version and companions.owner(version.obj) == owner and not version.obj["metadata"].get("finalizers"):
                self.remove(version)
        for name in sorted(now - before):
            if self.store.get(kind, ("", name)) is None:
                obj = companions.make(owner, name)
                self._begin(kind, obj)
                self.store.put(kind, ("", name), obj, None)
                self.registry.stored(kind, obj)
