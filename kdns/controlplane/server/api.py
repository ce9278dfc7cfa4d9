"""The verbs of the Kubernetes API over store and strategies, without HTTP.

One thread owns it; see `Api.share` for others. A verb makes the new object; writes.py stores it. Arguments are copied;
the results of `get` and of writes belong to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kdns.controlplane.fieldmanager.apply import apply, check_kind, check_structure
from kdns.controlplane.meta.errors import not_found
from kdns.controlplane.meta.kinds import Json, Kind
from kdns.controlplane.resources.registry import Registry
from kdns.controlplane.schema.patch import patch_schema
from kdns.controlplane.schema.serialization import serialized
from kdns.controlplane.server.conversions import conversion_of
from kdns.controlplane.server.deletion import Deletion, GracePeriod, no_grace_s
from kdns.controlplane.server.object_store import ObjectStore
from kdns.controlplane.server.patch import patched
from kdns.controlplane.server.writes import InTurn, Writes
from kdns.controlplane.storage import listing, object_meta
from kdns.controlplane.storage.backlog import Backlog
from kdns.controlplane.storage.listing import ListResult
from kdns.controlplane.storage.object_meta import copied
from kdns.controlplane.storage.store import Store
from kdns.controlplane.storage.watch import Filter, StoredObject, Subscription


def _same(obj: Json) -> Json:
    return obj


class Api:
    """One API server's state and rules.

    `backlog` is the work that follows from deletions. `grace_s(kind, obj, requested)`: how long a deleted object stays.
    Differs: by default 0 also for Pods, since no containers run.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        now_s: Callable[[], float],
        new_uid: Callable[[], str],
        random_suffix: Callable[[], str],
        grace_s: GracePeriod = no_grace_s,
    ) -> None:
        self.store, self.registry, self.kinds = store, registry, registry.kinds
        self.now_s = now_s
        self.is_shared = False

        def begin(kind: Kind, obj: Json) -> None:
            object_meta.begin(obj, new_uid(), now_s(), generation=self.kinds[kind].generation is not None)

        objects = ObjectStore(store, registry, begin)
        self.backlog = Backlog()
        self._deletion = Deletion(objects, now_s, grace_s, self.backlog)
        self._writes = Writes(objects, self._deletion, now_s, new_uid, random_suffix)

    def share(self, in_turn: InTurn) -> None:
        """Let other threads create, update, patch and apply."""
        self._writes.in_turn = self.registry.in_turn = in_turn
        self.is_shared = True

    def get(
        self, kind: Kind, namespace: str, name: str, *, subresource: str = "", served_version: Kind | None = None
    ) -> Json:
        """Returns the object, or its subresource, in the served version. Raises 404 if it does not exist."""
        obj, conversion = (
            self.find(kind, namespace, name).obj,
            conversion_of(self.kinds, kind, subresource, served_version),
        )
        return copied(conversion.read(obj) if conversion else obj)

    def find(self, kind: Kind, namespace: str, name: str) -> StoredObject:
        """Returns the stored version, which is shared. Raises 404 if it does not exist."""
        version = self.store.get(kind, listing.key(kind, namespace, name))
        if version is None:
            raise not_found(kind, name)
        return version

    def list(  # noqa: PLR0913 - the parameters of a request
        self,
        kind: Kind,
        namespace: str | None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
        resource_version_match: str = "",
        served_version: Kind | None = None,
    ) -> ListResult:
        """Returns one page of objects; `namespace` None means all. Selectors name fields of the `served_version`."""
        wanted = listing.filter_of(
            namespace, label_selector, field_selector, self.kinds.field_labels(kind, served_version)
        )
        return listing.page(
            self.store,
            kind,
            wanted,
            limit=limit,
            continue_token=continue_token,
            resource_version=resource_version,
            match=resource_version_match,
        )

    def looked_at(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        served_version: Kind | None = None,
    ) -> Iterator[StoredObject]:
        """Yields the stored objects that the selectors of a list or watch read, after decoding the previous one."""
        wanted, found = (
            listing.filter_of(namespace, label_selector, field_selector, self.kinds.field_labels(kind, served_version)),
            0,
        )
        if not wanted.selects:
            return
        for version in self.store.page(kind, Filter(namespace)).items:
            yield version
            found += wanted.matches(version)
            if found > limit > 0:
                return

    def watch(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        send_initial: bool | None = None,
        served_version: Kind | None = None,
    ) -> Subscription:
        """Returns a watch from a revision on; see listing.subscribe.

        The caller sends bookmarks, with `store.revision`.
        """
        wanted = listing.filter_of(
            namespace, label_selector, field_selector, self.kinds.field_labels(kind, served_version)
        )
        return listing.subscribe(self.store, kind, wanted, resource_version=resource_version, send_initial=send_initial)

    def create(
        self,
        kind: Kind,
        namespace: str,
        obj: Json,
        *,
        dry_run: bool = False,
        field_manager: str = "",
        served_version: Kind | None = None,
    ) -> Json:
        """Stores a new object. With a `served_version`, arguments and results of writes have that kind.

        Without a `field_manager`, a write adds no managedFields.
        """
        obj, conversion = copied(obj), self.kinds.conversion(served_version)
        sent = conversion.write({}, object_meta.typed(conversion.kind, obj)) if conversion else obj
        made = self._writes.create(kind, namespace, sent, self._writes.writer(field_manager), dry_run=dry_run)
        return conversion.read(made) if conversion else made

    def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        obj: Json,
        *,
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        served_version: Kind | None = None,
    ) -> Json:
        """Replaces an object, or its status alone. Raises 409 if it changed, or was recreated, since it was read."""
        object_meta.check_address(namespace, name, obj)
        version, uid = self.store.get(kind, listing.key(kind, namespace, name)), obj["metadata"].get("uid") or ""
        creates = self.kinds[kind].allow_create_on_update and not subresource
        if version is None and not creates:
            raise not_found(kind, name)
        object_meta.check_uid(kind, name, uid, version.obj if version else None)
        if version is None:
            new = _without_revision(obj)
            return self.create(
                kind, namespace, new, dry_run=dry_run, field_manager=field_manager, served_version=served_version
            )
        writer, conversion = (
            self._writes.writer(field_manager, subresource),
            conversion_of(self.kinds, kind, subresource, served_version),
        )
        if conversion is None:
            return self._writes.update(version, copied(obj), writer, dry_run=dry_run)
        sent = conversion.write(copied(version.obj), object_meta.typed(conversion.kind, copied(obj)))
        return conversion.read(self._writes.update(version, sent, writer, dry_run=dry_run))

    def patch(  # noqa: PLR0913 - the parameters of a request
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch_type: str,
        patch: Any,
        *,
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        served_version: Kind | None = None,
        validate: Callable[[Json], Json] = _same,
    ) -> Json:
        """Changes an object by a patch (patch.PATCH_TYPES); `validate` gets the patched object first."""
        version, conversion = (
            self.find(kind, namespace, name),
            conversion_of(self.kinds, kind, subresource, served_version),
        )
        writer = self._writes.writer(field_manager, subresource)
        if conversion is None:
            changed = patched(copied(version.obj), patch_type, patch, patch_schema(kind))
            return self._writes.update(version, validate(changed), writer, dry_run=dry_run)
        shown = validate(
            patched(
                serialized(conversion.kind, conversion.read(version.obj)),
                patch_type,
                patch,
                patch_schema(conversion.kind),
            )
        )
        object_meta.check_address(namespace, name, shown)
        object_meta.check_uid(kind, name, shown["metadata"].get("uid") or "", version.obj)
        sent = conversion.write(copied(version.obj), object_meta.typed(conversion.kind, shown))
        return conversion.read(self._writes.update(version, sent, writer, dry_run=dry_run))

    def apply(  # noqa: PLR0913 - the parameters of a request
        self,
        kind: Kind,
        namespace: str,
        name: str,
        config: Json,
        *,
        field_manager: str,
        force: bool = False,
        subresource: str = "",
        dry_run: bool = False,
        served_version: Kind | None = None,
        validate: Callable[[Json], Json] = _same,
    ) -> Json:
        """Applies a configuration to an object, which need not exist (server-side apply)."""
        version, conversion = (
            self.store.get(kind, listing.key(kind, namespace, name)),
            conversion_of(self.kinds, kind, subresource, served_version),
        )
        if version is None and subresource:
            raise not_found(kind, name)
        check_kind(conversion.kind if conversion else kind, config)
        if conversion:
            check_structure(conversion.kind, config)
            config = conversion.configuration(kind, config)
        writer = self._writes.writer(field_manager, subresource)
        obj = apply(kind, version.obj if version else None, config, writer, force=force)
        object_meta.check_address(namespace, name, obj)
        if version is None:
            obj = _new_by_apply(kind, name, obj)
        obj = validate(obj)
        entries = obj["metadata"].get("managedFields") or []
        if version is None:
            made = self._writes.create(kind, namespace, obj, writer, dry_run=dry_run, entries=entries)
        else:
            made = self._writes.update(version, obj, writer, dry_run=dry_run, entries=entries)
        return conversion.read(made) if conversion else made

    def delete(
        self, kind: Kind, namespace: str, name: str, *, options: Json | None = None, dry_run: bool = False
    ) -> Json:
        """Delete an object; returns its last state, or the current one if finalizers or a grace period hold it.

        The result is shared, as that of `find`.
        """
        return self._deletion.delete(self.find(kind, namespace, name), options or {}, dry_run=dry_run).obj

    def delete_all(
        self, kind: Kind, versions: Iterable[StoredObject], *, options: Json | None = None, dry_run: bool = False
    ) -> None:
        """Deletes the current versions of listed objects, as far as they still exist."""
        for version in versions:
            if self.store.get(kind, version.key):
                self.delete(kind, *version.key, options=options, dry_run=dry_run)


def _new_by_apply(kind: Kind, name: str, obj: Json) -> Json:
    object_meta.check_uid(kind, name, obj["metadata"].get("uid") or "", None)
    return _without_revision(obj)


def _without_revision(obj: Json) -> Json:
    """Returns a new object of a PUT or a server-side apply without its resourceVersion, which may be any number."""
    object_meta.sent_revision(obj)  # 500 for any other text
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": ""}}
