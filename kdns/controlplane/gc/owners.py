"""metadata.ownerReferences: those that controllers set (meta/v1 OwnerReference), and dependents by the owner's uid."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from itertools import chain

import msgspec

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.annotations import MANIFEST_ANNOTATIONS
from kdns.controlplane.apimachinery.kinds import Json, Kind, Kinds
from kdns.controlplane.storage.store import StoredObject


def references(obj: Json) -> list[Json]:
    return list(obj["metadata"].get("ownerReferences") or [])


class OwnerMetadata(msgspec.Struct, rename="camel"):
    """The metadata that garbage collection needs."""

    uid: str = ""
    owner_references: list[Json] | None = None
    deletion_timestamp: str | None = None


class _Object(msgspec.Struct):
    metadata: OwnerMetadata


_read = msgspec.json.Decoder(_Object).decode


class Owners:
    """Dependents by the owner's uid; each commit updates them."""

    def __init__(self) -> None:
        self._dependents: dict[str, dict[tuple[Kind, Key], None]] = {}

    def learn(self, version: StoredObject) -> OwnerMetadata:
        """Adds an object that exists at start; returns its metadata."""
        metadata = _read(version.encoded).metadata  # decodes no more, since at start most objects are not needed
        for reference in metadata.owner_references or ():
            self._gain(reference.get("uid", ""), (version.kind, version.key))
        return metadata

    def track(self, old: StoredObject | None, new: StoredObject | None) -> None:
        if old:
            for reference in old.metadata.get("ownerReferences") or ():
                self._lose(reference.get("uid", ""), (old.kind, old.key))
        if new:
            for reference in new.metadata.get("ownerReferences") or ():
                self._gain(reference.get("uid", ""), (new.kind, new.key))

    def _gain(self, uid: str, dependent: tuple[Kind, Key]) -> None:
        self._dependents.setdefault(uid, {})[dependent] = None

    def _lose(self, uid: str, dependent: tuple[Kind, Key]) -> None:
        dependents = self._dependents.get(uid, {})
        dependents.pop(dependent, None)
        if not dependents:
            self._dependents.pop(uid, None)

    def dependents(self, uid: str) -> list[tuple[Kind, Key]]:
        return list(self._dependents.get(uid, ()))

    def has_dependents(self, uid: str) -> bool:
        return uid in self._dependents

    def ownerless(self, uids: AbstractSet[str]) -> list[tuple[Kind, Key]]:
        lost = [dependents for uid, dependents in self._dependents.items() if uid not in uids]
        return list(dict.fromkeys(chain.from_iterable(lost)))


def without_owner(obj: Json, uid: str) -> list[Json]:
    return [reference for reference in references(obj) if reference.get("uid") != uid]


def blocks(reference: Json) -> bool:
    """A deletion of the owner in the foreground waits for the object with this reference."""
    return bool(reference.get("blockOwnerDeletion"))


def owner_key(reference: Json, namespace: str, kinds: Kinds) -> tuple[Kind, Key] | None:
    """Kind and key of an object's owner; None if the kind is not served or `namespace` is missing for it."""
    kind = kinds.by_type(reference.get("apiVersion", ""), reference.get("kind", ""))
    if kind is None or kind.is_review or (kind.namespaced and not namespace):
        return None
    return kind.stored_kind, (namespace if kind.namespaced else "", str(reference.get("name", "")))


def controller_of(obj: Json) -> Json | None:
    """The owner reference whose `controller` is true; an object has at most one."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((reference for reference in owners if reference.get("controller")), None)


def owner_reference(kind: Kind, owner: Json) -> Json:
    """Makes `owner` the controller of an object, which is deleted with it."""
    meta = owner["metadata"]
    row = {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta["name"], "uid": meta.get("uid", "")}
    return {**row, "controller": True, "blockOwnerDeletion": True}


def is_owned(obj: Json, kind: Kind, owner: Json) -> bool:
    """True for this very `owner`, not for an earlier object of its name."""
    expected = (kind.api_version, kind.kind, owner["metadata"].get("uid"))
    return any((row.get("apiVersion"), row.get("kind"), row.get("uid")) == expected for row in references(obj))


def inherited_annotations(owner: Json) -> dict[str, str]:
    """What a workload passes to the objects that it creates: all annotations but those of its manifest."""
    annotations: dict[str, str] = owner["metadata"].get("annotations") or {}
    return {name: value for name, value in annotations.items() if name not in MANIFEST_ANNOTATIONS}
