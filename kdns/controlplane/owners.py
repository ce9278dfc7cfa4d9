"""Who depends on whom: metadata.ownerReferences, indexed by the owner's uid."""

from __future__ import annotations

from typing import Any

import msgspec

from kdns.cluster.objects import Key
from kdns.controlplane.kinds import KINDS, Json, Kind
from kdns.controlplane.watch import Stored


def references(obj: Json) -> list[Json]:
    """metadata.ownerReferences, never None."""
    found: Any = obj["metadata"].get("ownerReferences") or []
    return list(found)


class _Metadata(msgspec.Struct, rename="camel"):
    owner_references: list[Json] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata


_read = msgspec.json.Decoder(_Object).decode


def _references_of(version: Stored) -> list[Json]:
    """The same without making the whole object of it: at start there are many that nobody else looks at."""
    return references(version.obj) if version.is_decoded else _read(version.encoded).metadata.owner_references or []


class Owners:
    """Dependents by owner. Fed with each commit's old and new version."""

    def __init__(self) -> None:
        self._dependents: dict[str, dict[tuple[Any, Any], None]] = {}

    def track(self, old: Stored | None, new: Stored | None) -> None:
        """Learn one change."""
        for version in (old, new):
            for reference in _references_of(version) if version else ():
                dependents = self._dependents.setdefault(reference.get("uid", ""), {})
                if version is new and new:
                    dependents[new.kind, new.key] = None
                elif version:
                    dependents.pop((version.kind, version.key), None)

    def dependents(self, uid: str) -> list[tuple[Any, Any]]:
        """(kind, key) of every object that names `uid` as an owner."""
        return list(self._dependents.get(uid, ()))

    def forget(self, uid: str) -> None:
        """The owner is gone for good."""
        self._dependents.pop(uid, None)


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
