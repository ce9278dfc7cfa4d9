"""How objects go: preconditions, grace, finalizers, dependents, and namespaces with all that is in them."""

from __future__ import annotations

from collections.abc import Callable

from kdns.cluster.objects import Key
from kdns.controlplane import metadata, namespaces_lifecycle
from kdns.controlplane.commits import Commits
from kdns.controlplane.kinds import KINDS, NAMESPACE, Json, Kind
from kdns.controlplane.metadata import copied
from kdns.controlplane.owners import references, without_owner
from kdns.controlplane.status import bad_request, forbidden
from kdns.controlplane.watch import Filter, Stored

CONTENT_FINALIZERS = frozenset({"kubernetes"})
"""What stands in a Namespace's spec.finalizers until its content is gone; others are for their owners to take away."""


class Deletion:
    """Deletes by the rules of Kubernetes' garbage collection and namespace life cycle, at once.

    Differs: dependents and the content of a namespace are gone when the request is answered, not some time later.
    """

    def __init__(
        self, commits: Commits, now_s: Callable[[], float], grace_s: Callable[[Kind, Json, int | None], int]
    ) -> None:
        self._commits, self._store = commits, commits.store
        self._now_s, self._grace_s = now_s, grace_s
        self._ownerless: list[tuple[str, Kind, Key]] = []

    def delete(self, version: Stored, options: Json, *, dry_run: bool) -> Stored:
        """The last state of an object that is gone, or the present one of an object that is held."""
        kind, name = version.kind, version.key[1]
        found, wanted = version.obj["metadata"], options.get("preconditions") or {}
        metadata.precondition(kind, name, "UID", wanted.get("uid"), found["uid"])
        metadata.precondition(kind, name, "ResourceVersion", wanted.get("resourceVersion"), found["resourceVersion"])
        if kind == NAMESPACE and name in namespaces_lifecycle.IMMORTAL:
            raise forbidden(kind, name, "this namespace may not be deleted")
        policy = _propagation(options)
        grace_s = self._grace_s(kind, version.obj, options.get("gracePeriodSeconds"))
        held = grace_s > 0 or kind == NAMESPACE or bool(found.get("finalizers"))
        if dry_run:
            return version
        if policy == "Orphan":
            self._orphan(found["uid"])
        if not held:
            return self.remove(version)
        version = self._terminate(version, grace_s)
        if kind == NAMESPACE:
            self._empty(name)
        elif policy == "Foreground":
            self._collect(found["uid"])
        return version

    def _terminate(self, version: Stored, grace_s: int) -> Stored:
        """Mark the object as being deleted; a second time changes nothing but a shorter grace period."""
        obj = copied(version.obj)
        marks = obj["metadata"]
        if marks.get("deletionTimestamp") and marks.get("deletionGracePeriodSeconds", 0) <= grace_s:
            return version
        marks["deletionTimestamp"] = metadata.timestamp(self._now_s() + grace_s)
        marks["deletionGracePeriodSeconds"] = grace_s
        if version.kind == NAMESPACE:
            obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        return self._commits.put(version.kind, obj, version)

    def remove(self, version: Stored) -> Stored:
        """Delete for good, then what it owned; the last object of a namespace that is going takes it along."""
        last = self._commits.remove(version)
        self._collect(version.obj["metadata"]["uid"])
        self._commits.owners.forget(version.obj["metadata"]["uid"])
        if version.kind.namespaced:
            self.finish_namespace(version.key[0])
        return last

    def _collect(self, uid: str) -> None:
        """Delete the dependents that have no other owner; the others lose this one."""
        is_nested = bool(self._ownerless)
        self._ownerless += [(uid, kind, key) for kind, key in self._commits.owners.dependents(uid)]
        if is_nested:  # the loop below is running further up: a long chain of owners must not become a deep stack
            return
        try:
            for owner, kind, key in self._ownerless:
                version = self._store.get(kind, key)
                if version is None:
                    continue
                if without_owner(version.obj, owner):
                    self._disown(version, owner)
                else:
                    self.delete(version, {}, dry_run=False)
        finally:
            self._ownerless.clear()

    def _orphan(self, uid: str) -> None:
        for kind, key in self._commits.owners.dependents(uid):
            version = self._store.get(kind, key)
            if version:
                self._disown(version, uid)

    def _disown(self, version: Stored, uid: str) -> None:
        obj = copied(version.obj)
        obj["metadata"]["ownerReferences"] = without_owner(version.obj, uid)
        if not references(obj):
            del obj["metadata"]["ownerReferences"]
        self._commits.put(version.kind, obj, version)

    def _empty(self, namespace: str) -> None:
        """Delete everything in a namespace that is going, then, when nothing holds on, the namespace."""
        for kind in KINDS:
            for version in self._store.page(kind, Filter(namespace)).items if kind.namespaced else ():
                if (latest := self._store.get(kind, version.key)) is not None:
                    self.delete(latest, {}, dry_run=False)
        self.finish_namespace(namespace)

    def finish_namespace(self, name: str) -> None:
        """Delete a namespace that is going once it is empty and no finalizer but its content's holds it."""
        namespace = self._store.get(NAMESPACE, ("", name))
        if namespace is None or not namespace.obj["metadata"].get("deletionTimestamp"):
            return
        if any(self._store.page(kind, Filter(name), limit=1).items for kind in KINDS if kind.namespaced):
            return
        spec = namespace.obj.get("spec") or {}
        if not namespace.obj["metadata"].get("finalizers") and {*(spec.get("finalizers") or ())} <= CONTENT_FINALIZERS:
            self.remove(namespace)


def _propagation(options: Json) -> str:
    """Orphan, Background or Foreground; 400 for anything else."""
    policy = options.get("propagationPolicy") or ("Orphan" if options.get("orphanDependents") else "Background")
    if policy not in {"Orphan", "Background", "Foreground"}:
        raise bad_request(f"propagationPolicy: found {policy!r}, wanted Orphan, Background or Foreground")
    return str(policy)
