"""Hashes of Pod templates, and the ControllerRevisions of StatefulSets and DaemonSets.

Differs: kube-controller-manager hashes Go structures; the hashes here have the same form and other values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from kdns.controlplane.apimachinery.kinds import CONTROLLER_REVISION, Json, Kind
from kdns.controlplane.controllers.owner_references import inherited_annotations, owner_reference
from kdns.controlplane.controllers.reconciler import Action
from kdns.controlplane.schema.serialization import serialized
from kdns.controlplane.simulation.workloads.replicas import count

REVISION_HASH = "controller-revision-hash"
_HASH = "controller.kubernetes.io/hash"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_NAME_MAX = 223
_encode = msgspec.json.Encoder(order="deterministic").encode


def safe_hash(value: Any) -> str:
    digest = hashlib.sha256(_encode(value)).digest()
    return "".join(_LETTERS[ord(digit) % len(_LETTERS)] for digit in str(int.from_bytes(digest[:4])))


def template_data(kind: Kind, owner: Json) -> Json:
    """Returns the data of a revision: the patch that restores the template, which `kubectl rollout undo` sends.

    It has Go's values of absent fields, and its keys are sorted: clients compare the bytes with those that Go makes
    of the template, and a controller that finds others makes a revision of its own.
    """
    template = {**((serialized(kind, owner).get("spec") or {}).get("template") or {}), "$patch": "replace"}
    data: Json = msgspec.json.decode(_encode({"spec": {"template": template}}))
    return data


def template_of(revision: Json) -> Json:
    template = ((revision.get("data") or {}).get("spec") or {}).get("template") or {}
    return {name: value for name, value in template.items() if name != "$patch"}


@dataclass(frozen=True, slots=True)
class History:
    """The revisions of one set, oldest first; `update` is that of its present template, None until it is written.

    `due` are the writes that update the history; they come before all others.
    """

    revisions: tuple[Json, ...]
    update: Json | None
    due: tuple[Action, ...]

    def named(self, name: str) -> Json | None:
        return next((each for each in self.revisions if each["metadata"]["name"] == name), None)

    def outdated(self, limit: int, live: Collection[str]) -> list[Action]:
        """Returns deletions of the oldest unused revisions beyond the limit."""
        unused = [each for each in self.revisions if each["metadata"]["name"] not in live]
        surplus = max(0, len(unused) - limit) if limit >= 0 else 0
        return [Action("delete", CONTROLLER_REVISION, each) for each in unused[:surplus]]


def history(kind: Kind, owner: Json, owned: Iterable[Json]) -> History:
    """Returns the history of a set whose revisions are `owned`."""
    revisions = sorted(owned, key=lambda each: (count(each, "revision"), each["metadata"]["name"]))
    data, newest = template_data(kind, owner), count(revisions[-1], "revision") if revisions else 0
    equal = next((each for each in reversed(revisions) if template_data(kind, each.get("data") or {}) == data), None)
    if equal is revisions[-1] if revisions else False:
        return History(tuple(revisions), equal, ())
    if equal is not None:
        due = Action("update", CONTROLLER_REVISION, {**equal, "revision": newest + 1})
    else:
        due = Action("create", CONTROLLER_REVISION, _revision(kind, owner, data, newest + 1))
    return History(tuple(revisions), None, (due,))


def _revision(kind: Kind, owner: Json, data: Json, number: int) -> Json:
    """Returns a new revision, in whose name the owner's uid keeps sets of one name and template apart."""
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
