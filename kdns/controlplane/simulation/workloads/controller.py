"""The base of the workload controllers: Pods are brought to the template in steps.

A workload returns a `Plan`: its status, the slots of its Pods (ordinals, Nodes or numbers), and the Pods to replace.
`next_step` decides which Pods are created and deleted now, within the bounds of the plan. The controller claims what
the workload selects, and writes revisions, then the status, then Pods; its writes trigger the next step.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from kdns.cluster.objects import Key
from kdns.cluster.selectors import Selector, from_labels
from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import CONTROLLER_REVISION, POD, REPLICATION_CONTROLLER, Json, Kind
from kdns.controlplane.controllers.reconciler import (
    Action,
    Change,
    Event,
    Name,
    Reconciler,
    Request,
    Result,
    status_update,
)
from kdns.controlplane.gc.owners import controller_of, owner_reference
from kdns.controlplane.kinds.pod.pod import is_finished
from kdns.controlplane.kinds.validation import selector_of
from kdns.controlplane.simulation.workloads.dependents import Dependents
from kdns.controlplane.simulation.workloads.pods import available_in_s, count, new_pod, nonzero
from kdns.controlplane.simulation.workloads.revisions import NO_HISTORY, History, history_of
from kdns.controlplane.storage.object_meta import is_terminating

ACTIONS_MAX: Final = 100
"""Creations, and deletions, per step; their events enqueue the workload for the next step."""

Slot: TypeAlias = int | str
"""The position of a Pod in its workload: an ordinal, the name of a Node, or a number."""


class WorkloadController(Reconciler):
    """Requests are workloads of one kind by namespace and name; `parts` are the kinds that they own.

    Claiming is that of Kubernetes' ControllerRefManager: an object that the selector matches is adopted, one that it no
    longer matches is released.
    """

    def __init__(self, name: str, kind: Kind, *parts: Kind) -> None:
        self.name, self.kind, self.watches = name, kind, (kind, *parts)
        self.workloads: dict[Key, Json] = {}
        self._parts = {part: Dependents() for part in parts}
        self._selectors: dict[Key, Selector] = {}
        self._keys_by_uid: dict[str, Key] = {}
        self._keys_in: dict[str, dict[Key, None]] = {}

    def observe(self, change: Change) -> Iterable[Name]:
        kind, key, obj, _ = change
        if kind != self.kind:
            old = self._parts[kind].apply(key, obj)
            return {owner for state in (old, obj) if state for owner in self._affected(state)}
        if (old := self.workloads.pop(key, None)) is not None:
            self._keys_by_uid.pop(old["metadata"]["uid"], None)
            self._selectors.pop(key, None)
            del self._keys_in[key[0]][key]
            if not self._keys_in[key[0]]:
                del self._keys_in[key[0]]
        if obj is not None:
            self.workloads[key] = obj
            self._keys_by_uid[obj["metadata"]["uid"]] = key
            self._keys_in.setdefault(key[0], {})[key] = None
        return (key,)

    def _affected(self, obj: Json) -> set[Key]:
        """The workload that controls the object, or those that could adopt it."""
        meta, controller = obj["metadata"], controller_of(obj)
        if controller:
            key = self._keys_by_uid.get(controller["uid"])
            return {key} if key else set()
        keys = self._keys_in.get(meta.get("namespace", ""), ())
        return {key for key in keys if self._selector(key).matches(meta.get("labels"))}

    def _selector(self, key: Key) -> Selector:
        """The selector of a ReplicationController is a plain map of labels."""
        if key not in self._selectors:
            selector = (self.workloads[key].get("spec") or {}).get("selector") or {}
            parse = from_labels if self.kind == REPLICATION_CONTROLLER else selector_of
            self._selectors[key] = parse(selector)
        return self._selectors[key]

    def reconcile(self, request: Request) -> Result:
        owner = self.workloads.get(request.key)
        if owner is None or is_terminating(owner) or not self.acts_on(owner):
            return Result()
        claimed = {part: self._claimed(request.key, owner, part) for part in self._parts}
        if claims := [claim for _, actions in claimed.values() for claim in actions if self.adopts(owner, claim.obj)]:
            return Result(claims)
        return self.step(owner, {part: objects for part, (objects, _) in claimed.items()}, request.now_s)

    def _claimed(self, key: Key, owner: Json, part: Kind) -> tuple[list[Json], list[Action]]:
        """The objects of a kind that the workload owns and selects, and the required releases and adoptions."""
        selector, mine, changes = self._selector(key), list[Json](), list[Json]()
        for obj in self._parts[part].controlled_by(owner):
            if selector.matches(obj["metadata"].get("labels")):
                mine.append(obj)
            else:
                changes.append(_with_owners(obj, owner))
        reference = owner_reference(self.kind, owner)
        for obj in self._parts[part].orphans(key[0]):
            if selector.matches(obj["metadata"].get("labels")) and not is_terminating(obj):
                changes.append(_with_owners(obj, owner, reference))
        return mine, [Action("update", part, obj) for obj in changes[:ACTIONS_MAX]]

    def failed(self, request: Request, action: Action, error: StatusError) -> Event | None:
        owner = self.workloads.get(request.key)
        if owner is None or not any(map(action.creates, self._parts)):
            return None
        return Event(self.kind, owner, "Warning", "FailedCreate", f"Error creating: {error.message}")

    def acts_on(self, owner: Json) -> bool:
        del owner
        return True

    def adopts(self, owner: Json, obj: Json) -> bool:
        del owner, obj
        return True

    @abstractmethod
    def step(self, owner: Json, owned: Mapping[Kind, list[Json]], now_s: float) -> Result:
        """The next writes, by the objects that the workload owns."""


def _with_owners(obj: Json, workload: Json, *added: Json) -> Json:
    """`added` replace the references to the workload."""
    meta, uid = obj["metadata"], workload["metadata"]["uid"]
    owners = [reference for reference in meta.get("ownerReferences") or () if reference.get("uid") != uid]
    metadata = {field: value for field, value in meta.items() if field != "ownerReferences"}
    owners += added
    return {**obj, "metadata": {**metadata, "ownerReferences": owners} if owners else metadata}


@dataclass(frozen=True, slots=True)
class View:
    """A workload, its Pods and revisions, and the time of the step."""

    owner: Json
    pods: list[Json]
    history: History
    now_s: float

    @property
    def spec(self) -> Json:
        spec: Json = self.owner.get("spec") or {}
        return spec

    @property
    def template(self) -> Json:
        template: Json = self.spec.get("template") or {}
        return template

    def counted(self, **counts: int) -> Json:
        return nonzero(**counts, observedGeneration=count(self.owner["metadata"], "generation"))

    def ready_and_available(self, pods: Iterable[Json]) -> tuple[int, int]:
        waits = list(map(self.wait_s, pods))
        return sum(wait is not None for wait in waits), waits.count(0)

    def wait_s(self, pod: Json) -> float | None:
        """`available_in_s` by spec.minReadySeconds."""
        return available_in_s(pod, count(self.spec, "minReadySeconds"), self.now_s)

    def is_available(self, pod: Json | None) -> bool:
        return pod is not None and self.wait_s(pod) == 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The desired Pods. Slots are `wanted` in the order of creation; `pods` has the Pod in each slot that has one.

    `surplus` are Pods outside of the slots, in the order of deletion. `outdated` are Pods in wanted slots to be
    replaced, in that order, while at most `unavailable_max` slots lack an available Pod. With `in_order`, one Pod at a
    time is created or deleted, and only when all Pods before it are available.
    """

    status: Json
    wanted: Sequence[Slot]
    pods: Mapping[Slot, Json]
    surplus: Sequence[Json] = ()
    outdated: Sequence[Json] = ()
    unavailable_max: int = 0
    in_order: bool = False
    events: Sequence[Event] = ()


def next_step(plan: Plan, is_available: Callable[[Json | None], bool]) -> tuple[list[Slot], list[Json]]:
    """The slots in which Pods are created, and the Pods that are deleted.

    Finished Pods in slots are deleted first. Outdated Pods are replaced when no slot is empty and no Pod is surplus;
    outdated Pods that are unavailable are replaced without limit.
    """
    if ended := [pod for pod in plan.pods.values() if is_finished(pod) and not is_terminating(pod)]:
        return [], ended
    missing = [slot for slot in plan.wanted if slot not in plan.pods]
    surplus = [pod for pod in plan.surplus if not is_terminating(pod)]
    unavailable = [slot for slot in plan.wanted if not is_available(plan.pods.get(slot))]
    if plan.in_order and unavailable:
        return [slot for slot in unavailable[:1] if slot in missing], []
    if plan.in_order and plan.surplus:
        return [], surplus[:1] if len(surplus) == len(plan.surplus) else []
    if missing or surplus:
        return missing, surplus
    outdated = [pod for pod in plan.outdated if not is_terminating(pod)]
    broken = [pod for pod in outdated if not is_available(pod)]
    room = max(0, plan.unavailable_max - len(unavailable))
    return [], [*broken, *[pod for pod in outdated if is_available(pod)][:room]]


class PodController(WorkloadController):
    """A controller of workloads that own Pods, and of their ControllerRevisions if it has that part."""

    def __init__(self, name: str, kind: Kind, *parts: Kind) -> None:
        super().__init__(name, kind, POD, *parts)

    @abstractmethod
    def plan(self, view: View) -> Plan:
        """The desired Pods and the status."""

    def created(self, view: View, slot: Slot) -> list[Action]:
        del slot
        return [Action("create", POD, new_pod(self.kind, view.owner, view.template))]

    def step(self, owner: Json, owned: Mapping[Kind, list[Json]], now_s: float) -> Result:
        revisions = owned.get(CONTROLLER_REVISION)
        history = NO_HISTORY if revisions is None else history_of(self.kind, owner, revisions)
        if history.due:
            return Result([history.due])
        view = View(owner, owned[POD], history, now_s)
        plan = self.plan(view)
        slots, deleted = next_step(plan, view.is_available)
        slots, deleted = slots[:ACTIONS_MAX], deleted[:ACTIONS_MAX]
        old = {name: value for name, value in (owner.get("status") or {}).items() if name == "conditions"}  # of others
        actions = [
            *status_update(self.kind, owner, {**old, **plan.status}),
            *(Action("delete", POD, pod) for pod in deleted),
            *(action for slot in slots for action in self.created(view, slot)),
            *history.surplus(owner, view.pods),
        ]
        events = [*plan.events]
        if deleted:
            names = ", ".join(pod["metadata"]["name"] for pod in deleted)
            events.append(Event(self.kind, owner, "Normal", "SuccessfulDelete", f"Deleted pods: {names}"))
        if slots:
            events.append(Event(self.kind, owner, "Normal", "SuccessfulCreate", f"Created pods: {len(slots)}"))
        return Result(actions, events, min(filter(None, map(view.wait_s, view.pods)), default=None))
