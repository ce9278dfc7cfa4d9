"""How objects go: preconditions, grace, finalizers, dependents, and namespaces with all that is in them.

The rules are those of kube-apiserver (registry/generic, BeforeDelete) and of the garbage collector.
Differs: what need not wait, and is not much, is done when the request is answered, not some time later.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kdns.cluster.objects import Key
from kdns.controlplane import metadata, namespaces_lifecycle
from kdns.controlplane.ages import seconds_of
from kdns.controlplane.backlog import Backlog
from kdns.controlplane.commits import Commits
from kdns.controlplane.deleteoptions import FOREGROUND, ORPHAN, ORPHANING, propagation
from kdns.controlplane.kinds import CRON_JOB, JOB, NAMESPACE, POD, WORKLOADS, Json, Kind
from kdns.controlplane.metadata import copied
from kdns.controlplane.owners import blocks, owner_key, references, without_owner
from kdns.controlplane.status import forbidden
from kdns.controlplane.watch import Filter, Stored

_FINISHED = frozenset({"Succeeded", "Failed"})


def pod_grace_s(kind: Kind, obj: Json, requested_s: int | None) -> int:
    """Seconds that a deleted Pod has; 0 for other kinds, and for Pods that run nowhere or have ended."""
    spec = obj.get("spec") or {}
    if kind != POD or not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in _FINISHED:
        return 0
    asked = spec.get("terminationGracePeriodSeconds") if requested_s is None else requested_s
    return 1 if (asked or 0) < 0 else int(asked or 0)


class Deletion:
    """All deletions of one cluster.

    What follows from one is queued, and done in pieces where it is much. What a crash or restart interrupted is
    queued at start.
    """

    def __init__(
        self,
        commits: Commits,
        now_s: Callable[[], float],
        grace_s: Callable[[Kind, Json, int | None], int],
        backlog: Backlog,
    ) -> None:
        self._commits, self._store = commits, commits.store
        self._now_s, self._grace_s, self._backlog = now_s, grace_s, backlog
        for version in commits.interrupted.going:
            self._backlog.add(partial(self._resume, version))
        for left in commits.interrupted.ownerless:
            self._backlog.add(partial(self._judge, *left))

    def delete(self, version: Stored, options: Json, *, dry_run: bool) -> Stored:
        """The last state of an object that is gone, or the present one of an object that is held."""
        kind, name = version.kind, version.key[1]
        found, wanted = version.obj["metadata"], options.get("preconditions") or {}
        metadata.precondition(kind, name, "UID", wanted.get("uid"), found["uid"])
        metadata.precondition(kind, name, "ResourceVersion", wanted.get("resourceVersion"), found["resourceVersion"])
        if kind == NAMESPACE and name in namespaces_lifecycle.IMMORTAL:
            raise forbidden(kind, name, "this namespace may not be deleted")
        policy = propagation(version, options)
        if dry_run:
            return version
        if found.get("deletionTimestamp"):
            return self._shorten(version, options.get("gracePeriodSeconds"))
        kept = [each for each in found.get("finalizers") or () if each not in {FOREGROUND, ORPHANING}]
        if policy == "Foreground" and self._blocking(found["uid"]):
            kept.append(FOREGROUND)
        if policy == ORPHAN and self._commits.owners.has_dependents(found["uid"]):
            kept.append(ORPHANING)
        grace_s = self._grace_s(kind, version.obj, options.get("gracePeriodSeconds"))
        if not (grace_s or kept or (kind == NAMESPACE and namespaces_lifecycle.finalizers(version.obj))):
            return self.remove(version)
        version = self._mark(version, kept, grace_s)
        self._resume(version)
        self._backlog.begin()
        return self._store.get(kind, version.key) or version

    def _resume(self, version: Stored) -> None:
        """Queue what has to follow from an object's going."""
        marks = version.obj["metadata"]
        finalizers, uid = marks.get("finalizers") or (), marks["uid"]
        if version.kind == NAMESPACE:
            self._backlog.add(partial(self._empty, version.key[1]))
        if FOREGROUND in finalizers:
            self._collect(uid, in_foreground=True)
        if ORPHANING in finalizers:
            self._each_dependent(uid, self._disown)
        if FOREGROUND in finalizers or ORPHANING in finalizers:
            self._backlog.add(lambda: self._finish(self._latest(version)))

    def _mark(self, version: Stored, finalizers: list[str], grace_s: int) -> Stored:
        obj = copied(version.obj)
        marks = obj["metadata"]
        marks["deletionTimestamp"] = metadata.timestamp(self._now_s() + grace_s)
        if version.kind != NAMESPACE:
            marks["deletionGracePeriodSeconds"] = grace_s
        if marks.get("generation"):
            marks["generation"] += 1
        marks["finalizers"] = finalizers
        if not finalizers:
            del marks["finalizers"]
        if version.kind == NAMESPACE:
            obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        return self._commits.put(version.kind, obj, version)

    def _shorten(self, version: Stored, asked_s: int | None) -> Stored:
        """Another deletion of what is going: only a shorter grace period changes anything."""
        marks = version.obj["metadata"]
        granted_s = marks.get("deletionGracePeriodSeconds") or 0
        if asked_s is None or max(asked_s, 0) >= granted_s:
            return version
        asked_s = 1 if asked_s < 0 else asked_s
        if not asked_s and not marks.get("finalizers"):
            return self.remove(version)
        obj = copied(version.obj)
        begun_s = (seconds_of(marks["deletionTimestamp"]) or 0) - granted_s
        obj["metadata"]["deletionTimestamp"] = metadata.timestamp(begun_s + asked_s)
        obj["metadata"]["deletionGracePeriodSeconds"] = asked_s
        return self._commits.put(version.kind, obj, version)

    def remove(self, version: Stored) -> Stored:
        """Delete for good; then go its dependents, and whatever only waited for it."""
        last = self._commits.remove(version)
        self._collect(version.obj["metadata"]["uid"], in_foreground=False)
        self.released(version.obj)
        if version.kind.namespaced:
            self._end(version.key[0])
        self._backlog.begin()
        return last

    def owned(self, version: Stored) -> None:
        """Judge an object's new owners: it goes when none of them is there, and forgets those that are not.

        Owners of kinds that are not served may be anywhere: they count as there.
        Differs: owners in another namespace are absent like any other; no Event tells of them.
        """
        namespace, found = version.key[0], references(version.obj)
        if not found or any(owner_key(reference, namespace) is None for reference in found):
            return
        absent = [reference["uid"] for reference in found if not self._owner(reference, namespace)]
        if len(absent) == len(found):
            self.delete(version, _BACKGROUND, dry_run=False)
        for uid in absent if len(absent) < len(found) else ():
            if latest := self._store.get(version.kind, version.key):
                self._disown(latest, uid)

    def _judge(self, kind: Kind, key: Key) -> None:
        if version := self._store.get(kind, key):
            self.owned(version)

    def released(self, obj: Json) -> None:
        """Owners that go in the foreground need not wait for an object in this state any more."""
        namespace = obj["metadata"].get("namespace", "")
        for reference in references(obj):
            if blocks(reference):
                self._backlog.add(partial(self._finish_owner, reference, namespace))
        self._backlog.begin()

    def _latest(self, version: Stored) -> Stored | None:
        """The object of a version as it is now, if it is still there and not another of its name."""
        latest = self._store.get(version.kind, version.key)
        return latest if latest and latest.obj["metadata"]["uid"] == version.obj["metadata"]["uid"] else None

    def _blocking(self, uid: str) -> bool:
        """Whether there are dependents that a deletion of the owner in the foreground has to wait for."""
        found = (self._store.get(*each) for each in self._commits.owners.dependents(uid))
        return any(version is not None and _waits_for(version, uid) for version in found)

    def _collect(self, uid: str, *, in_foreground: bool) -> None:
        """Delete the dependents that have no other owner; the others lose this one."""
        self._each_dependent(uid, partial(self._collect_one, in_foreground=in_foreground))

    def _each_dependent(self, uid: str, do: Callable[[Stored, str], object]) -> None:
        """Queue something to be done with each dependent, as it then is, if it still is one."""

        def work(kind: Kind, key: Key) -> None:
            version = self._store.get(kind, key)
            if version and any(reference["uid"] == uid for reference in references(version.obj)):
                do(version, uid)

        for each in self._commits.owners.dependents(uid):
            self._backlog.add(partial(work, *each))

    def _collect_one(self, version: Stored, uid: str, *, in_foreground: bool) -> None:
        namespace, name = version.key
        if version.kind == NAMESPACE and name in namespaces_lifecycle.IMMORTAL:
            return
        if in_foreground and not _waits_for(version, uid):
            return
        if any(self._owner(other, namespace) for other in without_owner(version.obj, uid)):
            self._disown(version, uid)
            return
        dependents = self._commits.owners.dependents(version.obj["metadata"]["uid"]) if in_foreground else []
        if any(self._waits(*each) for each in dependents):
            version = self._unblock(version)
        self.delete(version, _FOREGROUND if dependents else _BACKGROUND, dry_run=False)

    def _owner(self, reference: Json, namespace: str) -> Stored | None:
        """The object that a reference from a namespace means, if it is there."""
        found = owner_key(reference, namespace)
        version = self._store.get(*found) if found else None
        return version if version and version.obj["metadata"]["uid"] == reference.get("uid") else None

    def _finish_owner(self, reference: Json, namespace: str) -> None:
        self._finish(self._owner(reference, namespace))

    def _finish(self, owner: Stored | None) -> None:
        """A going owner goes once nothing is left that it waits for."""
        if owner is None or not owner.obj["metadata"].get("deletionTimestamp"):
            return
        uid, finalizers = owner.obj["metadata"]["uid"], owner.obj["metadata"].get("finalizers") or []
        done = set()
        if FOREGROUND in finalizers and not self._blocking(uid):
            done.add(FOREGROUND)
        if ORPHANING in finalizers and not self._commits.owners.has_dependents(uid):
            done.add(ORPHANING)
        if not done:
            return
        obj = copied(owner.obj)
        rest = [each for each in finalizers if each not in done]
        obj["metadata"]["finalizers"] = rest
        if not rest:
            del obj["metadata"]["finalizers"]
        owner = self._commits.put(owner.kind, obj, owner)
        if owner.kind == NAMESPACE:
            self.finish_namespace(owner.key[1])
        elif not rest and not obj["metadata"].get("deletionGracePeriodSeconds"):
            self.remove(owner)

    def _waits(self, kind: Kind, key: Key) -> bool:
        """Whether the object goes, but after its dependents."""
        version = self._store.get(kind, key)
        return version is not None and FOREGROUND in (version.obj["metadata"].get("finalizers") or ())

    def _unblock(self, version: Stored) -> Stored:
        """The object, for which none of its owners waits any more: it may be in a circle with them."""
        obj = copied(version.obj)
        for reference in references(obj):
            reference.pop("blockOwnerDeletion", None)
        changed = self._commits.put(version.kind, obj, version)
        self.released(version.obj)
        return changed

    def _disown(self, version: Stored, uid: str) -> None:
        obj = copied(version.obj)
        obj["metadata"]["ownerReferences"] = without_owner(version.obj, uid)
        if not references(obj):
            del obj["metadata"]["ownerReferences"]
        self._commits.put(version.kind, obj, version)
        self.released(version.obj)

    def _empty(self, namespace: str) -> None:
        """Queue the deletion of everything in a namespace that is going, then, when nothing holds on, its own.

        Who would make Pods anew goes before them.
        """
        for kind in sorted(namespaces_lifecycle.INSIDE, key=lambda kind: kind not in {CRON_JOB, JOB, *WORKLOADS}):
            for version in self._store.page(kind, Filter(namespace)).items:
                self._backlog.add(partial(self._delete_latest, version))
        self._end(namespace)

    def _delete_latest(self, version: Stored) -> None:
        if latest := self._latest(version):
            self.delete(latest, _BACKGROUND, dry_run=False)

    def _end(self, namespace: str) -> None:
        self._backlog.add_last(namespace, partial(self.finish_namespace, namespace))

    def finish_namespace(self, name: str) -> None:
        """Delete a namespace that is going once its content is gone and no finalizer holds it; else say what is left.

        A namespace without finalizers goes whatever is in it: so it can be forced with the finalize subresource.
        """
        namespace = self._store.get(NAMESPACE, ("", name))
        if namespace is None or not namespace.obj["metadata"].get("deletionTimestamp"):
            return
        left = namespaces_lifecycle.content(self._store, name)
        obj = namespaces_lifecycle.terminating(namespace.obj, left, metadata.timestamp(self._now_s()))
        if not namespaces_lifecycle.finalizers(obj) and not obj["metadata"].get("finalizers"):
            self.remove(namespace)
        elif obj != namespace.obj:
            self._commits.put(NAMESPACE, obj, namespace)


_BACKGROUND: Json = {"propagationPolicy": "Background"}
_FOREGROUND: Json = {"propagationPolicy": "Foreground"}


def _waits_for(version: Stored, uid: str) -> bool:
    """Whether an owner that is deleted in the foreground has to wait for this dependent."""
    return any(blocks(reference) for reference in references(version.obj) if reference["uid"] == uid)
