"""What the controllers of workloads share: who belongs to whom, which Pods count, and how Pods are made.

A controller's index holds its workloads and, per kind, what these own or could adopt. Objects are shared with the store
and never changed here.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kdns.cluster.objects import Key
from kdns.cluster.selectors import Selector, from_labels
from kdns.controlplane.ages import seconds_of
from kdns.controlplane.allocate import Choose
from kdns.controlplane.controller import Action, Notice
from kdns.controlplane.kinds import REPLICATION_CONTROLLER, Json, Kind
from kdns.controlplane.label_selectors import selector_of
from kdns.controlplane.manifests import LAST_APPLIED, SOURCE

CHUNK = 100
"""Writes of one Outcome at most; their events bring the controller back for the rest."""

_TOLD_ONE_BY_ONE = 9
"""Events of one kind are told one by one up to here, and together after that, as client-go does."""

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_GENERATED_BASE_MAX = 58
_TRIES = 8
_FINISHED = frozenset({"Succeeded", "Failed"})

Suffix: TypeAlias = Callable[[], str]
"""Makes the random end of a Pod's name."""


def suffixes(choose: Choose) -> Suffix:
    """Five letters that make no words, as the API puts behind generateName."""
    return lambda: "".join(_LETTERS[choose(len(_LETTERS))] for _ in range(_SUFFIX_LENGTH))


def controller_of(obj: Json) -> Json | None:
    """The one reference to an owner that manages the object."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((reference for reference in owners if reference.get("controller")), None)


def owner_reference(kind: Kind, owner: Json) -> Json:
    """The reference that makes `owner` the manager of an object."""
    meta = owner["metadata"]
    row = {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta["name"], "uid": meta.get("uid", "")}
    return {**row, "controller": True, "blockOwnerDeletion": True}


@dataclass(slots=True)
class Dependents:
    """Objects of one kind by their manager's uid; those without one by namespace."""

    objects: dict[Key, Json] = field(default_factory=dict)
    _filed: dict[str, dict[Key, None]] = field(default_factory=dict)

    def apply(self, key: Key, obj: Json | None) -> Json | None:
        """Learn the new state (None: deleted); the old one."""
        old = self.objects.pop(key, None)
        if old is not None:
            heading = _heading(old)
            self._filed[heading].pop(key, None)
            if not self._filed[heading]:
                del self._filed[heading]
        if obj is not None:
            self.objects[key] = obj
            self._filed.setdefault(_heading(obj), {})[key] = None
        return old

    def of(self, owner: Json) -> list[Json]:
        """What this very owner manages."""
        return self.managed_by(owner["metadata"]["uid"])

    def managed_by(self, uid: str) -> list[Json]:
        """What the owner of this uid manages."""
        return [self.objects[key] for key in self._filed.get(uid, ())]

    def orphans(self, namespace: str) -> list[Json]:
        """What nobody manages in a namespace."""
        return [self.objects[key] for key in self._filed.get(f"/{namespace}", ())]


def _heading(obj: Json) -> str:
    manager = controller_of(obj)
    return str(manager["uid"]) if manager else f"/{obj['metadata'].get('namespace', '')}"


class Workloads:
    """The workloads of one kind, and what belongs to them."""

    def __init__(self, kind: Kind, *parts: Kind) -> None:
        self.kind = kind
        self.all: dict[Key, Json] = {}
        self.parts = {part: Dependents() for part in parts}
        self._selectors: dict[Key, Selector] = {}
        self._keys_by_uid: dict[str, Key] = {}
        self._keys_in: dict[str, dict[Key, None]] = {}

    def learn(self, kind: Kind, key: Key, obj: Json | None) -> set[Key]:
        """Note an object's new state (None: deleted); the workloads it concerns."""
        if kind != self.kind:
            old = self.parts[kind].apply(key, obj)
            return {found for each in (old, obj) if each for found in self.concerned(each)}
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
        """What the workload selects."""
        if key not in self._selectors:
            self._selectors[key] = pod_selector(self.kind, self.all[key])
        return self._selectors[key]

    def concerned(self, obj: Json) -> set[Key]:
        """The workload that manages the object, or those that could adopt it."""
        manager = controller_of(obj)
        if manager:
            found = self._keys_by_uid.get(manager["uid"])
            return {found} if found else set()
        labels = obj["metadata"].get("labels")
        namespace = obj["metadata"].get("namespace", "")
        return {key for key in self._keys_in.get(namespace, ()) if self.selector(key).matches(labels)}

    def claimed(self, key: Key, part: Kind) -> tuple[list[Json], list[Action]]:
        """What of a kind belongs to the workload by its selector, and the adoptions and releases that are due."""
        workload, selector = self.all[key], self.selector(key)
        leaving = is_leaving(workload)
        mine, changes = [], []
        for obj in self.parts[part].of(workload):
            if selector.matches(obj["metadata"].get("labels")):
                mine.append(obj)
            elif not leaving:
                changes.append(Action("update", part, _released(obj, workload)))
        if not leaving:
            reference = owner_reference(self.kind, workload)
            strays = self.parts[part].orphans(key[0])
            fit = [obj for obj in strays if selector.matches(obj["metadata"].get("labels")) and not is_leaving(obj)]
            changes += [Action("update", part, _adopted(obj, reference)) for obj in fit]
        return mine, changes[:CHUNK]


def pod_selector(kind: Kind, workload: Json) -> Selector:
    """The selector of a workload; a ReplicationController's is a plain map of labels."""
    selector = (workload.get("spec") or {}).get("selector") or {}
    return from_labels(selector) if kind == REPLICATION_CONTROLLER else selector_of(selector)


def _released(obj: Json, owner: Json) -> Json:
    meta, uid = obj["metadata"], owner["metadata"]["uid"]
    owners = [reference for reference in meta["ownerReferences"] if reference.get("uid") != uid]
    kept = {name: value for name, value in meta.items() if name != "ownerReferences"}
    return {**obj, "metadata": {**kept, **({"ownerReferences": owners} if owners else {})}}


def _adopted(obj: Json, reference: Json) -> Json:
    meta = obj["metadata"]
    return {**obj, "metadata": {**meta, "ownerReferences": [*(meta.get("ownerReferences") or ()), reference]}}


def is_leaving(obj: Json) -> bool:
    """Whether the object is being deleted."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_finished(pod: Json) -> bool:
    """Whether the Pod has ended."""
    return (pod.get("status") or {}).get("phase") in _FINISHED


def is_active(pod: Json) -> bool:
    """Whether the Pod counts: it neither ended nor is being deleted."""
    return not is_leaving(pod) and not is_finished(pod)


def ready_since_s(pod: Json) -> float | None:
    """When the Pod became ready (Unix seconds; 0 where that is not told); None for a Pod that is not ready."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            if condition.get("status") != "True":
                return None
            return seconds_of(condition.get("lastTransitionTime") or "") or 0.0
    return None


def remaining_s(since_s: float | None, min_ready_s: int, now_s: float) -> float | None:
    """Seconds until a Pod that is ready since then is available; None for one that is not ready."""
    if since_s is None or not min_ready_s:
        return None if since_s is None else 0.0
    return max(0.0, since_s + min_ready_s - now_s)


def unavailable_for_s(pod: Json, min_ready_s: int, now_s: float) -> float | None:
    """Seconds until a ready Pod counts as available, 0 for one that does; None for a Pod that is not ready."""
    return remaining_s(ready_since_s(pod), min_ready_s, now_s)


def new_pod(kind: Kind, owner: Json, template: Json, name: str, generate_name: str = "") -> Json:
    """A Pod of the template, managed by `owner`."""
    made, meta = template.get("metadata") or {}, owner["metadata"]
    metadata: Json = {"name": name, "namespace": meta.get("namespace", "")}
    if generate_name:
        metadata["generateName"] = generate_name
    for copied in ("labels", "annotations", "finalizers"):
        if made.get(copied):
            metadata[copied] = made[copied]
    metadata["ownerReferences"] = [owner_reference(kind, owner)]
    return {"metadata": metadata, "spec": template.get("spec") or {}}


def generated_names(owner: Json, number: int, suffix: Suffix, taken: Container[Key]) -> list[str]:
    """Names as the API makes them of generateName, different from each other and from those in the namespace."""
    meta, names = owner["metadata"], dict[str, None]()
    base = f"{meta['name']}-"[:_GENERATED_BASE_MAX]
    for _ in range(2 * number + _TRIES):
        name = f"{base}{suffix()}"
        if (meta.get("namespace", ""), name) not in taken:
            names[name] = None
        if len(names) == number:
            break
    return list(names)


def told(
    kind: Kind,
    about: Json,
    reason: str,
    messages: Sequence[str],
    *,
    more: bool = False,
    type: Literal["Normal", "Warning"] = "Normal",  # noqa: A002 - an Event's field
) -> list[Notice]:
    """Notices of one reason; of many (or with `more` to come) the last one stands for those that are not told."""
    shown: Iterable[str] = messages
    if more or len(messages) > _TOLD_ONE_BY_ONE:
        first = [] if more else messages[:_TOLD_ONE_BY_ONE]
        shown = [*first, *(f"(combined from similar events): {message}" for message in messages[-1:])]
    return [Notice(kind, about, type, reason, message) for message in shown]


def with_status(kind: Kind, obj: Json, status: Json) -> list[Action]:
    """The write of a new status; none when it says the same."""
    if status == (obj.get("status") or {}):
        return []
    return [Action("update", kind, {**obj, "status": status}, "status")]


def count(fields: Json | None, name: str) -> int:
    """A number that is 0 when it is absent."""
    return int((fields or {}).get(name) or 0)


def handed_on(owner: Json) -> dict[str, str]:
    """The annotations of a workload that what it makes gets too: not those that tie an object to its manifest."""
    annotations: dict[str, str] = owner["metadata"].get("annotations") or {}
    return {name: value for name, value in annotations.items() if name not in {SOURCE, LAST_APPLIED}}
