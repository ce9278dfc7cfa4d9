"""Owner references: the controller of an object, and the references that controllers set (meta/v1 OwnerReference)."""

from __future__ import annotations

from kdns.controlplane.apimachinery.annotations import MANIFEST_ANNOTATIONS
from kdns.controlplane.apimachinery.kinds import Json, Kind


def controller_of(obj: Json) -> Json | None:
    """Returns the owner reference whose `controller` is true; an object has at most one."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((reference for reference in owners if reference.get("controller")), None)


def owner_reference(kind: Kind, owner: Json) -> Json:
    """Returns the reference that makes `owner` the controller of an object, which is deleted with it."""
    meta = owner["metadata"]
    row = {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta["name"], "uid": meta.get("uid", "")}
    return {**row, "controller": True, "blockOwnerDeletion": True}


def is_owned(obj: Json, kind: Kind, owner: Json) -> bool:
    """Returns whether this very `owner`, and not an earlier object of its name, is an owner of the object."""
    expected = (kind.api_version, kind.kind, owner["metadata"].get("uid"))
    references = obj["metadata"].get("ownerReferences") or []
    return any((each.get("apiVersion"), each.get("kind"), each.get("uid")) == expected for each in references)


def inherited_annotations(owner: Json) -> dict[str, str]:
    """Returns the annotations that a workload passes to the objects that it creates: all but those of its manifest."""
    annotations: dict[str, str] = owner["metadata"].get("annotations") or {}
    return {name: value for name, value in annotations.items() if name not in MANIFEST_ANNOTATIONS}
