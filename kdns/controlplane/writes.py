"""The way of a write into the store, after its verb said what the object shall be.

Type and metadata → who manages which fields → strategies (defaults, allocation, validation) → store → allocation
committed, or reverted when anything after it failed.
"""

from __future__ import annotations

from collections.abc import Callable

from kdns.controlplane import listing, managed, metadata, namespaces_lifecycle
from kdns.controlplane.commits import Commits
from kdns.controlplane.defaults import with_defaults
from kdns.controlplane.defaults_kept import with_class
from kdns.controlplane.deletion import Deletion
from kdns.controlplane.kinds import (
    CLAIM,
    CRON_JOB,
    DISRUPTION_BUDGET,
    INGRESS,
    INGRESS_CLASS,
    JOB,
    NAMESPACE,
    NODE,
    POD,
    SERVICE,
    SERVICE_CIDR,
    VOLUME,
    WORKLOADS,
    Json,
    Kind,
)
from kdns.controlplane.managed import Entries, Writer
from kdns.controlplane.metadata import copied
from kdns.controlplane.status import already_exists
from kdns.controlplane.watch import Filter, Stored

STATUS_KEPT_APART = frozenset(
    {CLAIM, CRON_JOB, DISRUPTION_BUDGET, INGRESS, JOB, VOLUME, SERVICE, SERVICE_CIDR, POD, NODE, NAMESPACE, *WORKLOADS}
)
"""Kinds whose status only changes through the status subresource."""

_NAME_TRIES = 8


class Writes:
    """Creates and updates. The objects that come in are the writes' own; what comes out is the caller's."""

    def __init__(
        self,
        commits: Commits,
        deletion: Deletion,
        now_s: Callable[[], float],
        new_uid: Callable[[], str],
        random_suffix: Callable[[], str],
    ) -> None:
        self._commits, self._deletion = commits, deletion
        self._now_s, self._new_uid, self._random_suffix = now_s, new_uid, random_suffix

    def writer(self, name: str, subresource: str = "") -> Writer:
        """Who writes now."""
        return Writer(name, subresource, metadata.timestamp(self._now_s()))

    def create(
        self, kind: Kind, namespace: str, obj: Json, writer: Writer, *, dry_run: bool, entries: Entries | None = None
    ) -> Json:
        """Store a new object; `entries` are its managedFields where they are known already."""
        store, strategies = self._commits.store, self._commits.strategies
        obj = metadata.typed(kind, obj)
        metadata.place(kind, namespace, obj)
        name = self._name(kind, namespace, obj)
        if kind.namespaced:
            namespaces_lifecycle.accepts(store.get(NAMESPACE, ("", namespace)), kind, namespace, name)
        metadata.begin(kind, obj, self._new_uid(), self._now_s())
        if entries is None:
            entries = managed.created(kind, with_defaults(kind, obj), writer) if writer.name else []
        if kind == NAMESPACE:
            namespaces_lifecycle.begin(obj)
        _manage(obj, entries)
        if kind == INGRESS:  # after the managers: nobody manages what nobody sent
            obj = with_class(obj, (version.obj for version in store.page(INGRESS_CLASS, Filter()).items))
        prepared = strategies.create(kind, obj, dry_run=dry_run)
        exists = store.get(kind, listing.key(kind, namespace, name))
        if exists or dry_run:
            prepared.revert()
        if exists:
            raise already_exists(kind, name)
        if dry_run:
            return copied(prepared.obj)
        try:
            version = self._commits.put(kind, prepared.obj, None, prepared)
        except BaseException:
            prepared.revert()
            raise
        self._deletion.owned(version)
        return copied(version.obj)

    def _name(self, kind: Kind, namespace: str, obj: Json) -> str:
        generated = not obj["metadata"].get("name")
        name = metadata.name_new(obj, self._random_suffix() if generated else "")
        for _try in range(_NAME_TRIES if generated else 0):
            if self._commits.store.get(kind, listing.key(kind, namespace, name)) is None:
                break
            obj["metadata"]["name"] = ""
            name = metadata.name_new(obj, self._random_suffix())
        return name

    def update(
        self, version: Stored, obj: Json, writer: Writer, *, dry_run: bool, entries: Entries | None = None
    ) -> Json:
        """Store an object in the place of a version; `entries` as for a create. No commit when nothing changes."""
        kind, (namespace, name) = version.kind, version.key
        old = copied(version.obj)
        new = metadata.typed(kind, obj)
        metadata.place(kind, namespace, new)
        metadata.match(kind, name, new, old)
        metadata.carry(old, new)
        new = _confined(kind, old, new, writer.subresource)
        if entries is None:
            entries = managed.updated(kind, old, with_defaults(kind, new), writer)
        _manage(new, entries)
        prepared = self._commits.strategies.update(kind, old, new, subresource=writer.subresource, dry_run=dry_run)
        new = prepared.obj
        metadata.bump(kind, version.obj, new)
        new["metadata"]["resourceVersion"] = version.obj["metadata"]["resourceVersion"]
        _keep_times(new, version.obj)
        if dry_run:
            prepared.revert()
            return copied(new)
        try:
            if new == version.obj:
                prepared.commit()
            else:
                version = self._commits.put(kind, new, version, prepared)
        except BaseException:
            prepared.revert()
            raise
        if old["metadata"].get("ownerReferences") != new["metadata"].get("ownerReferences"):
            self._deletion.released(old)
            self._deletion.owned(version)
        if _may_go(version):
            return copied(self._deletion.remove(version).obj)
        if kind == NAMESPACE:
            self._deletion.finish_namespace(name)
        return copied(version.obj)


def _manage(obj: Json, entries: Entries) -> None:
    obj["metadata"].pop("managedFields", None)
    if entries:
        obj["metadata"]["managedFields"] = entries


def _keep_times(new: Json, old: Json) -> None:
    """Managers who wrote again what was there keep the time at which they wrote it first."""
    before, now = old["metadata"].get("managedFields"), new["metadata"].get("managedFields")
    if not (before and now) or before == now or not managed.same_but_for_times(before, now):
        return
    if {**new, "metadata": {**new["metadata"], "managedFields": before}} == old:
        new["metadata"]["managedFields"] = before


def _confined(kind: Kind, old: Json, new: Json, subresource: str) -> Json:
    """The new object with everything the (sub)resource may not touch taken from the old one."""
    if subresource in {"status", "finalize"}:
        field = "status" if subresource == "status" else "spec"
        marks = {name: value for name, value in new["metadata"].items() if name != "generateName"}
        if "generateName" in old["metadata"]:
            marks["generateName"] = old["metadata"]["generateName"]
        kept = {**old, "metadata": marks, field: new.get(field)}
        return {name: value for name, value in kept.items() if value is not None}
    if kind == NAMESPACE:  # all that a spec says is which finalizers there are, and these have a subresource
        new = {**new, "spec": old.get("spec") or {}}
    if kind not in STATUS_KEPT_APART:
        return new
    kept = {name: value for name, value in new.items() if name != "status"}
    return {**kept, "status": old["status"]} if "status" in old else kept


def _may_go(version: Stored) -> bool:
    """Whether an object being deleted lost its last finalizer and has no grace period left."""
    marks = version.obj["metadata"]
    waits = marks.get("finalizers") or marks.get("deletionGracePeriodSeconds")
    return bool(marks.get("deletionTimestamp")) and not waits and version.kind != NAMESPACE
