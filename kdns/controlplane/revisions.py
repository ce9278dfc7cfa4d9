"""Which template a Pod was made from: hashes of templates, and the ControllerRevisions of StatefulSets and DaemonSets.

Differs: the hashes are not those that kube-controller-manager makes of Go structures; they have the same form.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from kdns.cluster.objects import Key
from kdns.controlplane.controller import Action
from kdns.controlplane.kinds import CONTROLLER_REVISION, Json, Kind
from kdns.controlplane.workloads import count, handed_on, owner_reference

REVISION_HASH = "controller-revision-hash"
_HASH = "controller.kubernetes.io/hash"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_NAME_MAX = 223
_encode = msgspec.json.Encoder(order="deterministic").encode


def safe_hash(value: Any, collisions: int = 0) -> str:
    """A short text that depends on the value alone, and on how many names it made were taken."""
    digest = hashlib.sha256(_encode(value) + (str(collisions).encode() if collisions else b"")).digest()
    return "".join(_LETTERS[ord(digit) % len(_LETTERS)] for digit in str(int.from_bytes(digest[:4])))


def template_data(owner: Json) -> Json:
    """What a revision holds: a patch that puts the template back (what `kubectl rollout undo` sends)."""
    return {"spec": {"template": {**((owner.get("spec") or {}).get("template") or {}), "$patch": "replace"}}}


def template_of(revision: Json) -> Json:
    """The template that a revision holds."""
    template = ((revision.get("data") or {}).get("spec") or {}).get("template") or {}
    return {name: value for name, value in template.items() if name != "$patch"}


@dataclass(frozen=True, slots=True)
class History:
    """The revisions of one set, oldest first; `update` is that of its present template, if it is written already.

    `due` are the writes that bring the history up to date; until they are done, nothing else is.
    """

    revisions: tuple[Json, ...]
    update: Json | None
    due: tuple[Action, ...]
    collisions: int

    def named(self, name: str) -> Json | None:
        """The revision of a name."""
        return next((each for each in self.revisions if each["metadata"]["name"] == name), None)

    def outdated(self, limit: int, live: Collection[str]) -> list[Action]:
        """Deletions of the oldest revisions that nobody uses, beyond the limit."""
        unused = [each for each in self.revisions if each["metadata"]["name"] not in live]
        surplus = max(0, len(unused) - limit) if limit >= 0 else 0
        return [Action("delete", CONTROLLER_REVISION, each) for each in unused[:surplus]]


def history(kind: Kind, owner: Json, owned: Iterable[Json], taken: Container[Key]) -> History:
    """The history of a set whose revisions are `owned`; `taken` are the keys of all revisions that there are."""
    revisions = sorted(owned, key=lambda each: (count(each, "revision"), each["metadata"]["name"]))
    data, newest = template_data(owner), count(revisions[-1], "revision") if revisions else 0
    collisions = count(owner.get("status"), "collisionCount")
    equal = next((each for each in reversed(revisions) if each.get("data") == data), None)
    if equal is revisions[-1] if revisions else False:
        return History(tuple(revisions), equal, (), collisions)
    if equal is not None:
        due = Action("update", CONTROLLER_REVISION, {**equal, "revision": newest + 1})
        return History(tuple(revisions), None, (due,), collisions)
    namespace, stem = owner["metadata"].get("namespace", ""), owner["metadata"]["name"][:_NAME_MAX]
    while (namespace, name := f"{stem}-{safe_hash(data, collisions)}") in taken:
        collisions += 1
    due = Action("create", CONTROLLER_REVISION, _revision(kind, owner, name, data, newest + 1))
    return History(tuple(revisions), None, (due,), collisions)


def _revision(kind: Kind, owner: Json, name: str, data: Json, number: int) -> Json:
    meta = owner["metadata"]
    labels = (data["spec"]["template"].get("metadata") or {}).get("labels") or {}
    text = name.rpartition("-")[2]
    metadata = {
        "name": name,
        "namespace": meta.get("namespace", ""),
        "labels": {**labels, _HASH: text, **({REVISION_HASH: text} if kind.kind == "DaemonSet" else {})},
        "annotations": handed_on(owner),
        "ownerReferences": [owner_reference(kind, owner)],
    }
    return {"metadata": metadata, "data": data, "revision": number}
