"""Who depends on whom: metadata.ownerReferences, indexed by the owner's uid."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Any

import msgspec

from kdns.cluster.objects import Key
from kdns.controlplane.kinds import KINDS, Json, Kind
from kdns.controlplane.watch import Stored


def references(obj: Json) -> list[Json]:
    """metadata.ownerReferences, never None."""
    found: Any = obj["metadata"].get("ownerReferences") or []
    return list(found)


class Marks(msgspec.Struct, rename="camel"):
    """What metadata says of an object's owners and its end."""

    uid: str = ""
    owner_references: list[Json] | None = None
    deletion_timestamp: str | None = None


class _Object(msgspec.Struct):
    metadata: Marks


_read = msgspec.json.Decoder(_Object).decode


def _marks_of(version: Stored) -> Marks:
    """Metadata without making the whole object of it: at start there are many that nobody else looks at."""
    if version.is_decoded:
        return msgspec.convert(version.obj["metadata"], Marks)
    return _read(version.encoded).metadata


class Owners:
    """Dependents by owner. Fed with each commit's old and new version."""

    def __init__(self) -> None:
        self._dependents: dict[str, dict[tuple[Kind, Key], None]] = {}

    def learn(self, version: Stored) -> Marks:
        """Track an object that is there at start; what its metadata says."""
        marks = _marks_of(version)
        for reference in marks.owner_references or ():
            self._gain(reference.get("uid", ""), (version.kind, version.key))
        return marks

    def track(self, old: Stored | None, new: Stored | None) -> None:
        """Learn one change."""
        if old:
            for reference in references(old.obj):
                self._lose(reference.get("uid", ""), (old.kind, old.key))
        if new:
            for reference in references(new.obj):
                self._gain(reference.get("uid", ""), (new.kind, new.key))

    def _gain(self, uid: str, dependent: tuple[Kind, Key]) -> None:
        self._dependents.setdefault(uid, {})[dependent] = None

    def _lose(self, uid: str, dependent: tuple[Kind, Key]) -> None:
        dependents = self._dependents.get(uid, {})
        dependents.pop(dependent, None)
        if not dependents:
            self._dependents.pop(uid, None)

    def dependents(self, uid: str) -> list[tuple[Kind, Key]]:
        """(kind, key) of every object that names `uid` as an owner."""
        return list(self._dependents.get(uid, ()))

    def has_dependents(self, uid: str) -> bool:
        """Whether there is any."""
        return uid in self._dependents

    def ownerless(self, uids: AbstractSet[str]) -> list[tuple[Kind, Key]]:
        """Every object with an owner that is not among these."""
        lost = [dependents for uid, dependents in self._dependents.items() if uid not in uids]
        return list(dict.fromkeys(chain.from_iterable(lost)))


def without_owner(obj: Json, uid: str) -> list[Json]:
    """The references that remain when the owner `uid` goes."""
    return [reference for reference in references(obj) if reference.get("uid") != uid]


def blocks(reference: Json) -> bool:
    """Whether the owner, deleted in the foreground, waits for the object that has this reference."""
    return bool(reference.get("blockOwnerDeletion"))


_KINDS = {(kind.api_version, kind.kind): kind for kind in KINDS}


def owner_key(reference: Json, namespace: str) -> tuple[Kind, Key] | None:
    """Where the owner of an object in `namespace` is; None for a kind that is not served, or without a namespace."""
    kind = _KINDS.get((reference.get("apiVersion", ""), reference.get("kind", "")))
    if kind is None or (kind.namespaced and not namespace):
        return None
    return kind, (namespace if kind.namespaced else "", str(reference.get("name", "")))
