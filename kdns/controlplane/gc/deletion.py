"""Deletion: preconditions, grace periods, finalizers, dependents, and the content of namespaces.

The rules are those of kube-apiserver (registry/generic, BeforeDelete) and of the garbage collector.

Differs: small deletions are complete when the request is answered, not some time later. A cycle of owners that is
deleted in the foreground waits for itself, until a client removes a finalizer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Final

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.errors import Cause, forbidden, invalid
from kdns.controlplane.apimachinery.field_errors import invalid_value, quoted
from kdns.controlplane.apimachinery.human_duration import seconds_of
from kdns.controlplane.apimachinery.kinds import DEFINITION, NAMESPACE, POD, Json, Kind
from kdns.controlplane.gc import namespaces
from kdns.controlplane.gc.backlog import Backlog
from kdns.controlplane.gc.objects import Objects
from kdns.controlplane.gc.owners import blocks, owner_key, references, without_owner
from kdns.controlplane.kinds.core import namespace_finalizers, terminating_namespace
from kdns.controlplane.kinds.custom.definition import CLEANUP, with_termination
from kdns.controlplane.kinds.strategy import DeleteStrategy
from kdns.controlplane.storage import object_meta
from kdns.controlplane.storage.store import Filter, StoredObject, stored_object_of

FOREGROUND: Final = "foregroundDeletion"
"""The finalizer of an object whose dependents are deleted before it."""

ORPHANING: Final = "orphan"
"""The finalizer of an object whose dependents are orphaned."""

ORPHAN: Final = "Orphan"
_PROPAGATION: Final = ("Foreground", "Background", ORPHAN)
_DELETE_OPTIONS: Final = Kind("meta.k8s.io", "v1", "DeleteOptions", "deleteoptions")


def checked_policy(options: Json) -> str | None:
    """propagationPolicy of DeleteOptions. Raises 422 for an unknown one, and for one beside orphanDependents."""
    policy, orphans = options.get("propagationPolicy"), options.get("orphanDependents")
    if policy is not None and orphans is not None:
        both = "orphanDependents and deletionPropagation cannot be both set"
        raise invalid(_DELETE_OPTIONS, "", [invalid_value("propagationPolicy", policy, both)])
    if policy is not None and policy not in _PROPAGATION:
        supported = ", ".join(f'"{value}"' for value in (*_PROPAGATION, "nil"))
        cause = Cause("propagationPolicy", f"Unsupported value: {quoted(policy)}", f"supported values: {supported}")
        raise invalid(_DELETE_OPTIONS, "", [cause])
    return None if policy is None else str(policy)


def _propagation(metadata: Json, strategy: DeleteStrategy, options: Json) -> str:
    """Orphan, Background or Foreground. Raises as `checked_policy`."""
    if policy := checked_policy(options):
        return policy
    orphans = options.get("orphanDependents")
    if orphans is not None:
        return ORPHAN if orphans else "Background"
    finalizers = metadata.get("finalizers") or ()
    if ORPHANING in finalizers:
        return ORPHAN
    if FOREGROUND in finalizers:
        return "Foreground"
    return ORPHAN if strategy.orphans else "Background"


class Deletion:
    """All deletions of one cluster. Deletions that follow from them are queued in the backlog.

    With `grace`, deleted Pods stay for their grace period. Differs: by default they do not, since no containers run.
    """

    def __init__(self, objects: Objects, backlog: Backlog, *, grace: bool) -> None:
        self._objects, self._store, self._kinds = objects, objects.store, objects.kinds
        self._now_s, self.grace, self._backlog = objects.now_s, grace, backlog
        for version in objects.terminating:
            backlog.add(partial(self._resume, version))
        for kind, key in objects.ownerless:
            backlog.add(partial(self._collect_if_orphaned, kind, key))

    def delete(self, version: StoredObject, options: Json, *, dry_run: bool) -> StoredObject:
        """The last state of a deleted object, or the current one if finalizers or a grace period hold it."""
        kind, strategy = version.kind, self._kinds[version.kind].delete
        metadata = version.obj["metadata"]
        object_meta.check_preconditions(kind, version.obj, options.get("preconditions") or {})
        if why := self._refusal(version):
            raise forbidden(kind, version.key[1], why)
        policy = _propagation(metadata, strategy, options)
        if metadata.get("deletionTimestamp"):
            return version if dry_run else self._shorten(version, options.get("gracePeriodSeconds"))
        finalizers = [name for name in metadata.get("finalizers") or () if name not in {FOREGROUND, ORPHANING}]
        if policy == "Foreground" and self._blocking(metadata["uid"]):
            finalizers.append(FOREGROUND)
        if policy == ORPHAN and self._objects.owners.has_dependents(metadata["uid"]):
            finalizers.append(ORPHANING)
        graceful = strategy.grace_s if self.grace else None
        grace_s = graceful(version.obj, options.get("gracePeriodSeconds")) if graceful else 0
        if not (grace_s or finalizers or (kind is NAMESPACE and namespace_finalizers(version.obj))):
            last = version if dry_run else self.remove(version)
            if not strategy.grace_s:
                return last
            return stored_object_of(kind, version.key, self._marked(last, finalizers, 0), last.revision)
        marked = self._marked(version, finalizers, grace_s)
        if dry_run:
            return stored_object_of(kind, version.key, marked, version.revision)
        version = self._objects.put(self._objects.draft(kind, marked), version)
        self._resume(version)
        self._backlog.begin()
        return self._store.get(kind, version.key) or version

    def _refusal(self, version: StoredObject) -> str:
        """Why the object may not be deleted; "" if it may.

        Differs: kube-apiserver lets clients delete the IPAddress of a Service, and its repair loop recreates it.
        """
        if version.key[1] in self._kinds[version.kind].delete.protected:
            return f"this {version.kind.singular} may not be deleted"
        if user := self._objects.user_of(version):
            name = "/".join(filter(None, user.key))
            return f"{user.kind.kind} {name} has this {version.kind.kind}; delete the {user.kind.kind} instead"
        return ""

    def _resume(self, version: StoredObject) -> None:
        metadata = version.obj["metadata"]
        finalizers, uid = metadata.get("finalizers") or (), metadata["uid"]
        if version.kind is NAMESPACE:
            self._backlog.add(partial(self._empty, version.key[1]))
        if CLEANUP in finalizers:
            self._backlog.add(partial(self._empty_kind, version.key[1]))
        if FOREGROUND in finalizers:
            self._collect(uid, in_foreground=True)
        if ORPHANING in finalizers:
            self._each_dependent(uid, self._disown)
        if FOREGROUND in finalizers or ORPHANING in finalizers:
            self._backlog.add(lambda: self._finish(self._latest(version)))

    def _marked(self, version: StoredObject, finalizers: list[str], grace_s: int) -> Json:
        is_namespace = version.kind is NAMESPACE
        obj = terminating_namespace(version.obj) if is_namespace else version.obj
        fields: Json = {"deletionTimestamp": object_meta.timestamp(self._now_s() + grace_s), "finalizers": finalizers}
        if generation := obj["metadata"].get("generation"):
            fields["generation"] = generation + 1
        marked = _with_metadata(obj, **fields)
        if not is_namespace:
            marked["metadata"]["deletionGracePeriodSeconds"] = grace_s
        return marked

    def _shorten(self, version: StoredObject, requested_s: int | None) -> StoredObject:
        """A second deletion has an effect only if its grace period is shorter."""
        metadata = version.obj["metadata"]
        granted_s = metadata.get("deletionGracePeriodSeconds") or 0
        if requested_s is None or max(requested_s, 0) >= granted_s:
            return version
        requested_s = 1 if requested_s < 0 else requested_s
        if not requested_s and not metadata.get("finalizers"):
            return self.remove(version)
        deleted_s = (seconds_of(metadata["deletionTimestamp"]) or 0) - granted_s
        obj = _with_metadata(version.obj, deletionTimestamp=object_meta.timestamp(deleted_s + requested_s))
        obj["metadata"]["deletionGracePeriodSeconds"] = requested_s
        return self._objects.put(self._objects.draft(version.kind, obj), version)

    def remove(self, version: StoredObject) -> StoredObject:
        """Removes an object from the store. Queues its dependents, and the owners that waited for its removal."""
        last = self._objects.remove(version)
        self._collect(version.obj["metadata"]["uid"], in_foreground=False)
        self.released(version.obj)
        if version.kind.namespaced:
            self._end(version.key[0])
        if version.kind.schema:
            self._end_kind(version.kind.resource)
        self._backlog.begin()
        return last

    def owned(self, version: StoredObject) -> None:
        """Queues the check of an object's new owners: it is deleted if all are absent, else it loses references to
        absent ones.

        Owners of kinds that are not served count as existing. Differs: owners in another namespace are absent like any
        other, without an Event.
        """
        if self._absent_owners(version):
            self._backlog.add(partial(self._collect_if_orphaned, version.kind, version.key))

    def _absent_owners(self, version: StoredObject) -> list[str]:
        namespace, owners = version.key[0], version.metadata.get("ownerReferences") or ()
        if any(owner_key(reference, namespace, self._kinds) is None for reference in owners):
            return []
        return [reference["uid"] for reference in owners if not self._owner(reference, namespace)]

    def _collect_if_orphaned(self, kind: Kind, key: Key) -> None:
        version = self._store.get(kind, key)
        absent = self._absent_owners(version) if version else []
        if version and absent and len(absent) == len(references(version.obj)):
            if not self._refusal(version):
                self.delete(version, _BACKGROUND, dry_run=False)
            return
        for uid in absent:
            if latest := self._store.get(kind, key):
                self._disown(latest, uid)

    def released(self, obj: Json) -> None:
        namespace = obj["metadata"].get("namespace", "")
        for reference in references(obj):
            if blocks(reference):
                self._backlog.add(partial(self._finish_owner, reference, namespace))

    def _latest(self, version: StoredObject) -> StoredObject | None:
        """The current version of the same object, by uid; None if it is gone."""
        latest = self._store.get(version.kind, version.key) if version.kind in self._kinds else None
        return latest if latest and latest.obj["metadata"]["uid"] == version.obj["metadata"]["uid"] else None

    def _blocking(self, uid: str) -> bool:
        """Whether a deletion of the owner in the foreground has to wait for dependents."""
        dependents = (self._store.get(*dependent) for dependent in self._objects.owners.dependents(uid))
        return any(version is not None and _waits_for(version, uid) for version in dependents)

    def _collect(self, uid: str, *, in_foreground: bool) -> None:
        """Deletes the dependents that have no other owner; the others lose their reference to this one."""
        self._each_dependent(uid, partial(self._collect_one, in_foreground=in_foreground))

    def _each_dependent(self, uid: str, do: Callable[[StoredObject, str], object]) -> None:
        """Queues `do` for each dependent, with its version when the work runs."""

        def work(kind: Kind, key: Key) -> None:
            version = self._store.get(kind, key) if kind in self._kinds else None
            if version and any(reference["uid"] == uid for reference in references(version.obj)):
                do(version, uid)

        for dependent in self._objects.owners.dependents(uid):
            self._backlog.add(partial(work, *dependent))

    def _collect_one(self, version: StoredObject, uid: str, *, in_foreground: bool) -> None:
        namespace = version.key[0]
        if self._refusal(version):
            return
        if in_foreground and not _waits_for(version, uid):
            return
        if any(self._owner(other, namespace) for other in without_owner(version.obj, uid)):
            self._disown(version, uid)
            return
        dependents = self._objects.owners.dependents(version.obj["metadata"]["uid"]) if in_foreground else []
        self.delete(version, _FOREGROUND if dependents else _BACKGROUND, dry_run=False)

    def _owner(self, reference: Json, namespace: str) -> StoredObject | None:
        owner = owner_key(reference, namespace, self._kinds)
        version = self._store.get(*owner) if owner else None
        return version if version and version.obj["metadata"]["uid"] == reference.get("uid") else None

    def _finish_owner(self, reference: Json, namespace: str) -> None:
        self._finish(self._owner(reference, namespace))

    def _finish(self, owner: StoredObject | None) -> None:
        if owner is None or not owner.obj["metadata"].get("deletionTimestamp"):
            return
        uid, finalizers = owner.obj["metadata"]["uid"], owner.obj["metadata"].get("finalizers") or []
        done = set()
        if FOREGROUND in finalizers and not self._blocking(uid):
            done.add(FOREGROUND)
        if ORPHANING in finalizers and not self._objects.owners.has_dependents(uid):
            done.add(ORPHANING)
        if not done:
            return
        pending = [name for name in finalizers if name not in done]
        is_namespace = owner.kind is NAMESPACE
        if not (pending or is_namespace or owner.obj["metadata"].get("deletionGracePeriodSeconds")):
            self.remove(owner)  # one write: if it is refused, the finalizers still say what to do
            return
        obj = _with_metadata(owner.obj, finalizers=pending)
        self._objects.put(self._objects.draft(owner.kind, obj), owner)
        if is_namespace:
            self._end(owner.key[1])

    def _disown(self, version: StoredObject, uid: str) -> None:
        obj = _with_metadata(version.obj, ownerReferences=without_owner(version.obj, uid))
        self._objects.put(self._objects.draft(version.kind, obj), version)
        self.released(version.obj)

    def _empty(self, namespace: str) -> None:
        """Queues the deletion of a namespace's content, then of the namespace itself.

        Pods are deleted first: objects that they may need, such as a NetworkPolicy, stay until then. Next are objects
        for which controllers create further objects.
        """
        pods = self._store.page(POD, Filter(namespace)).items
        others = sorted(self._kinds.namespaced, key=lambda kind: not self._kinds[kind].delete.makes_objects)
        pages = [pods] if pods else [self._store.page(kind, Filter(namespace)).items for kind in others]
        for version in chain.from_iterable(pages):
            self._backlog.add(partial(self._delete_latest, version))
        self._end(namespace)
        self._backlog.begin()

    def _empty_kind(self, definition: str) -> None:
        """Queues the deletion of all objects of a kind, then of its CustomResourceDefinition."""
        version = self._store.get(DEFINITION, ("", definition))
        kind = self._kinds.by_definition(definition) if version else None
        for obj in self._store.page(kind, Filter()).items if kind else ():
            self._backlog.add(partial(self._delete_latest, obj))
        self._end_kind(definition)
        self._backlog.begin()

    def _end_kind(self, definition: str) -> None:
        self._backlog.add_last(f"kind {definition}", partial(self.finish_definition, definition))

    def finish_definition(self, name: str) -> None:
        """Removes a terminating CustomResourceDefinition whose objects are gone; otherwise its condition says so."""
        version = self._store.get(DEFINITION, ("", name))
        if version is None or CLEANUP not in (version.obj["metadata"].get("finalizers") or ()):
            return
        if not object_meta.is_terminating(version.obj):
            return
        kind = self._kinds.by_definition(name)
        if kind and self._store.page(kind, Filter(), limit=1).items:
            obj = with_termination(version.obj, object_meta.timestamp(self._now_s()))
            if obj != version.obj:
                self._objects.put(self._objects.draft(DEFINITION, obj), version)
            return
        if finalizers := [name for name in version.obj["metadata"]["finalizers"] if name != CLEANUP]:
            obj = _with_metadata(version.obj, finalizers=finalizers)
            self._objects.put(self._objects.draft(DEFINITION, obj), version)
            return
        self.remove(version)
        if kind:
            self._store.end_watches(kind)

    def _delete_latest(self, version: StoredObject) -> None:
        if latest := self._latest(version):
            self.delete(latest, _BACKGROUND, dry_run=False)

    def _end(self, namespace: str) -> None:
        self._backlog.add_last(namespace, partial(self.finish_namespace, namespace))

    def finish_namespace(self, name: str) -> None:
        """Deletes a terminating namespace without content and finalizers; otherwise writes its conditions.

        A namespace without finalizers is deleted whatever its content: the finalize subresource can force it.
        """
        namespace = self._store.get(NAMESPACE, ("", name))
        if namespace is None or not namespace.obj["metadata"].get("deletionTimestamp"):
            return
        content = namespaces.content(self._store, self._kinds.namespaced, name)
        obj = namespaces.terminating(namespace.obj, content, object_meta.timestamp(self._now_s()))
        if not namespace_finalizers(obj) and not obj["metadata"].get("finalizers"):
            self.remove(namespace)
        elif content.is_to_delete:
            self._empty(name)
        elif obj != namespace.obj:
            self._objects.put(self._objects.draft(NAMESPACE, obj), namespace)


_BACKGROUND: Json = {"propagationPolicy": "Background"}
_FOREGROUND: Json = {"propagationPolicy": "Foreground"}


def _with_metadata(obj: Json, **fields: object) -> Json:
    """Sets fields of metadata; empty ones are removed."""
    metadata = {**obj["metadata"], **fields}
    return {**obj, "metadata": {name: value for name, value in metadata.items() if value or name not in fields}}


def _waits_for(version: StoredObject, uid: str) -> bool:
    """Whether an owner that is deleted in the foreground has to wait for this dependent."""
    return any(blocks(reference) for reference in references(version.obj) if reference["uid"] == uid)
