"""The verbs of the Kubernetes API on the objects of one cluster, without HTTP.

A write goes: type and metadata → defaults → managedFields → preparation, allocation, validation (strategy of the kind)
→ encoding → store. Arguments are not changed. Results are shared, except those of `get`. One thread owns it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.errors import Cause, already_exists, invalid, not_found
from kdns.controlplane.apimachinery.kinds import NAMESPACE, Json, Kind
from kdns.controlplane.apimachinery.size import check_size
from kdns.controlplane.cluster_config import ClusterConfig
from kdns.controlplane.fieldmanager import managed_fields
from kdns.controlplane.fieldmanager.apply import apply, check_kind, check_structure
from kdns.controlplane.fieldmanager.managed_fields import Entries, Writer
from kdns.controlplane.gc import namespaces
from kdns.controlplane.gc.backlog import Backlog
from kdns.controlplane.gc.deletion import Deletion
from kdns.controlplane.gc.objects import Objects
from kdns.controlplane.kinds.catalogue import Catalogue
from kdns.controlplane.kinds.conversion import Conversion
from kdns.controlplane.kinds.defaults import without_nulls
from kdns.controlplane.kinds.served import ServedKinds
from kdns.controlplane.kinds.service.allocation import ServiceAllocator
from kdns.controlplane.kinds.service.allocator import Choose
from kdns.controlplane.kinds.strategy import Strategy
from kdns.controlplane.kinds.validation import validate_meta, validate_meta_update
from kdns.controlplane.schema.field_validation import Policy
from kdns.controlplane.schema.schema import object_of
from kdns.controlplane.schema.serialization import Serialized, serialized
from kdns.controlplane.server.patch import patched
from kdns.controlplane.storage import listing, object_meta
from kdns.controlplane.storage.listing import ListOptions, ListResult
from kdns.controlplane.storage.store import Filter, Store, StoredObject, Subscription, exact_of, stored_object_of

_ALL = ListOptions()
_NAME_TRIES = 8


def _same(obj: Json) -> Json:
    return obj


class Request(msgspec.Struct, frozen=True):
    """The resource, and the options of a write. Without a `name` it is a collection.

    `namespace` None means all namespaces, or a cluster-scoped kind. Objects are read and written as the kind
    `served_version`. A write without a `manager` adds no managedFields.
    """

    kind: Kind
    namespace: str | None = None
    name: str = ""
    subresource: str = ""
    served_version: Kind | None = None
    manager: str = ""
    dry_run: bool = False
    force: bool = False
    policy: Policy = "Warn"

    @property
    def key(self) -> Key:
        """The namespace is "" for cluster-scoped objects."""
        return ((self.namespace or "") if self.kind.namespaced else "", self.name)


class Registry:
    """Every object of one cluster; those in the store at the start are registered at once.

    The search for a free address or port starts at `choose(n)`, a number from 0 to n - 1. `lost` names allocations of
    stored objects that were not available at the start. `kinds` defaults to the built-in kinds. With `grace`, deleted
    Pods stay for their grace period. `backlog` is the work that follows from deletions.
    """

    def __init__(
        self,
        store: Store,
        config: ClusterConfig,
        choose: Choose,
        now_s: Callable[[], float],
        new_uid: Callable[[], str],
        random_suffix: Callable[[], str],
        *,
        grace: bool = False,
        kinds: Catalogue | None = None,
    ) -> None:
        self.store, self.config, self.kinds = store, config, kinds or ServedKinds()
        self.now_s, self._random_suffix = now_s, random_suffix
        self.services = ServiceAllocator(config, choose)
        self._objects = Objects(store, self.kinds, config, self.services, now_s, new_uid)
        self.lost, self.backlog = self._objects.lost, Backlog()
        self.deletion = Deletion(self._objects, self.backlog, grace=grace)
        self._validates = True

    # Reads

    def find(self, request: Request) -> StoredObject:
        """Raises 404 if the object does not exist."""
        version = self.store.get(request.kind, request.key)
        if version is None:
            raise not_found(request.kind, request.name)
        return version

    def shown(self, request: Request) -> StoredObject:
        """An object, or its subresource, as the served version. Raises 404 if it does not exist."""
        return _shown(self.find(request), self._conversion(request))

    def get(self, request: Request) -> Json:
        """`shown` as a new value."""
        return self.shown(request).copy()

    def list(self, request: Request, options: ListOptions = _ALL) -> ListResult:
        return listing.page(self.store, request.kind, self._filter(request, options), options)

    def watch(self, request: Request, options: ListOptions = _ALL) -> Subscription:
        """See listing.subscribe. The caller sends bookmarks, with `store.revision`."""
        return listing.subscribe(self.store, request.kind, self._filter(request, options), options)

    # Writes

    def create(
        self, request: Request, obj: Json, entries: Entries | None = None, *, instead_of: StoredObject | None = None
    ) -> StoredObject:
        """Stores a new object; `entries` are its managedFields if it is applied. A dry run only returns the object.

        Arguments and results of writes have the kind of the served version. With `instead_of`, a dry run assumes that
        this object does not exist.
        """
        kind, (namespace, _), dry_run = request.kind, request.key, request.dry_run
        conversion = self.kinds.conversion(request.served_version) if request.served_version else None
        if conversion and entries is None:
            obj = conversion.write({}, object_meta.typed(conversion.kind, obj))
        strategy = self.kinds.strategy(kind, request.served_version)
        new = _serialized(kind, obj)
        object_meta.set_namespace(kind, namespace, new)
        metadata = new["metadata"]
        if kind.namespaced:
            holder = self.store.get(NAMESPACE, ("", namespace))
            if holder is None or holder.metadata.get("deletionTimestamp"):
                raise namespaces.refusal(holder, kind, namespace, metadata)
        name = metadata.get("name") or self._generated_name(kind, namespace, new)
        is_generated = bool(metadata.get("generateName"))
        self._objects.set_server_fields(new, generation=strategy.generation is not None)
        new = strategy.defaults(new)
        if entries or "managedFields" in metadata:
            new = _managed(new, entries or [])
        new = strategy.prepare(new, None)
        if strategy.hooks and strategy.hooks.allocate:
            strategy.hooks.allocate(self.services, new, None, dry_run=dry_run and not instead_of)
        if causes := strategy.validate(new, None):
            self._check(kind, name, causes)
        key = (namespace, name)
        if (exists := self.store.get(kind, key)) and exists is not instead_of:
            is_terminating = object_meta.is_terminating(exists.obj)
            raise already_exists(kind, name, is_generated=is_generated, is_terminating=is_terminating)
        draft = self._objects.draft(kind, new, key)
        if dry_run:
            return _shown(draft.without_revision(), conversion)
        version = self._objects.put(draft, None)
        if metadata.get("ownerReferences"):
            self.deletion.owned(version)
            self.backlog.begin()
        return _shown(version, conversion) if conversion else version

    def check_successor(self, request: Request, obj: Json) -> None:
        """Raises the error of a create of this object after a delete of the stored one, and stores nothing."""
        version = self.find(request)
        hooks = self.kinds[version.kind].hooks
        freed = [version] if hooks and hooks.allocate else []
        if hooks and hooks.owned:
            names = sorted(hooks.owned.names(version.obj))
            freed += filter(None, (self.store.get(hooks.owned.kind, ("", name)) for name in names))
        followed = [(owned.obj, freeing.follow) for owned in freed if (freeing := self.kinds[owned.kind].hooks)]
        for stored, follow in followed:
            follow(self.services, stored, None)
        try:
            self.create(msgspec.structs.replace(request, dry_run=True), obj, instead_of=version)
        finally:
            for stored, follow in followed:
                follow(self.services, None, stored)

    def update(self, request: Request, obj: Json) -> StoredObject:
        """Replaces an object, or only its status. Raises 409 if it changed, or was recreated, since it was read."""
        kind, name = request.kind, request.name
        object_meta.check_address(request.key[0], name, obj)
        version, uid = self.store.get(kind, request.key), obj["metadata"].get("uid") or ""
        if version is None and (request.subresource or not self.kinds[kind].allow_create_on_update):
            raise not_found(kind, name)
        object_meta.check_uid(kind, name, uid, version.obj if version else None)
        if version is None:
            return self.create(request, _without_revision(obj))
        conversion = self._conversion(request)
        sent = conversion.write(version.obj, object_meta.typed(conversion.kind, obj)) if conversion else obj
        return _shown(self._replace(request, version, sent), conversion)

    def patch(
        self, request: Request, patch_type: str, patch: Any, validate: Callable[[Json], Json] = _same
    ) -> StoredObject:
        """`validate` gets the patched object first; `patch_type` is one of patch.PATCH_TYPES."""
        version, conversion = self.find(request), self._conversion(request)
        shown = _shown(version, conversion)
        sent = patched(shown.copy(), patch_type, patch, object_of(shown.kind))
        check_size(sent)
        sent = validate(sent)
        if conversion:
            object_meta.check_address(request.key[0], request.name, sent)
            object_meta.check_uid(request.kind, request.name, sent["metadata"].get("uid") or "", version.obj)
            sent = conversion.write(version.obj, object_meta.typed(conversion.kind, sent))
        return _shown(self._replace(request, version, sent), conversion)

    def apply(self, request: Request, config: Json, validate: Callable[[Json], Json] = _same) -> StoredObject:
        """Server-side apply; the object need not exist."""
        kind, version, conversion = request.kind, self.store.get(request.kind, request.key), self._conversion(request)
        if version is None and request.subresource:
            raise not_found(kind, request.name)
        check_kind(conversion.kind if conversion else kind, config)
        if conversion:
            check_structure(conversion.kind, config)
            config = conversion.configuration(kind, config)
        obj = apply(kind, version.obj if version else None, config, self.writer(request), force=request.force)
        check_size(obj)
        object_meta.check_address(request.key[0], request.name, obj)
        if version is None:
            object_meta.check_uid(kind, request.name, obj["metadata"].get("uid") or "", None)
            obj = _without_revision(obj)
        obj = validate(obj)
        entries = obj["metadata"].get("managedFields") or []
        if version is None:
            return self.create(request, obj, entries)
        return _shown(self._replace(request, version, obj, entries), conversion)

    def delete(self, request: Request, options: Json | None = None) -> StoredObject:
        """The last state of a deleted object, or the current one if finalizers or a grace period hold it."""
        last = self.deletion.delete(self.find(request), options or {}, dry_run=request.dry_run)
        return _shown(last, self._conversion(request))

    def delete_all(self, request: Request, versions: Iterable[StoredObject], options: Json | None = None) -> None:
        """Deletes the current versions of listed objects that still exist."""
        for listed in versions:
            if version := self.store.get(request.kind, listed.key):
                self.deletion.delete(version, options or {}, dry_run=request.dry_run)

    @contextmanager
    def without_validation(self) -> Iterator[None]:
        """The server's own objects may have endpoints on loopback."""
        before, self._validates = self._validates, False
        try:
            yield
        finally:
            self._validates = before

    def writer(self, request: Request) -> Writer:
        return Writer(request.manager, request.subresource, object_meta.timestamp(self.now_s()))

    def _replace(
        self, request: Request, version: StoredObject, obj: Json, entries: Entries | None = None
    ) -> StoredObject:
        """Replaces a version; `entries` as for a create. An unchanged object is not committed.

        With a subresource, only metadata and status are validated.
        """
        kind, (namespace, name), subresource = version.kind, version.key, request.subresource
        strategy, old = self.kinds.strategy(kind, request.served_version), version.obj
        new = _serialized(kind, obj)
        object_meta.set_namespace(kind, namespace, new)
        object_meta.check_address(namespace, name, new)
        object_meta.check_revision(kind, name, new, old, unconditional=strategy.allow_unconditional_update)
        object_meta.carry_server_fields(old, new)
        new = strategy.defaults(_confined(kind, strategy, old, new, subresource))
        if entries is None:
            entries = managed_fields.entries_of_changed(kind, old, new, self.writer(request))
        if "finalize" in kind.subresources and not subresource:
            new = {**new, "spec": old.get("spec") or {}}  # its finalizers have a manager, but do not change
        new = self._prepared(request, strategy, old, _managed(new, entries))
        draft = self._successor(version, new)
        if request.dry_run:
            return draft
        if _is_released(kind, new):
            self.deletion.remove(version)
            return draft
        stored = version if draft is version else self._objects.put(draft, version)
        if old["metadata"].get("ownerReferences") != stored.metadata.get("ownerReferences"):
            self.deletion.released(old)
            self.deletion.owned(stored)
            self.backlog.begin()
        if kind is NAMESPACE:
            self.deletion.finish_namespace(name)
        return stored

    def _prepared(self, request: Request, strategy: Strategy, old: Json, new: Json) -> Json:
        """The replacement of an object, validated.

        As in kube-apiserver, metadata are validated for all kinds alike and then with the kind, so causes occur twice.
        """
        kind, subresource = request.kind, request.subresource
        if subresource:
            causes = _common(kind, old, new) + validate_meta_update(old, new)
            if rules := strategy.subresources.get(subresource):
                causes += rules.validate(new, old)
        else:
            new = strategy.prepare(new, old)
            if strategy.hooks and strategy.hooks.allocate:
                strategy.hooks.allocate(self.services, new, old, dry_run=request.dry_run)
            causes = _common(kind, old, new) + strategy.validate(new, old)
        self._check(kind, new["metadata"].get("name") or "", causes)
        return new

    def _successor(self, version: StoredObject, new: Json) -> StoredObject:
        """The draft that replaces a version: the version itself if nothing but times of managers changes."""
        kind, old = version.kind, version.obj
        exact = exact_of(kind, self._objects.on_read(kind, new), version.revision)
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
        return StoredObject(kind, version.key, version.revision, msgspec.json.encode(exact), exact)

    def _check(self, kind: Kind, name: str, causes: Sequence[Cause]) -> None:
        if causes and self._validates:
            raise invalid(kind, name, causes)

    def _generated_name(self, kind: Kind, namespace: str, obj: Json) -> str:
        """A free name from generateName, unless the object has a name. "", which is invalid, without both."""
        name = object_meta.ensure_name(obj, self._random_suffix())
        for _try in range(_NAME_TRIES):
            if self.store.get(kind, (namespace, name)) is None:
                break
            obj["metadata"]["name"] = ""
            name = object_meta.ensure_name(obj, self._random_suffix())
        return name

    def _conversion(self, request: Request) -> Conversion | None:
        if request.subresource == "scale":
            return self.kinds[request.kind].scale.conversion()
        return self.kinds.conversion(request.served_version)

    def _filter(self, request: Request, options: ListOptions) -> Filter:
        labels = self.kinds.field_labels(request.kind, request.served_version)
        return listing.filter_of(request.namespace, options.label_selector, options.field_selector, labels)


def _shown(version: StoredObject, conversion: Conversion | None) -> StoredObject:
    if conversion is None:
        return version
    return stored_object_of(conversion.kind, version.key, conversion.read(version.obj), version.revision)


def _without_revision(obj: Json) -> Json:
    """A PUT or server-side apply that creates an object may have any number as resourceVersion."""
    object_meta.sent_revision(obj)  # 500 for any other text
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": ""}}


def _serialized(kind: Kind, obj: Json) -> Json:
    """Objects of requests are serialized already; objects of programs are not."""
    return obj if isinstance(obj, Serialized) else serialized(kind, object_meta.typed(kind, obj))


def _managed(obj: Json, entries: Entries) -> Json:
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": {**metadata, "managedFields": entries} if entries else metadata}


_FIELDS = {"status": "status", "finalize": "spec"}
"""The field that a subresource may change beside metadata."""


def _confined(kind: Kind, strategy: Strategy, old: Json, new: Json, subresource: str) -> Json:
    if field := _FIELDS.get(subresource):
        metadata = {name: value for name, value in new["metadata"].items() if name != "generateName"}
        if "generateName" in old["metadata"]:
            metadata["generateName"] = old["metadata"]["generateName"]
        confined = without_nulls({**old, "metadata": metadata, field: new.get(field)})
        rules = strategy.subresources.get(subresource)
        return rules.prepare(confined, old) if rules else confined
    if "status" not in kind.subresources:
        return new
    confined = {name: value for name, value in new.items() if name != "status"}
    return {**confined, "status": old["status"]} if "status" in old else confined


def _is_released(kind: Kind, obj: Json) -> bool:
    """A terminating object without finalizers and without grace period."""
    metadata = obj["metadata"]
    is_held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return bool(metadata.get("deletionTimestamp")) and not is_held and kind is not NAMESPACE


def _common(kind: Kind, old: Json, new: Json) -> list[Cause]:
    causes = validate_meta(new, formats.path_segment, namespaced=kind.namespaced, any_finalizer=True)
    return causes + validate_meta_update(old, new)
