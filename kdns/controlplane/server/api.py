"""The verbs of the Kubernetes API over the registry, without HTTP.

One thread owns it; see `Api.share` for others. A verb makes the new object, and the registry stores it. Arguments are
not changed, and results are shared: `get` returns a new value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kdns.controlplane.apimachinery.errors import not_found
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.apimachinery.size import check_size
from kdns.controlplane.fieldmanager.apply import apply, check_kind, check_structure
from kdns.controlplane.kinds.conversion import Conversion
from kdns.controlplane.schema.schema import object_of
from kdns.controlplane.server.conversions import conversion_of
from kdns.controlplane.server.patch import patched
from kdns.controlplane.server.registry import InTurn, Registry
from kdns.controlplane.server.request import Request
from kdns.controlplane.storage import listing, object_meta
from kdns.controlplane.storage.listing import ListOptions, ListResult
from kdns.controlplane.storage.watch import Filter, StoredObject, Subscription, stored_object_of

_ALL = ListOptions()


def _same(obj: Json) -> Json:
    return obj


class Api:
    """One API server's state and rules. `backlog` is the work that follows from deletions."""

    def __init__(self, registry: Registry) -> None:
        self.registry, self.store, self.kinds, self.now_s = registry, registry.store, registry.kinds, registry.now_s
        self.backlog, self.is_shared = registry.backlog, False

    def share(self, in_turn: InTurn) -> None:
        """Let other threads create, update, patch and apply."""
        self.registry.in_turn = in_turn
        self.is_shared = True

    def find(self, request: Request) -> StoredObject:
        """Returns the stored version. Raises 404 if it does not exist."""
        version = self.store.get(request.kind, request.key)
        if version is None:
            raise not_found(request.kind, request.name)
        return version

    def shown(self, request: Request) -> StoredObject:
        """Returns an object, or its subresource, as the served version. Raises 404 if it does not exist."""
        return self._shown(self.find(request), self._conversion(request))

    def get(self, request: Request) -> Json:
        """Returns the same as a new value."""
        return self.shown(request).copy()

    def list(self, request: Request, options: ListOptions = _ALL) -> ListResult:
        """Returns one page of the objects of a kind."""
        return listing.page(self.store, request.kind, self._filter(request, options), options)

    def looked_at(self, request: Request, options: ListOptions) -> Iterator[StoredObject]:
        """Yields the stored objects that the selectors of a list or watch read, after decoding the previous one."""
        wanted, found = self._filter(request, options), 0
        if not wanted.selects:
            return
        for version in self.store.page(request.kind, Filter(request.namespace)).items:
            yield version
            found += wanted.matches(version)
            if found > options.limit > 0:
                return

    def watch(self, request: Request, options: ListOptions = _ALL) -> Subscription:
        """Returns a watch from a revision on; see listing.subscribe.

        The caller sends bookmarks, with `store.revision`.
        """
        return listing.subscribe(self.store, request.kind, self._filter(request, options), options)

    def create(self, request: Request, obj: Json) -> StoredObject:
        """Stores a new object. Arguments and results of writes have the kind of the served version."""
        conversion = self.kinds.conversion(request.served_version)
        sent = conversion.write({}, object_meta.typed(conversion.kind, obj)) if conversion else obj
        return self._shown(self.registry.create(request, sent), conversion)

    def check_successor(self, request: Request, obj: Json) -> None:
        """Raises the error of a creation of this object after a deletion of the stored one, and stores nothing."""
        conversion = self.kinds.conversion(request.served_version)
        sent = conversion.write({}, object_meta.typed(conversion.kind, obj)) if conversion else obj
        self.registry.check_successor(request, self.find(request), sent)

    def update(self, request: Request, obj: Json) -> StoredObject:
        """Replaces an object, or its status alone. Raises 409 if it changed, or was recreated, since it was read."""
        kind, name = request.kind, request.name
        object_meta.check_address(request.space, name, obj)
        version, uid = self.store.get(kind, request.key), obj["metadata"].get("uid") or ""
        if version is None and (request.subresource or not self.kinds[kind].allow_create_on_update):
            raise not_found(kind, name)
        object_meta.check_uid(kind, name, uid, version.obj if version else None)
        if version is None:
            return self.create(request, _without_revision(obj))
        conversion = self._conversion(request)
        sent = conversion.write(version.obj, object_meta.typed(conversion.kind, obj)) if conversion else obj
        return self._shown(self.registry.update(request, version, sent), conversion)

    def patch(
        self, request: Request, patch_type: str, patch: Any, validate: Callable[[Json], Json] = _same
    ) -> StoredObject:
        """Changes an object by a patch (patch.PATCH_TYPES); `validate` gets the patched object first."""
        version, conversion = self.find(request), self._conversion(request)
        shown = self._shown(version, conversion)
        sent = patched(shown.copy(), patch_type, patch, object_of(shown.kind))
        check_size(sent)
        sent = validate(sent)
        if conversion:
            object_meta.check_address(request.space, request.name, sent)
            object_meta.check_uid(request.kind, request.name, sent["metadata"].get("uid") or "", version.obj)
            sent = conversion.write(version.obj, object_meta.typed(conversion.kind, sent))
        return self._shown(self.registry.update(request, version, sent), conversion)

    def apply(self, request: Request, config: Json, validate: Callable[[Json], Json] = _same) -> StoredObject:
        """Applies a configuration to an object, which need not exist (server-side apply)."""
        kind, version, conversion = request.kind, self.store.get(request.kind, request.key), self._conversion(request)
        if version is None and request.subresource:
            raise not_found(kind, request.name)
        check_kind(conversion.kind if conversion else kind, config)
        if conversion:
            check_structure(conversion.kind, config)
            config = conversion.configuration(kind, config)
        writer = self.registry.writer(request)
        obj = apply(kind, version.obj if version else None, config, writer, force=request.force)
        check_size(obj)
        object_meta.check_address(request.space, request.name, obj)
        if version is None:
            object_meta.check_uid(kind, request.name, obj["metadata"].get("uid") or "", None)
            obj = _without_revision(obj)
        obj = validate(obj)
        entries = obj["metadata"].get("managedFields") or []
        if version is None:
            return self._shown(self.registry.create(request, obj, entries), conversion)
        return self._shown(self.registry.update(request, version, obj, entries), conversion)

    def delete(self, request: Request, options: Json | None = None) -> StoredObject:
        """Deletes an object; returns its last state, or the current one if finalizers or a grace period hold it."""
        last = self.registry.deletion.delete(self.find(request), options or {}, dry_run=request.dry_run)
        return self._shown(last, self._conversion(request))

    def delete_all(self, request: Request, versions: Iterable[StoredObject], options: Json | None = None) -> None:
        """Deletes the current versions of listed objects, as far as they still exist."""
        for each in versions:
            if version := self.store.get(request.kind, each.key):
                self.registry.deletion.delete(version, options or {}, dry_run=request.dry_run)

    def _conversion(self, request: Request) -> Conversion | None:
        return conversion_of(self.kinds, request.kind, request.subresource, request.served_version)

    def _shown(self, version: StoredObject, conversion: Conversion | None) -> StoredObject:
        if conversion is None:
            return version
        return stored_object_of(conversion.kind, version.key, conversion.read(version.obj), version.revision)

    def _filter(self, request: Request, options: ListOptions) -> Filter:
        labels = self.kinds.field_labels(request.kind, request.served_version)
        return listing.filter_of(request.namespace, options.label_selector, options.field_selector, labels)


def _without_revision(obj: Json) -> Json:
    """Returns a new object of a PUT or a server-side apply without its resourceVersion, which may be any number."""
    object_meta.sent_revision(obj)  # 500 for any other text
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": ""}}
