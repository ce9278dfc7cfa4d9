"""Hashes of Pod templates, and the ControllerRevisions of StatefulSets and DaemonSets.

Differs: kube-controller-manager hashes Go structures; the hashes here have the same form and other values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kdns.controlplane.apimachinery.kinds import CONTROLLER_REVISION, Json, Kind
from kdns.controlplane.controllers.reconciler import Action
from kdns.controlplane.gc.owners import inherited_annotations, owner_reference
from kdns.controlplane.schema.serialization import serialized
from kdns.controlplane.simulation.workloads.pods import count
from kdns.controlplane.storage.object_meta import NAME_LETTERS

REVISION_HASH = "controller-revision-hash"
_HASH = "controller.kubernetes.io/hash"
_NAME_MAX = 223
_encode = msgspec.json.Encoder(order="deterministic").encode


def safe_hash(value: Any) -> str:
    digest = hashlib.sha256(_encode(value)).digest()
    return "".join(NAME_LETTERS[ord(digit) % len(NAME_LETTERS)] for digit in str(int.from_bytes(digest[:4])))


def template_data(kind: Kind, owner: Json) -> Json:
    """The data of a revision: the patch that restores the template, which `kubectl rollout undo` sends.

    It has Go's values of absent fields, and its keys are sorted. Clients compare the bytes with those that Go makes of
    the template, and a controller that gets others creates a revision of its own.
    """
    template = {**((serialized(kind, owner).get("spec") or {}).get("template") or {}), "$patch": "replace"}
    data: Json = msgspec.json.decode(_encode({"spec": {"template": template}}))
    return data


def template_of(revision: Json) -> Json:
    template = ((revision.get("data") or {}).get("spec") or {}).get("template") or {}
    return {field: value for field, value in template.items() if field != "$patch"}


def label_of(revision: Json) -> str:
    """The label of a revision's Pods: its hash for a DaemonSet, its name for a StatefulSet."""
    meta = revision["metadata"]
    return (meta.get("labels") or {}).get(REVISION_HASH) or str(meta["name"])


def revision_label(pod: Json) -> str:
    return (pod["metadata"].get("labels") or {}).get(REVISION_HASH) or ""


@dataclass(frozen=True, slots=True)
class History:
    """The revisions of one set, oldest first. `update` is the revision of the present template; `due` writes it."""

    revisions: tuple[Json, ...]
    update: Json
    due: Action | None = None

    def named(self, name: str) -> Json | None:
        return next((revision for revision in self.revisions if revision["metadata"]["name"] == name), None)

    def surplus(self, owner: Json, pods: Iterable[Json]) -> list[Action]:
        """Deletes the oldest revisions beyond spec.revisionHistoryLimit that are not in use."""
        if not self.revisions:
            return []
        status = owner.get("status") or {}
        live = {label_of(self.update), status.get("currentRevision"), *map(revision_label, pods)}
        unused = [revision for revision in self.revisions if label_of(revision) not in live]
        most = owner["spec"].get("revisionHistoryLimit", len(unused))
        return [Action("delete", CONTROLLER_REVISION, revision) for revision in unused[: max(0, len(unused) - most)]]


NO_HISTORY: Final = History((), {})
"""For workloads without ControllerRevisions."""


def history_of(kind: Kind, owner: Json, owned: Iterable[Json]) -> History:
    revisions = sorted(owned, key=lambda revision: (count(revision, "revision"), revision["metadata"]["name"]))
    data, number = template_data(kind, owner), count(revisions[-1], "revision") + 1 if revisions else 1
    for revision in reversed(revisions):
        if template_data(kind, revision.get("data") or {}) == data:
            if revision is revisions[-1]:
                return History(tuple(revisions), revision)
            update = {**revision, "revision": number}
            return History(tuple(revisions), update, Action("update", CONTROLLER_REVISION, update))
    update = _new_revision(kind, owner, data, number)
    return History(tuple(revisions), update, Action("create", CONTROLLER_REVISION, update))


def _new_revision(kind: Kind, owner: Json, data: Json, number: int) -> Json:
    """The owner's uid is hashed into its name, since sets of one name may have the same template."""
    meta = owner["metadata"]
    labels = (data["spec"]["template"].get("metadata") or {}).get("labels") or {}
    text = safe_hash([meta["uid"], data])
    metadata = {
        "name": f"{meta['name'][:_NAME_MAX]}-{text}",
        "namespace": meta.get("namespace", ""),
        "labels": {**labels, _HASH: text, **({REVISION_HASH: text} if kind.kind == "DaemonSet" else {})},
        "annotations": inherited_annotations(owner),
        "ownerReferences": [owner_reference(kind, owner)],
    }
    return {"metadata": metadata, "data": data, "revision": number}
