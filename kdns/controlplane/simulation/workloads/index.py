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
from kdns.controlplane.controllers.reconciler import Action
from kdns.controlplane.gc.owners import controller_of, owner_reference
from kdns.controlplane.kinds.validation import selector_of
from kdns.controlplane.storage.object_meta import is_terminating

ACTIONS_MAX: Final = 100
"""Creations, and deletions, of one step at most; their events enqueue the workload for the next step."""


@dataclass(slots=True)
class Dependents:
    """Objects of one kind by the uid of their controller, or by namespace if they have none."""

    objects: dict[Key, Json] = field(default_factory=dict)
    _keys_by_owner: dict[str, dict[Key, None]] = field(default_factory=dict)

    def apply(self, key: Key, obj: Json | None) -> Json | None:
        """Sets an object, None for a deleted one; returns the previous object."""
        old = self.objects.pop(key, None)
        if old is not None:
            _remove(self._keys_by_owner, _owner_key(old), key)
        if obj is not None:
            self.objects[key] = obj
            self._keys_by_owner.setdefault(_owner_key(obj), {})[key] = None
        return old

    def controlled_by(self, owner: Json) -> list[Json]:
        return [self.objects[key] for key in self._keys_by_owner.get(owner["metadata"]["uid"], ())]

    def orphans(self, namespace: str) -> list[Json]:
        """Returns the objects of a namespace without a controller."""
        return [self.objects[key] for key in self._keys_by_owner.get(f"/{namespace}", ())]


def _owner_key(obj: Json) -> str:
    controller = controller_of(obj)
    return str(controller["uid"]) if controller else f"/{obj['metadata'].get('namespace', '')}"


def _remove(keys: dict[str, dict[Key, None]], group: str, key: Key) -> None:
    keys[group].pop(key, None)
    if not keys[group]:
        del keys[group]


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
        """Sets an object, None for a deleted one; returns the workloads that this affects."""
        if kind != self.kind:
            old = self.parts[kind].apply(key, obj)
            return {owner for state in (old, obj) if state for owner in self.affected(state)}
        if (old := self.all.pop(key, None)) is not None:
            self._keys_by_uid.pop(old["metadata"]["uid"], None)
            self._selectors.pop(key, None)
            _remove(self._keys_in, key[0], key)
        if obj is not None:
            self.all[key] = obj
            self._keys_by_uid[obj["metadata"]["uid"]] = key
            self._keys_in.setdefault(key[0], {})[key] = None
        return {key}

    def selector(self, key: Key) -> Selector:
        """Returns the selector of a workload; a ReplicationController's is a plain map of labels."""
        if key not in self._selectors:
            selector = (self.all[key].get("spec") or {}).get("selector") or {}
            parse = from_labels if self.kind == REPLICATION_CONTROLLER else selector_of
            self._selectors[key] = parse(selector)
        return self._selectors[key]

    def affected(self, obj: Json) -> set[Key]:
        """Returns the workload that controls the object, or those that could adopt it."""
        meta, controller = obj["metadata"], controller_of(obj)
        if controller:
            key = self._keys_by_uid.get(controller["uid"])
            return {key} if key else set()
        keys = self._keys_in.get(meta.get("namespace", ""), ())
        return {key for key in keys if self.selector(key).matches(meta.get("labels"))}

    def claimed(self, key: Key, part: Kind) -> tuple[list[Json], list[Action]]:
        """Returns the objects of a kind that the workload owns and selects, and the required adoptions and releases."""
        workload, selector = self.all[key], self.selector(key)
        owned = self.parts[part].controlled_by(workload)
        mine = [obj for obj in owned if selector.matches(obj["metadata"].get("labels"))]
        if is_terminating(workload):
            return mine, []
        changes = []
        if len(mine) < len(owned):
            released = [obj for obj in owned if not selector.matches(obj["metadata"].get("labels"))]
            changes = [_with_owners(obj, workload) for obj in released]
        reference = owner_reference(self.kind, workload)
        for obj in self.parts[part].orphans(key[0]):
            if selector.matches(obj["metadata"].get("labels")) and not is_terminating(obj):
                changes.append(_with_owners(obj, workload, reference))
        return mine, [Action("update", part, obj) for obj in changes[:ACTIONS_MAX]]


def _with_owners(obj: Json, workload: Json, *added: Json) -> Json:
    """Returns the object with `added` in place of its references to the workload."""
    meta, uid = obj["metadata"], workload["metadata"]["uid"]
    owners = [reference for reference in meta.get("ownerReferences") or () if reference.get("uid") != uid]
    metadata = {field: value for field, value in meta.items() if field != "ownerReferences"}
    owners += added
    return {**obj, "metadata": {**metadata, "ownerReferences": owners} if owners else metadata}
