"""The registry: the objects of one cluster with their allocations, owners and owned objects, and the way of each write.

Type and metadata → defaults → managedFields → preparation, allocation, validation (strategy of the kind) → encoding →
store. All steps before the store may run in any thread: they read versions, which are never changed. The store changes
in its owner's turn, and refuses with 409 an object that was made of an outdated version. A refused write holds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.errors import Cause, already_exists, conflict, invalid
from kdns.controlplane.apimachinery.kinds import NAMESPACE, Json, Kind
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.fieldmanager import managed_fields
from kdns.controlplane.fieldmanager.managed_fields import Entries, Writer
from kdns.controlplane.kinds.catalogue import Catalogue, built_in
from kdns.controlplane.kinds.defaults import without_nulls
from kdns.controlplane.kinds.service.allocation import ServiceAllocator
from kdns.controlplane.kinds.service.allocator import AllocatorMetrics, Choose, Transaction
from kdns.controlplane.kinds.strategy import Strategy
from kdns.controlplane.kinds.validation import validate_meta, validate_meta_update
from kdns.controlplane.schema.serialization import Serialized, serialized
from kdns.controlplane.server import namespaces
from kdns.controlplane.server.deletion import Deletion, GracePeriod, no_grace_s
from kdns.controlplane.server.request import Request
from kdns.controlplane.storage import listing, object_meta
from kdns.controlplane.storage.backlog import Backlog
from kdns.controlplane.storage.owners import Owners
from kdns.controlplane.storage.store import MODIFIED, Store
from kdns.controlplane.storage.watch import Filter, StoredObject, exact_of, stored_object_of

_NAME_TRIES = 8
_TRUSTS: Final = ContextVar("trusts", default=False)
"""Whether validation has no effect; another thread that prepares an object meanwhile has its own value."""

T = TypeVar("T")


class InTurn(Protocol):
    """Runs work that changes the store in the thread that owns it."""

    def __call__(self, work: Callable[[], T], /) -> T:
        """Returns the result of the work."""
        ...


def _at_once(work: Callable[[], T]) -> T:
    """Returns the turns of an owner that makes all writes itself."""
    return work()


class Registry:
    """Every object of one cluster. The objects in the store at start are registered at once.

    `choose(n)` returns a number from 0 to n - 1: the search for a free address or port starts there. `lost` names
    allocations of stored objects that were not available at start. `kinds` is the catalogue of the cluster, that of the
    built-in kinds by default. `grace_s(strategy, obj, requested)`: how long a deleted object stays.
    Differs: by default 0 also for Pods, since no containers run.

    Owned objects (the IPAddresses of a Service) are made and removed together with their owner. The journal writes the
    commits of one step as one transaction: after a crash both exist, or neither.
    """

    def __init__(  # noqa: PLR0913 - what a cluster needs of the world
        self,
        store: Store,
        config: ClusterConfig,
        choose: Choose,
        now_s: Callable[[], float],
        new_uid: Callable[[], str],
        random_suffix: Callable[[], str],
        grace_s: GracePeriod = no_grace_s,
        *,
        metrics: AllocatorMetrics | None = None,
        kinds: Catalogue | None = None,
    ) -> None:
        self.store, self.config, self.kinds = store, config, kinds or built_in()
        self.now_s, self._new_uid, self._random_suffix = now_s, new_uid, random_suffix
        self.services = ServiceAllocator(config, choose, metrics or AllocatorMetrics())
        self.owners = Owners()
        self.lost: list[str] = []
        self.in_turn: InTurn = _at_once
        self.backlog = Backlog()
        self.deletion = Deletion(self, grace_s)
        self._restore()

    def _restore(self) -> None:
        """Registers the stored objects, and queues the deletions that the last stop interrupted."""
        terminating, uids = [], set()
        for kind in self.kinds.stored:
            restored = self.kinds[kind].restored
            for version in self.store.page(kind, Filter()).items:
                if restored:
                    self.lost += [f"{'/'.join(version.key)}: {what}" for what in restored(self.services, version)]
                metadata = self.owners.learn(version)
                uids.add(metadata.uid)
                if metadata.deletion_timestamp:
                    terminating.append(version)
        self.deletion.go_on(terminating, self.owners.ownerless(uids))
        owning = {kind: self.kinds[kind].owned_objects for kind in self.kinds.stored}
        self._owner_kinds = {owned.kind: kind for kind, owned in owning.items() if owned}
        for kind in self._owner_kinds.values():
            for version in self.store.page(
                kind, Filter()
            ).items:  # a release without owned objects may have stored them
                self._accompany(kind, version.key, None, version)

    def create(
        self, request: Request, obj: Json, entries: Entries | None = None, instead_of: StoredObject | None = None
    ) -> StoredObject:
        """Stores a new object; `entries` are its managedFields if it is applied. A dry run returns the object only.

        With `instead_of`, a dry run is one of a cluster without that object.
        """
        kind, namespace, dry_run = request.kind, request.space, request.dry_run
        strategy, txn = self.kinds.strategy(kind, request.served_version), Transaction()
        obj = _serialized(kind, obj)
        object_meta.place(kind, namespace, obj)
        metadata = obj["metadata"]
        is_generated = bool(metadata.get("generateName"))
        self._check_namespace(kind, namespace, metadata.get("name") or metadata.get("generateName") or "")
        name = self._name(kind, namespace, obj)
        self._begin(kind, obj)
        new = strategy.defaults(obj)
        new = strategy.prepare(strategy.prepare_create(_managed(new, entries or [])), None)
        key = listing.key(kind, namespace, name)

        def refuse_existing() -> None:
            if (exists := self.store.get(kind, key)) and exists is not instead_of:
                is_terminating = object_meta.is_terminating(exists.obj)
                raise already_exists(kind, name, is_generated=is_generated, is_terminating=is_terminating)

        def commit() -> StoredObject:
            self._check_namespace(kind, namespace, name)  # another turn may have ended it
            refuse_existing()
            version = self.put(draft, None, txn)
            self.deletion.owned(version)
            self.backlog.begin()
            return version

        try:
            self._allocate(kind, new, None, txn, dry_run=dry_run and not instead_of)
            if strategy.first_status:
                new = {**new, "status": strategy.first_status(new)}
            self._check(kind, new, strategy.validate(new, None))
            refuse_existing()
            draft = self.draft(kind, new)
            if not dry_run:
                return self.in_turn(commit)
        except BaseException:
            self.in_turn(txn.revert)
            raise
        self.in_turn(txn.revert)
        return draft.without_revision()

    def check_successor(self, request: Request, version: StoredObject, obj: Json) -> None:
        """Raises the error of a creation of the object after a deletion of the stored one, and stores nothing."""
        owned_objects = self.kinds[version.kind].owned_objects
        names = sorted(owned_objects.names(version.obj)) if owned_objects else ()
        owned = (self.store.get(owned_objects.kind, ("", name)) for name in names) if owned_objects else ()
        released = [version, *filter(None, owned)]
        for each in released:
            if deleted := self.kinds[each.kind].deleted:
                deleted(self.services, each.obj)
        try:
            self.create(replace(request, dry_run=True), obj, instead_of=version)
        finally:
            for each in released:
                if restored := self.kinds[each.kind].restored:
                    restored(self.services, each)

    def update(
        self, request: Request, version: StoredObject, obj: Json, entries: Entries | None = None
    ) -> StoredObject:
        """Replaces a version; `entries` as for a create. An unchanged object is not committed.

        With a subresource, no more than metadata and status is validated.
        """
        kind, (namespace, name), subresource = version.kind, version.key, request.subresource
        strategy, old, txn = self.kinds.strategy(kind, request.served_version), version.obj, Transaction()
        new = _serialized(kind, obj)
        object_meta.place(kind, namespace, new)
        object_meta.check_address(namespace, name, new)
        object_meta.check_revision(kind, name, new, old, unconditional=strategy.allow_unconditional_update)
        object_meta.carry(old, new)
        new = strategy.defaults(_confined(kind, strategy, old, new, subresource))
        if entries is None:
            entries = managed_fields.entries_of_changed(kind, old, new, self.writer(request))
        if "finalize" in kind.subresources and not subresource:
            new = {**new, "spec": old.get("spec") or {}}  # its finalizers have a manager, but do not change
        new = _managed(new, entries)

        def commit() -> StoredObject:
            if self.store.get(kind, version.key) is not version:
                raise conflict(kind, name, MODIFIED)
            if may_go:
                txn.revert()
                self.deletion.remove(version)
                return draft
            stored = version if draft is version else self.put(draft, version, txn)
            txn.commit()
            if version.metadata.get("ownerReferences") != stored.metadata.get("ownerReferences"):
                self.deletion.released(old)
                self.deletion.owned(stored)
                self.backlog.begin()
            if strategy.spec_finalizers:
                self.deletion.finish_namespace(name)
            return stored

        try:
            new = self._prepared(request, old, new, txn)
            draft, may_go = self._successor(version, new), _may_go(strategy, new)
            if not request.dry_run:
                return self.in_turn(commit)
        except BaseException:
            self.in_turn(txn.revert)
            raise
        self.in_turn(txn.revert)
        return draft

    def _prepared(self, request: Request, old: Json, new: Json, txn: Transaction) -> Json:
        """Returns the replacement of an object, ready to be stored.

        As in kube-apiserver, metadata are validated for all kinds alike and then with the kind: causes occur twice.
        """
        kind, subresource = request.kind, request.subresource
        strategy = self.kinds.strategy(kind, request.served_version)
        if subresource:
            causes = _common(kind, old, new) + validate_meta_update(old, new)
            if rules := strategy.validate_subresource.get(subresource):
                causes += rules(new, old)
        else:
            new = strategy.prepare(new, old)
            self._allocate(kind, new, old, txn, dry_run=request.dry_run)
            causes = _common(kind, old, new) + strategy.validate(new, old)
        self._check(kind, new, causes)
        return new

    def _successor(self, version: StoredObject, new: Json) -> StoredObject:
        """Returns the draft that replaces a version: the version itself if nothing but times of managers changes."""
        kind, old = version.kind, version.obj
        exact = exact_of(kind, self._on_read(kind, new), version.revision)
        metadata, before = exact["metadata"], old["metadata"].get("managedFields")
        now = metadata.get("managedFields")
        is_same_writer = before and now and managed_fields.same_but_for_times(before, now)
        if old == ({**exact, "metadata": {**metadata, "managedFields": before}} if is_same_writer else exact):
            return version
        counted = self.kinds[kind].generation
        if counted and counted(old) != counted(exact):
            generation = (old["metadata"].get("generation") or 0) + 1
            counted_metadata = serialized(kind, {"metadata": {**metadata, "generation": generation}})["metadata"]
            exact = {**exact, "metadata": counted_metadata}
        return StoredObject.of(kind, version.key, version.revision, exact)

    def draft(self, kind: Kind, obj: Json) -> StoredObject:
        """Returns an object as `put` takes it. Any thread may call it."""
        key = listing.key(kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        return stored_object_of(kind, key, self._on_read(kind, obj), 0)

    def put(self, draft: StoredObject, replaces: StoredObject | None, txn: Transaction | None = None) -> StoredObject:
        """Stores a draft under the next revision, and commits its allocations."""
        version = self.store.commit(draft, replaces)
        if txn:
            txn.commit()
        self.owners.track(replaces, version)
        if stored := self.kinds[version.kind].stored:
            stored(self.services, version.obj)
        self._accompany(version.kind, version.key, replaces, version)
        return version

    def remove(self, version: StoredObject) -> StoredObject:
        """Removes an object and releases its allocations; returns its last state."""
        last = self.store.delete(version)
        self.owners.track(version, None)
        if deleted := self.kinds[version.kind].deleted:
            deleted(self.services, version.obj)
        self._accompany(version.kind, version.key, version, None)
        return last

    def user_of(self, version: StoredObject) -> StoredObject | None:
        """Returns the object that has this owned object, such as the Service of an IPAddress; else None."""
        if (kind := self._owner_kinds.get(version.kind)) and (owned_objects := self.kinds[kind].owned_objects):
            key = owned_objects.owner(version.obj)
            owner = self.store.get(kind, key) if key else None
            return owner if owner and version.key[1] in owned_objects.names(owner.obj) else None
        return None

    @contextmanager
    def without_validation(self) -> Iterator[None]:
        """Disables validation inside: for the server's own objects, whose endpoints may be on loopback."""
        token = _TRUSTS.set(True)
        try:
            yield
        finally:
            _TRUSTS.reset(token)

    def _accompany(self, of: Kind, owner: Key, old: StoredObject | None, new: StoredObject | None) -> None:
        """Makes the owned objects that an object gained, and removes those that it lost.

        One that is held by a finalizer, or that belongs to another object, stays.
        """
        owned_objects = self.kinds[of].owned_objects
        if owned_objects is None or (old and new and owned_objects.source(old.obj) == owned_objects.source(new.obj)):
            return
        kind = owned_objects.kind
        before, now = (owned_objects.names(each.obj if each else None) for each in (old, new))
        for name in sorted(before - now):
            version = self.store.get(kind, ("", name))
            if version and owned_objects.owner(version.obj) == owner and not version.metadata.get("finalizers"):
                self.remove(version)
        for name in sorted(now - before):
            if self.store.get(kind, ("", name)) is None:
                obj = owned_objects.make(owner, name)
                self._begin(kind, obj)
                self.put(self.draft(kind, obj), None)

    def _allocate(self, kind: Kind, new: Json, old: Json | None, txn: Transaction, *, dry_run: bool) -> None:
        if allocate := self.kinds[kind].allocate:
            self.in_turn(lambda: allocate(self.services, new, old, txn, dry_run=dry_run))

    def _check(self, kind: Kind, obj: Json, causes: list[Cause]) -> None:
        if causes and not _TRUSTS.get():
            raise invalid(kind, obj["metadata"].get("name") or "", causes)

    def _check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        if kind.namespaced:
            namespaces.check_creation(self.store.get(NAMESPACE, ("", namespace)), kind, namespace, name)

    def _begin(self, kind: Kind, obj: Json) -> None:
        is_counted = self.kinds[kind].generation is not None
        object_meta.begin(obj, self._new_uid(), self.now_s(), generation=is_counted)

    def _name(self, kind: Kind, namespace: str, obj: Json) -> str:
        generated = not obj["metadata"].get("name")
        name = object_meta.name_new(obj, self._random_suffix() if generated else "")
        for _try in range(_NAME_TRIES if generated else 0):
            if self.store.get(kind, listing.key(kind, namespace, name)) is None:
                break
            obj["metadata"]["name"] = ""
            name = object_meta.name_new(obj, self._random_suffix())
        return name

    def _on_read(self, kind: Kind, obj: Json) -> Json:
        """Returns the object with the fields that older versions of kdns did not store."""
        fill = self.kinds[kind].on_read
        return fill(obj, self.config.families) if fill else obj

    def writer(self, request: Request) -> Writer:
        return Writer(request.manager, request.subresource, object_meta.timestamp(self.now_s()))


def _serialized(kind: Kind, obj: Json) -> Json:
    """Returns what a client sent, which its request has serialized, or an object of a program as Go serializes it."""
    return obj if isinstance(obj, Serialized) else serialized(kind, object_meta.typed(kind, obj))


def _managed(obj: Json, entries: Entries) -> Json:
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": {**metadata, "managedFields": entries} if entries else metadata}


_FIELDS = {"status": "status", "finalize": "spec"}
"""Subresource → the field that it may change beside metadata."""


def _confined(kind: Kind, strategy: Strategy, old: Json, new: Json, subresource: str) -> Json:
    """Returns the new object with all that the (sub)resource may not change from the old one."""
    if field := _FIELDS.get(subresource):
        metadata = {name: value for name, value in new["metadata"].items() if name != "generateName"}
        if "generateName" in old["metadata"]:
            metadata["generateName"] = old["metadata"]["generateName"]
        kept = without_nulls({**old, "metadata": metadata, field: new.get(field)})
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


def _common(kind: Kind, old: Json, new: Json) -> list[Cause]:
    """Checks the rules of updates that all kinds share."""
    marks = validate_meta(new, formats.path_segment, namespaced=kind.namespaced, any_finalizer=True)
    return marks + validate_meta_update(old, new)
