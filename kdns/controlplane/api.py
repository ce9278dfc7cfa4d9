"""The verbs of the Kubernetes API over store and strategies, without HTTP. Not thread-safe: one event loop owns it.

A verb says what the object shall be; writes.py brings it into the store. What a client passes in is copied; what comes
out of `get` and the writes is the caller's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kdns.controlplane import listing, metadata, schema
from kdns.controlplane.apply import applied
from kdns.controlplane.backlog import Backlog
from kdns.controlplane.commits import Commits, Strategies
from kdns.controlplane.deletion import Deletion
from kdns.controlplane.kinds import ENDPOINTS, EVENT, LEASE, SERVICE, Json, Kind
from kdns.controlplane.listing import ListResult
from kdns.controlplane.metadata import copied
from kdns.controlplane.patch import patched
from kdns.controlplane.status import bad_request, conflict, not_found
from kdns.controlplane.store import MODIFIED, Store
from kdns.controlplane.views import view_of
from kdns.controlplane.watch import Stored, Subscription
from kdns.controlplane.writes import Writes

CREATED_BY_UPDATE = frozenset({SERVICE, ENDPOINTS, EVENT, LEASE})
"""Kinds that a PUT of a new name creates."""


def _same(obj: Json) -> Json:
    return obj


def _at_once(_kind: Kind, _obj: Json, _requested_s: int | None) -> int:
    return 0


class Api:
    """One API server's state and rules.

    `backlog` is what follows from deletions.
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
        self.now_s = now_s
        self._commits = Commits(store, strategies, lambda kind, obj: metadata.begin(kind, obj, new_uid(), now_s()))
        self.backlog = Backlog()
        self._deletion = Deletion(self._commits, now_s, grace_s, self.backlog)
        self._writes = Writes(self._commits, self._deletion, now_s, new_uid, random_suffix)

    def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "", form: Kind | None = None) -> Json:
        """The object, or what a subresource or another form shows of it; 404 when there is none."""
        obj, view = self.find(kind, namespace, name).obj, view_of(kind, subresource, form)
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

    def create(
        self,
        kind: Kind,
        namespace: str,
        obj: Json,
        *,
        dry_run: bool = False,
        field_manager: str = "",
        form: Kind | None = None,
    ) -> Json:
        """Store a new object; with a `form`, here and in all writes, it comes and goes as that kind.

        Without a `field_manager`, here and in all writes, nobody manages what is written.
        """
        obj, view = copied(obj), view_of(kind, "", form)
        sent = view.write({}, metadata.typed(view.kind, obj)) if view else obj
        made = self._writes.create(kind, namespace, sent, self._writes.writer(field_manager), dry_run=dry_run)
        return view.read(made) if view else made

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
        form: Kind | None = None,
    ) -> Json:
        """Replace an object, or only its status; 409 when it changed, or was made anew, since the caller read it."""
        version = self.store.get(kind, listing.key(kind, namespace, name))
        metadata_sent = obj.get("metadata") or {}
        if version is None:
            if kind in CREATED_BY_UPDATE and not subresource and not metadata_sent.get("uid"):
                named = _named(obj, name)
                return self.create(kind, namespace, named, dry_run=dry_run, field_manager=field_manager, form=form)
            raise not_found(kind, name)
        writer, view = self._writes.writer(field_manager, subresource), view_of(kind, subresource, form)
        if view is None:
            metadata.claims(kind, name, metadata_sent, version.obj)
            return self._writes.update(version, copied(obj), writer, dry_run=dry_run)
        sent = view.write(copied(version.obj), metadata.typed(view.kind, copied(obj)))
        return view.read(self._writes.update(version, sent, writer, dry_run=dry_run))

    def patch(  # noqa: PLR0913 - what a request says
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
        form: Kind | None = None,
        review: Callable[[Json], Json] = _same,
    ) -> Json:
        """Change an object by a patch (patch.PATCH_TYPES); `review` sees the patched object before it is checked."""
        version, view = self.find(kind, namespace, name), view_of(kind, subresource, form)
        writer = self._writes.writer(field_manager, subresource)
        if view is None:
            changed = patched(copied(version.obj), patch_type, patch, schema.patch_schema(kind))
            return self._writes.update(version, review(changed), writer, dry_run=dry_run)
        shown = patched(view.read(copied(version.obj)), patch_type, patch, schema.patch_schema(view.kind))
        sent = view.write(copied(version.obj), metadata.typed(view.kind, review(shown)))
        return view.read(self._writes.update(version, sent, writer, dry_run=dry_run))

    def apply(  # noqa: PLR0913 - what a request says
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
        form: Kind | None = None,
        review: Callable[[Json], Json] = _same,
    ) -> Json:
        """Server-side apply: make of an object, which need not exist yet, what a configuration says of it."""
        version, view = self.store.get(kind, listing.key(kind, namespace, name)), view_of(kind, subresource, form)
        if version is None and subresource:
            raise not_found(kind, name)
        if view:
            config = view.configured(kind, config)
        config = _addressed(kind, name, config, version)
        writer = self._writes.writer(field_manager, subresource)
        obj = review(applied(kind, copied(version.obj) if version else None, config, writer, force=force))
        entries = obj["metadata"].get("managedFields") or []
        if version is None:
            made = self._writes.create(kind, namespace, obj, writer, dry_run=dry_run, entries=entries)
        else:
            made = self._writes.update(version, obj, writer, dry_run=dry_run, entries=entries)
        return view.read(made) if view else made

    def delete(
        self, kind: Kind, namespace: str, name: str, *, options: Json | None = None, dry_run: bool = False
    ) -> Json:
        """Delete an object: its last state, or its present one when finalizers or a grace period hold it."""
        version = self.find(kind, namespace, name)
        return copied(self._deletion.delete(version, options or {}, dry_run=dry_run).obj)

    def delete_all(
        self, kind: Kind, versions: Iterable[Stored], *, options: Json | None = None, dry_run: bool = False
    ) -> None:
        """Delete what was listed and is still there, as it is now."""
        for version in versions:
            if self.store.get(kind, version.key):
                self.delete(kind, *version.key, options=options, dry_run=dry_run)


def _named(obj: Json, name: str) -> Json:
    sent = obj.get("metadata") or {}
    if (sent.get("name") or name) != name:
        raise bad_request(f"the name of the object ({sent['name']}) does not match the name on the URL ({name})")
    return {**obj, "metadata": {**sent, "name": name, "resourceVersion": ""}}


def _addressed(kind: Kind, name: str, config: Json, version: Stored | None) -> Json:
    """The configuration with the name on the URL; 400 when it has another, 409 when it claims one that is gone."""
    sent = config.get("metadata")
    marks: Json = {**sent} if isinstance(sent, dict) else {}
    claimed = marks.setdefault("name", name)
    if claimed != name:
        raise bad_request(f"the name of the object ({claimed}) does not match the name on the URL ({name})")
    if version is None and marks.get("uid"):
        why = f"uid mismatch: the provided object specified uid {marks['uid']}, and no existing object was found"
        raise conflict(kind, name, why)
    if version is None and marks.get("resourceVersion"):
        raise conflict(kind, name, MODIFIED)
    return {**config, "metadata": marks} if sent is None or isinstance(sent, dict) else config
