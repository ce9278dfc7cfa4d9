"""The verbs of the Kubernetes API over store and strategies, without HTTP. Not thread-safe: one event loop owns it.

A write goes: type and metadata → strategies (defaults, allocation, validation) → store → allocation committed, or
reverted when anything after it failed. What a client passes in is copied; what comes out of `get` and the writes is the
caller's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kdns.controlplane import listing, metadata, namespaces_lifecycle, schema
from kdns.controlplane.commits import Commits, Strategies
from kdns.controlplane.deletion import Deletion
from kdns.controlplane.kinds import (
    CLAIM,
    CRON_JOB,
    ENDPOINTS,
    EVENT,
    INGRESS,
    JOB,
    NAMESPACE,
    NODE,
    POD,
    SERVICE,
    VOLUME,
    WORKLOADS,
    Json,
    Kind,
)
from kdns.controlplane.listing import ListResult
from kdns.controlplane.metadata import copied
from kdns.controlplane.patch import patched
from kdns.controlplane.status import StatusError, already_exists, bad_request, not_found
from kdns.controlplane.store import Store
from kdns.controlplane.views import view_of
from kdns.controlplane.watch import Stored, Subscription

CREATED_BY_UPDATE = frozenset({SERVICE, ENDPOINTS, EVENT})
"""Kinds that a PUT of a new name creates."""

STATUS_KEPT_APART = frozenset({CLAIM, CRON_JOB, INGRESS, JOB, VOLUME, SERVICE, POD, NODE, NAMESPACE, *WORKLOADS})
"""Kinds whose status only changes through the status subresource."""

_NAME_TRIES = 8


def _same(obj: Json) -> Json:
    return obj


def _at_once(_kind: Kind, _obj: Json, _requested_s: int | None) -> int:
    return 0


class Api:
    """One API server's state and rules.

    `grace_s(kind, obj, requested)` says how long a deleted object stays with a deletionTimestamp.
    Differs: by default 0 also for Pods, since there are no containers to wait for.
    """

    def __init__(
        self,
        store: Store,
        strategies: Strategies,
        now_s: Callable[[], float],
        new_uid: Callable[[], str],
        random_suffix: Callable[[], str],
        grace_s: Callable[[Kind, Json, int | None], int] = _at_once,
    ) -> None:
        self.store, self.strategies = store, strategies
        self.now_s, self._new_uid, self._random_suffix = now_s, new_uid, random_suffix
        self._commits = Commits(store, strategies)
        self._deletion = Deletion(self._commits, now_s, grace_s)

    def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "") -> Json:
        """The object, or what a subresource shows of it; 404 when there is none."""
        obj, view = self.find(kind, namespace, name).obj, view_of(kind, subresource)
        return copied(view.read(obj) if view else obj)

    def find(self, kind: Kind, namespace: str, name: str) -> Stored:
        """The stored version, shared and encoded; 404 when there is none."""
        version = self.store.get(kind, listing.key(kind, namespace, name))
        if version is None:
            raise not_found(kind, name)
        return version

    def list(
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
    ) -> ListResult:
        """One page of the objects of a namespace, or of all namespaces (None)."""
        wanted = listing.wanted(kind, namespace, label_selector, field_selector)
        return listing.page(
            self.store,
            kind,
            wanted,
            limit=limit,
            continue_token=continue_token,
            resource_version=resource_version,
            match=resource_version_match,
        )

    def watch(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        send_initial: bool | None = None,
    ) -> Subscription:
        """Events from a revision on; see listing.subscribe. Bookmarks are the caller's: they say `store.revision`."""
        wanted = listing.wanted(kind, namespace, label_selector, field_selector)
        return listing.subscribe(self.store, kind, wanted, resource_version=resource_version, send_initial=send_initial)

    def create(self, kind: Kind, namespace: str, obj: Json, *, dry_run: bool = False, field_manager: str = "") -> Json:
        """Store a new object. `field_manager` is accepted and not recorded."""
        _ = field_manager
        obj = metadata.typed(kind, copied(obj))
        metadata.place(kind, namespace, obj)
        generated = not obj["metadata"].get("name")
        name = metadata.name_new(obj, self._random_suffix())
        for _try in range(_NAME_TRIES if generated else 0):
            if self.store.get(kind, listing.key(kind, namespace, name)) is None:
                break
            obj["metadata"]["name"] = ""
            name = metadata.name_new(obj, self._random_suffix())
        if kind.namespaced:
            namespaces_lifecycle.accepts(self.store.get(NAMESPACE, ("", namespace)), kind, namespace, name)
        metadata.begin(kind, obj, self._new_uid(), self.now_s())
        if kind == NAMESPACE:
            namespaces_lifecycle.begin(obj)
        prepared = self.strategies.create(kind, obj, dry_run=dry_run)
        try:
            if self.store.get(kind, listing.key(kind, namespace, name)):
                raise already_exists(kind, name)
            if dry_run:
                prepared.revert()
                return copied(prepared.obj)
            return copied(self._commits.put(kind, prepared.obj, None, prepared).obj)
        except StatusError:
            prepared.revert()
            raise

    def update(
        self, kind: Kind, namespace: str, name: str, obj: Json, *, subresource: str = "", dry_run: bool = False
    ) -> Json:
        """Replace an object, or only its status; 409 when it changed since the caller read it."""
        version = self.store.get(kind, listing.key(kind, namespace, name))
        if version is None:
            metadata_sent = obj.get("metadata") or {}
            if kind in CREATED_BY_UPDATE and not subresource and not metadata_sent.get("uid"):
                return self.create(kind, namespace, _named(obj, name), dry_run=dry_run)
            raise not_found(kind, name)
        view = view_of(kind, subresource)
        if view is None:
            return self._update(version, copied(obj), subresource, dry_run=dry_run)
        sent = view.write(copied(version.obj), metadata.typed(view.kind, copied(obj)))
        return view.read(self._update(version, sent, subresource, dry_run=dry_run))

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch_type: str,
        patch: Any,
        *,
        subresource: str = "",
        dry_run: bool = False,
        review: Callable[[Json], Json] = _same,
    ) -> Json:
        """Change an object by a patch (patch.PATCH_TYPES); `review` sees the patched object before it is checked."""
        version, view = self.find(kind, namespace, name), view_of(kind, subresource)
        if view is None:
            changed = patched(copied(version.obj), patch_type, patch, schema.patch_schema(kind))
            return self._update(version, review(changed), subresource, dry_run=dry_run)
        shown = patched(view.read(copied(version.obj)), patch_type, patch, schema.patch_schema(view.kind))
        sent = view.write(copied(version.obj), metadata.typed(view.kind, review(shown)))
        return view.read(self._update(version, sent, subresource, dry_run=dry_run))

    def delete(
        self, kind: Kind, namespace: str, name: str, *, options: Json | None = None, dry_run: bool = False
    ) -> Json:
        """Delete an object: its last state, or its present one when finalizers or a grace period hold it."""
        version = self.find(kind, namespace, name)
        return copied(self._deletion.delete(version, options or {}, dry_run=dry_run).obj)

    def delete_collection(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        options: Json | None = None,
        dry_run: bool = False,
    ) -> ListResult:
        """Delete everything a list would show; what was listed."""
        found = self.list(kind, namespace, label_selector=label_selector, field_selector=field_selector)
        for version in found.stored:
            if self.store.get(kind, version.key):
                self.delete(kind, *version.key, options=options, dry_run=dry_run)
        return found

    def _update(self, version: Stored, obj: Json, subresource: str, *, dry_run: bool) -> Json:
        kind, (namespace, name) = version.kind, version.key
        old = copied(version.obj)
        new = metadata.typed(kind, obj)
        metadata.place(kind, namespace, new)
        metadata.match(kind, name, new, old)
        metadata.carry(old, new)
        new = _confined(kind, old, new, subresource)
        prepared = self.strategies.update(kind, old, new, subresource=subresource, dry_run=dry_run)
        new = prepared.obj
        metadata.bump(kind, version.obj, new)
        new["metadata"]["resourceVersion"] = version.obj["metadata"]["resourceVersion"]
        if dry_run:
            prepared.revert()
            return copied(new)
        try:
            if new == version.obj:
                prepared.commit()
            else:
                version = self._commits.put(kind, new, version, prepared)
        except StatusError:
            prepared.revert()
            raise
        if _may_go(version):
            return copied(self._deletion.remove(version).obj)
        if kind == NAMESPACE:
            self._deletion.finish_namespace(name)
        return copied(version.obj)


def _named(obj: Json, name: str) -> Json:
    sent = obj.get("metadata") or {}
    if (sent.get("name") or name) != name:
        raise bad_request(f"the name of the object ({sent['name']}) does not match the name on the URL ({name})")
    return {**obj, "metadata": {**sent, "name": name, "resourceVersion": ""}}


def _confined(kind: Kind, old: Json, new: Json, subresource: str) -> Json:
    """The new object with everything the (sub)resource may not touch taken from the old one."""
    if subresource in {"status", "finalize"}:
        field = "status" if subresource == "status" else "spec"
        kept = {**old, "metadata": new["metadata"], field: new.get(field)}
        return {name: value for name, value in kept.items() if value is not None}
    if kind not in STATUS_KEPT_APART:
        return new
    kept = {name: value for name, value in new.items() if name != "status"}
    return {**kept, "status": old["status"]} if "status" in old else kept


def _may_go(version: Stored) -> bool:
    """Whether an object being deleted lost its last finalizer and has no grace period left."""
    marks = version.obj["metadata"]
    waits = marks.get("finalizers") or marks.get("deletionGracePeriodSeconds")
    return bool(marks.get("deletionTimestamp")) and not waits and version.kind != NAMESPACE
