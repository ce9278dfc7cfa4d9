"""Creates and updates: from the object that a verb made to the store.

Type and metadata → managedFields → registry (defaults, allocation, validation) → store → allocation committed, or
reverted if anything failed.

All steps before the store may run in any thread: they read versions, which are never changed. The store changes in its
owner's turn, and refuses with 409 an object that was made of an outdated version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from kdns.controlplane.fieldmanager import managed_fields
from kdns.controlplane.fieldmanager.managed_fields import Entries, Writer
from kdns.controlplane.meta.errors import already_exists, conflict
from kdns.controlplane.meta.kinds import NAMESPACE, Json, Kind
from kdns.controlplane.meta.size import check_size
from kdns.controlplane.resources.defaults import without_nulls
from kdns.controlplane.resources.strategy import Strategy
from kdns.controlplane.schema.serialization import serialized
from kdns.controlplane.server import namespaces
from kdns.controlplane.server.deletion import Deletion
from kdns.controlplane.server.object_store import ObjectStore
from kdns.controlplane.storage import listing, object_meta
from kdns.controlplane.storage.object_meta import copied
from kdns.controlplane.storage.store import MODIFIED
from kdns.controlplane.storage.watch import StoredObject

_NAME_TRIES = 8

T = TypeVar("T")


class InTurn(Protocol):
    """Runs work that changes the store in the thread that owns it."""

    def __call__(self, work: Callable[[], T], /) -> T:
        """Returns the result of the work."""
        ...


def _at_once(work: Callable[[], T]) -> T:
    """Returns the turns of an owner that makes all writes itself."""
    return work()


class Writes:
    """Creates and updates. Arguments are changed; results belong to the caller."""

    def __init__(
        self,
        objects: ObjectStore,
        deletion: Deletion,
        now_s: Callable[[], float],
        new_uid: Callable[[], str],
        random_suffix: Callable[[], str],
    ) -> None:
        self._objects, self._deletion = objects, deletion
        self.in_turn: InTurn = _at_once
        self._now_s, self._new_uid, self._random_suffix = now_s, new_uid, random_suffix

    def writer(self, name: str, subresource: str = "") -> Writer:
        """Returns the writer of a request, with the current time."""
        return Writer(name, subresource, object_meta.timestamp(self._now_s()))

    def create(
        self, kind: Kind, namespace: str, obj: Json, writer: Writer, *, dry_run: bool, entries: Entries | None = None
    ) -> Json:
        """Stores a new object; `entries` are its managedFields if they are known."""
        store, strategy = self._objects.store, self._objects.kinds[kind]
        check_size(obj)
        obj = serialized(kind, object_meta.typed(kind, obj))
        object_meta.place(kind, namespace, obj)
        if kind.namespaced:
            name = obj["metadata"].get("name") or obj["metadata"].get("generateName") or ""
            namespaces.check_creation(store.get(NAMESPACE, ("", namespace)), kind, namespace, name)
        name = self._name(kind, namespace, obj)
        object_meta.begin(obj, self._new_uid(), self._now_s(), generation=strategy.generation is not None)
        if entries is None:
            entries = managed_fields.entries_of_new(kind, strategy.defaults(obj), writer) if writer.name else []
        _manage(obj, entries)
        prepared = self._objects.registry.create(kind, obj, dry_run=dry_run)
        key = listing.key(kind, namespace, name)
        is_generated = bool(obj["metadata"].get("generateName"))

        def refuse_existing() -> None:
            if exists := store.get(kind, key):
                is_terminating = object_meta.is_terminating(exists.obj)
                raise already_exists(kind, name, is_generated=is_generated, is_terminating=is_terminating)

        if dry_run or store.get(kind, key):
            prepared.revert()
        refuse_existing()
        if dry_run:
            return copied(prepared.obj)

        draft = self._objects.draft(kind, prepared.obj)

        def commit() -> StoredObject:
            if kind.namespaced:  # another turn may have ended it
                namespaces.check_creation(store.get(NAMESPACE, ("", namespace)), kind, namespace, name)
            refuse_existing()
            version = self._objects.put(draft, None, prepared)
            self._deletion.owned(version)
            return version

        try:
            return copied(self.in_turn(commit).obj)
        except BaseException:
            prepared.revert()
            raise

    def _name(self, kind: Kind, namespace: str, obj: Json) -> str:
        generated = not obj["metadata"].get("name")
        name = object_meta.name_new(obj, self._random_suffix() if generated else "")
        for _try in range(_NAME_TRIES if generated else 0):
            if self._objects.store.get(kind, listing.key(kind, namespace, name)) is None:
                break
            obj["metadata"]["name"] = ""
            name = object_meta.name_new(obj, self._random_suffix())
        return name

    def update(
        self, version: StoredObject, obj: Json, writer: Writer, *, dry_run: bool, entries: Entries | None = None
    ) -> Json:
        """Replaces a version; `entries` as for a create. An unchanged object is not committed."""
        kind, (namespace, name) = version.kind, version.key
        strategy = self._objects.kinds[kind]
        check_size(obj)
        old = version.obj
        new = serialized(kind, object_meta.typed(kind, obj))
        object_meta.place(kind, namespace, new)
        object_meta.check_address(namespace, name, new)
        object_meta.check_revision(kind, name, new, old, unconditional=strategy.allow_unconditional_update)
        object_meta.carry(old, new)
        new = _confined(kind, strategy, old, new, writer.subresource)
        if entries is None:
            entries = managed_fields.entries_of_changed(kind, old, strategy.defaults(new), writer)
        if "finalize" in kind.subresources and not writer.subresource:
            new = {**new, "spec": old.get("spec") or {}}  # its finalizers have a manager, but do not change
        _manage(new, entries)
        prepared = self._objects.registry.update(kind, old, new, subresource=writer.subresource, dry_run=dry_run)
        new = serialized(kind, prepared.obj)
        object_meta.bump(old, new, strategy.generation)
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        _keep_times(new, old)
        if dry_run:
            prepared.revert()
            return copied(new)
        may_go, is_same = _may_go(strategy, new), new == old
        draft = version if may_go or is_same else self._objects.draft(kind, new)

        def commit() -> Json:
            if self._objects.store.get(kind, version.key) is not version:
                raise conflict(kind, name, MODIFIED)
            if may_go:
                prepared.revert()
                self._deletion.remove(version)
                return new
            stored = version if is_same else self._objects.put(draft, version, prepared)
            prepared.commit()
            if old["metadata"].get("ownerReferences") != new["metadata"].get("ownerReferences"):
                self._deletion.released(old)
                self._deletion.owned(stored)
            if strategy.spec_finalizers:
                self._deletion.finish_namespace(name)
            return stored.obj

        try:
            return copied(self.in_turn(commit))
        except BaseException:
            prepared.revert()
            raise


def _manage(obj: Json, entries: Entries) -> None:
    obj["metadata"].pop("managedFields", None)
    if entries:
        obj["metadata"]["managedFields"] = entries


def _keep_times(new: Json, old: Json) -> None:
    """Keeps the old times of managers that wrote the same fields again."""
    before, now = old["metadata"].get("managedFields"), new["metadata"].get("managedFields")
    if not (before and now) or before == now or not managed_fields.same_but_for_times(before, now):
        return
    if {**new, "metadata": {**new["metadata"], "managedFields": before}} == old:
        new["metadata"]["managedFields"] = before


_FIELDS = {"status": "status", "approval": "status", "finalize": "spec", "ephemeralcontainers": "spec"}
"""Subresource → the field that it may change beside metadata."""

_INNER_FIELDS = {"approval": "conditions", "ephemeralcontainers": "ephemeralContainers"}
"""Subresource → the one field of that field that it may change."""


def _confined(kind: Kind, strategy: Strategy, old: Json, new: Json, subresource: str) -> Json:
    """Returns the new object with all that the (sub)resource may not change from the old one."""
    if field := _FIELDS.get(subresource):
        metadata = {name: value for name, value in new["metadata"].items() if name != "generateName"}
        if "generateName" in old["metadata"]:
            metadata["generateName"] = old["metadata"]["generateName"]
        kept = {**old, "metadata": metadata, field: new.get(field)}
        if inner := _INNER_FIELDS.get(subresource):
            kept[field] = without_nulls({**(old.get(field) or {}), inner: (new.get(field) or {}).get(inner)})
        kept = without_nulls(kept)
        return strategy.prepare_status(kept, old) if subresource == "status" else kept
    if "status" not in kind.subresources:
        return new
    kept = {name: value for name, value in new.items() if name != "status"}
    return {**kept, "status": old["status"]} if "status" in old else kept


def _may_go(strategy: Strategy, obj: Json) -> bool:
    """Returns whether an object that is being deleted has neither finalizers nor a grace period left."""
    metadata = obj["metadata"]
    waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return bool(metadata.get("deletionTimestamp")) and not waits and not strategy.spec_finalizers
