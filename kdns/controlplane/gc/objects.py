"""The stored objects of one cluster, and what follows from each commit: owners, allocations, owned objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.gc.owners import Owners
from kdns.controlplane.kinds.catalogue import Catalogue
from kdns.controlplane.kinds.service.allocation import ServiceAllocator
from kdns.controlplane.kinds.strategy import OwnedObjects
from kdns.controlplane.storage import listing, object_meta
from kdns.controlplane.storage.store import Filter, Store, StoredObject, stored_object_of

_EVERYTHING: Final = Filter()


class Objects:
    """Every object of one cluster. Objects in the store at the start are registered at once.

    `lost` names allocations of stored objects that were not available at the start. `terminating` and `ownerless` are
    the objects whose deletion the last stop interrupted.

    Owned objects (the IPAddresses of a Service) are created and removed together with their owner. The journal writes
    the commits of one step as one transaction: after a crash both exist, or neither.
    """

    def __init__(
        self,
        store: Store,
        kinds: Catalogue,
        config: ClusterConfig,
        services: ServiceAllocator,
        now_s: Callable[[], float],
        new_uid: Callable[[], str],
    ) -> None:
        self.store, self.kinds, self.services = store, kinds, services
        self._families, self.now_s, self._new_uid = config.families, now_s, new_uid
        self.owners = Owners()
        self.lost: list[str] = []
        self.terminating: list[StoredObject] = []
        uids = set()
        for kind in kinds.stored:
            hooks = kinds[kind].hooks
            for version in store.page(kind, _EVERYTHING).items:
                if hooks and hooks.restore:
                    self.lost += [f"{'/'.join(version.key)}: {what}" for what in hooks.restore(services, version)]
                metadata = self.owners.learn(version)
                uids.add(metadata.uid)
                if metadata.deletion_timestamp:
                    self.terminating.append(version)
        self.ownerless = self.owners.ownerless(uids)
        owning = {kind: hooks.owned for kind in kinds.stored if (hooks := kinds[kind].hooks)}
        self._owners_of = {owned.kind: (kind, owned) for kind, owned in owning.items() if owned}
        for kind, owned in self._owners_of.values():
            for version in store.page(kind, _EVERYTHING).items:  # an older release stored owners alone
                self._accompany(owned, version.key, None, version.obj)

    def draft(self, kind: Kind, obj: Json, key: Key | None = None) -> StoredObject:
        """An object as `put` takes it. It has the next revision, so `put` directly: a commit in between costs an
        encoding.
        """
        metadata = obj["metadata"]
        key = key or listing.key(kind, metadata.get("namespace", ""), metadata["name"])
        return stored_object_of(kind, key, self.on_read(kind, obj), self.store.revision + 1)

    def on_read(self, kind: Kind, obj: Json) -> Json:
        hooks = self.kinds[kind].hooks
        return hooks.on_read(obj, self._families) if hooks and hooks.on_read else obj

    def put(self, draft: StoredObject, replaces: StoredObject | None) -> StoredObject:
        version = self.store.commit(draft, replaces)
        self._follow(version, replaces, version)
        return version

    def remove(self, version: StoredObject) -> StoredObject:
        last = self.store.delete(version)
        self._follow(version, version, None)
        return last

    def user_of(self, version: StoredObject) -> StoredObject | None:
        """The owner of an owned object, such as the Service of an IPAddress; None if no stored object has it."""
        if version.kind not in self._owners_of:
            return None
        kind, owned = self._owners_of[version.kind]
        key = owned.owner(version.obj)
        owner = self.store.get(kind, key) if key else None
        return owner if owner and version.key[1] in owned.names(owner.obj) else None

    def set_server_fields(self, obj: Json, *, generation: bool) -> None:
        object_meta.set_server_fields(obj, self._new_uid(), self.now_s(), generation=generation)

    def _follow(self, version: StoredObject, old: StoredObject | None, new: StoredObject | None) -> None:
        hooks, now = self.kinds[version.kind].hooks, new.obj if new else None
        if (old and old.metadata.get("ownerReferences")) or (now and now["metadata"].get("ownerReferences")):
            self.owners.track(old, new)
        if hooks:
            before = old.obj if old else None
            hooks.follow(self.services, before, now)
            if hooks.owned:
                self._accompany(hooks.owned, version.key, before, now)

    def _accompany(self, owned: OwnedObjects, owner: Key, old: Json | None, new: Json | None) -> None:
        """Creates the owned objects that an object gained, and removes those that it lost.

        An owned object stays if a finalizer holds it, or if it belongs to another object.
        """
        if old and new and owned.source(old) == owned.source(new):
            return
        kind = owned.kind
        before, now = owned.names(old) if old else set[str](), owned.names(new) if new else set[str]()
        for name in sorted(before - now):
            version = self.store.get(kind, ("", name))
            if version and owned.owner(version.obj) == owner and not version.metadata.get("finalizers"):
                self.remove(version)
        for name in sorted(now - before):
            if self.store.get(kind, ("", name)) is None:
                obj = owned.make(owner, name)
                self.set_server_fields(obj, generation=False)
                self.put(self.draft(kind, obj, ("", name)), None)
