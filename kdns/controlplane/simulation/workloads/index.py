"""The index of the workload controllers: workloads of one kind, and the objects that they own or could adopt.

Claiming is that of Kubernetes' ControllerRefManager: an object that the selector matches is adopted, one that it no
longer matches is released. Objects are shared with the store and never changed here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kdns.cluster.objects import Key
from kdns.cluster.selectors import Selector, from_labels
from kdns.controlplane.apimachinery.kinds import REPLICATION_CONTROLLER, Json, Kind
from kdns.controlplane.controllers.owner_references import controller_of, owner_reference
from kdns.controlplane.controllers.reconciler import Action
from kdns.controlplane.kinds.label_selectors import selector_of
from kdns.controlplane.storage.object_meta import is_terminating

ACTIONS_MAX: Final = 100
"""Writes of one Outcome at most; their events bring the controller back for the rest."""


@dataclass(slots=True)
class Dependents:
    """Objects of one kind by the uid of their controller; orphans by namespace."""

    objects: dict[Key, Json] = field(default_factory=dict)
    _keys_by_owner: dict[str, dict[Key, None]] = field(default_factory=dict)

    def apply(self, key: Key, obj: Json | None) -> Json | None:
        """Sets an object, None for a deleted one; the previous object."""
        old = self.objects.pop(key, None)
        if old is not None:
            owner_key = _owner_key(old)
            self._keys_by_owner[owner_key].pop(key, None)
            if not self._keys_by_owner[owner_key]:
                del self._keys_by_owner[owner_key]
        if obj is not None:
            self.objects[key] = obj
            self._keys_by_owner.setdefault(_owner_key(obj), {})[key] = None
        return old

    def of(self, owner: Json) -> list[Json]:
        """Returns the objects that `owner` controls."""
        return self.controlled_by(owner["metadata"]["uid"])

    def controlled_by(self, uid: str) -> list[Json]:
        """Returns the objects that the owner of this uid controls."""
        return [self.objects[key] for key in self._keys_by_owner.get(uid, ())]

    def orphans(self, namespace: str) -> list[Json]:
        """Returns the objects of a namespace without a controller."""
        return [self.objects[key] for key in self._keys_by_owner.get(f"/{namespace}", ())]


def _owner_key(obj: Json) -> str:
    controller = controller_of(obj)
    return str(controller["uid"]) if controller else f"/{obj['metadata'].get('namespace', '')}"


class WorkloadIndex:
    """The workloads of one kind; `parts` are the objects that they may own, by kind."""

    def __init__(self, kind: Kind, *parts: Kind) -> None:
        self.kind = kind
        self.all: dict[Key, Json] = {}
        self.parts = {part: Dependents() for part in parts}
        self._selectors: dict[Key, Selector] = {}
        self._keys_by_uid: dict[str, Key] = {}
        self._keys_in: dict[str, dict[Key, None]] = {}

    def observe(self, kind: Kind, key: Key, obj: Json | None) -> set[Key]:
        """Sets an object, None for a deleted one; the workloads that this affects."""
        if kind != self.kind:
            old = self.parts[kind].apply(key, obj)
            return {owner for each in (old, obj) if each for owner in self.affected(each)}
        if (old := self.all.pop(key, None)) is not None:
            self._keys_by_uid.pop(old["metadata"]["uid"], None)
            self._keys_in[key[0]].pop(key, None)
            if not self._keys_in[key[0]]:
                del self._keys_in[key[0]]
            self._selectors.pop(key, None)
        if obj is not None:
            self.all[key] = obj
            self._keys_by_uid[obj["metadata"]["uid"]] = key
            self._keys_in.setdefault(key[0], {})[key] = None
        return {key}

    def selector(self, key: Key) -> Selector:
        if key not in self._selectors:
            self._selectors[key] = pod_selector(self.kind, self.all[key])
        return self._selectors[key]

    def affected(self, obj: Json) -> set[Key]:
        """Returns the workload that controls the object, or those that could adopt it."""
        controller = controller_of(obj)
        if controller:
            key = self._keys_by_uid.get(controller["uid"])
            return {key} if key else set()
        labels = obj["metadata"].get("labels")
        namespace = obj["metadata"].get("namespace", "")
        return {key for key in self._keys_in.get(namespace, ()) if self.selector(key).matches(labels)}

    def claimed(self, key: Key, part: Kind) -> tuple[list[Json], list[Action]]:
        """Returns the objects of a kind that the workload owns and selects, and the required adoptions and releases."""
        workload, selector = self.all[key], self.selector(key)
        terminating = is_terminating(workload)
        mine, changes = [], []
        for obj in self.parts[part].of(workload):
            if selector.matches(obj["metadata"].get("labels")):
                mine.append(obj)
            elif not terminating:
                changes.append(Action("update", part, _released(obj, workload)))
        if not terminating:
            reference = owner_reference(self.kind, workload)
            orphans = self.parts[part].orphans(key[0])
            fit = [
                obj for obj in orphans if selector.matches(obj["metadata"].get("labels")) and not is_terminating(obj)
            ]
            changes += [Action("update", part, _adopted(obj, reference)) for obj in fit]
        return mine, changes[:ACTIONS_MAX]


def pod_selector(kind: Kind, workload: Json) -> Selector:
    """Returns the selector of a workload; a ReplicationController's is a plain map of labels."""
    selector = (workload.get("spec") or {}).get("selector") or {}
    return from_labels(selector) if kind == REPLICATION_CONTROLLER else selector_of(selector)


def _released(obj: Json, owner: Json) -> Json:
    meta, uid = obj["metadata"], owner["metadata"]["uid"]
    owners = [reference for reference in meta["ownerReferences"] if reference.get("uid") != uid]
    rest = {name: value for name, value in meta.items() if name != "ownerReferences"}
    return {**obj, "metadata": {**rest, **({"ownerReferences": owners} if owners else {})}}


def _adopted(obj: Json, reference: Json) -> Json:
    meta = obj["metadata"]
    return {**obj, "metadata": {**meta, "ownerReferences": [*(meta.get("ownerReferences") or ()), reference]}}
