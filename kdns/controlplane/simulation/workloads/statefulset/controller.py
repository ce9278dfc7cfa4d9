"""The StatefulSet controller: Pods with ordinals, created, deleted and updated in order.

A reconcile takes every step that is possible now; with podManagementPolicy OrderedReady that is one Pod at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.inert import CLAIM
from kdns.controlplane.apimachinery.kinds import CONTROLLER_REVISION, POD, STATEFUL_SET, Json
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
from kdns.controlplane.kinds.pod.pod import is_finished
from kdns.controlplane.simulation.workloads.index import ACTIONS_MAX, Dependents, WorkloadIndex
from kdns.controlplane.simulation.workloads.pods import pod_available_in_s
from kdns.controlplane.simulation.workloads.replicas import count, desired_replicas, int_or_percent
from kdns.controlplane.simulation.workloads.revisions import history, template_of
from kdns.controlplane.simulation.workloads.statefulset.pods import (
    claims_of,
    first_ordinal,
    identified,
    is_running_and_ready,
    new_ordinal_pod,
    ordinal_of,
    revision_name,
    wait_s,
)
from kdns.controlplane.storage.object_meta import is_terminating


class StatefulSets(Reconciler):
    """Requests are StatefulSets by namespace and name."""

    name = "statefulset-controller"
    watches = (STATEFUL_SET, POD, CONTROLLER_REVISION, CLAIM)

    def __init__(self) -> None:
        self._index = WorkloadIndex(STATEFUL_SET, POD, CONTROLLER_REVISION)
        self._claims = Dependents()

    def observe(self, change: Change) -> Iterable[Name]:
        """Returns the set, or that of a Pod or ControllerRevision. PersistentVolumeClaims are only indexed."""
        kind, key, obj, _ = change
        if kind == CLAIM:
            self._claims.apply(key, obj)
            return ()
        return self._index.observe(kind, key, obj)

    def reconcile(self, request: Request) -> Result:
        """Writes ControllerRevisions first, then the status, then Pods."""
        key = request.key
        owner = self._index.all.get(key)
        if owner is None:
            return Result()
        revisions, changes = self._index.claimed(key, CONTROLLER_REVISION)
        pods, orphans = self._index.claimed(key, POD)
        orphans = [each for each in orphans if ordinal_of(each.obj, owner) is not None]
        if changes or orphans:
            return Result([*changes, *orphans])
        revision_history = history(STATEFUL_SET, owner, revisions)
        if is_terminating(owner):
            return Result()
        if revision_history.due or revision_history.update is None:
            return Result(revision_history.due)
        current = (
            revision_history.named((owner.get("status") or {}).get("currentRevision") or "") or revision_history.update
        )
        step = Step(owner, revision_history.update, current, request.now_s)
        step.pods = {ordinal: pod for pod in pods if (ordinal := ordinal_of(pod, owner)) is not None}
        status = status_of(step)
        actions = status_update(STATEFUL_SET, owner, status)
        self._run(step)
        live = {
            revision_history.update["metadata"]["name"],
            current["metadata"]["name"],
            *map(revision_name, step.pods.values()),
        }
        limit = owner["spec"].get("revisionHistoryLimit")
        surplus = revision_history.outdated(-1 if limit is None else limit, live)
        waits = [wait_s(pod, count(step.spec, "minReadySeconds"), request.now_s) for pod in step.pods.values()]
        requeue_after_s = min((wait for wait in waits if wait), default=None)
        return Result([*actions, *step.actions, *surplus], step.events, requeue_after_s)

    def failed(self, request: Request, action: Action, error: StatusError) -> Event | None:
        """Returns FailedCreate for a Pod."""
        owner = self._index.all.get(request.key)
        if owner is None or not action.creates(POD):
            return None
        name, pod = owner["metadata"]["name"], action.obj["metadata"]["name"]
        message = f"create Pod {pod} in StatefulSet {name} failed error: {error.message}"
        return Event(STATEFUL_SET, owner, "Warning", "FailedCreate", message)

    def _run(self, step: Step) -> None:
        """Creates missing Pods, then deletes those beyond the size, then those of other revisions."""
        if (
            all(self._ensure_pod(step, ordinal) for ordinal in step.ordinals)
            and self._scale_down(step)
            and not step.actions
        ):
            replace_outdated(step)

    def _ensure_pod(self, step: Step, ordinal: int) -> bool:
        """Creates or updates the Pod of an ordinal; False if the others must wait."""
        pod = step.pods.get(ordinal)
        if step.full:
            return False
        if pod is None:
            self._create_pod(step, ordinal)
            return not step.in_order
        if is_finished(pod):
            if not is_terminating(pod):
                step.delete(pod)
            return not step.in_order
        if (pod.get("status") or {}).get("phase") == "Pending":
            step.actions += self._missing_claims(step, ordinal)
        if step.in_order and not step.is_available(pod):
            return False
        metadata = identified(pod, step.owner, ordinal)["metadata"]
        if not is_terminating(pod) and metadata != pod["metadata"]:
            step.actions.append(Action("update", POD, {**pod, "metadata": metadata}))
        return True

    def _create_pod(self, step: Step, ordinal: int) -> None:
        revision = step.current if ordinal < first_updated(step) else step.update
        pod = new_ordinal_pod(step.owner, template_of(revision), ordinal, revision["metadata"]["name"])
        name = pod["metadata"]["name"]
        for action in self._missing_claims(step, ordinal):
            step.actions.append(action)
            claim = action.obj["metadata"]["name"]
            step.add_event("SuccessfulCreate", f"create Claim {claim} Pod {name} in StatefulSet {step.name} success")
        step.actions.append(Action("create", POD, pod))
        step.add_event("SuccessfulCreate", f"create Pod {name} in StatefulSet {step.name} successful")

    def _missing_claims(self, step: Step, ordinal: int) -> list[Action]:
        wanted_claims = claims_of(step.owner, ordinal)
        here = self._claims.objects
        keys = [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in wanted_claims]
        return [Action("create", CLAIM, each) for key, each in zip(keys, wanted_claims, strict=True) if key not in here]

    def _scale_down(self, step: Step) -> bool:
        """Deletes Pods beyond the size, from the highest ordinal down; False if others must wait."""
        surplus = sorted((ordinal for ordinal in step.pods if ordinal not in step.ordinals), reverse=True)
        healthy = [*step.ordinals, *reversed(surplus)]
        first_unhealthy = next((ordinal for ordinal in healthy if not step.is_available(step.pods.get(ordinal))), None)
        for ordinal in surplus:
            pod = step.pods[ordinal]
            if step.full:
                return False
            if is_terminating(pod):
                if step.in_order:
                    return False
                continue
            if step.in_order and not step.is_available(pod) and ordinal != first_unhealthy:
                return False
            step.delete(pod)
            if step.in_order:
                return False
        return True


@dataclass(slots=True)
class Step:
    """One reconcile of a StatefulSet: the set, its Pods by ordinal, and the writes and Events so far."""

    owner: Json
    update: Json
    current: Json
    now_s: float
    pods: dict[int, Json] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    @property
    def spec(self) -> Json:
        spec: Json = self.owner["spec"]
        return spec

    @property
    def ordinals(self) -> range:
        first = first_ordinal(self.owner)
        return range(first, first + desired_replicas(self.owner))

    @property
    def in_order(self) -> bool:
        """Whether podManagementPolicy is OrderedReady."""
        return self.spec.get("podManagementPolicy") != "Parallel"

    @property
    def full(self) -> bool:
        """Whether this reconcile has as many writes as allowed."""
        return len(self.actions) >= ACTIONS_MAX

    def is_available(self, pod: Json | None) -> bool:
        return pod is not None and wait_s(pod, count(self.spec, "minReadySeconds"), self.now_s) == 0

    def delete(self, pod: Json) -> None:
        self.actions.append(Action("delete", POD, pod))
        self.add_event(
            "SuccessfulDelete", f"delete Pod {pod['metadata']['name']} in StatefulSet {self.name} successful"
        )

    def add_event(self, reason: str, message: str) -> None:
        self.events.append(Event(STATEFUL_SET, self.owner, "Normal", reason, message))

    @property
    def name(self) -> str:
        return str(self.owner["metadata"]["name"])


def first_updated(step: Step) -> int:
    """Returns the first ordinal of the update revision, by spec.updateStrategy.rollingUpdate.partition."""
    update, first = step.spec.get("updateStrategy") or {}, step.ordinals.start
    if update.get("type") != "RollingUpdate":
        return first
    rolling = update.get("rollingUpdate")
    if rolling is None:
        current = step.current["metadata"]["name"]
        return first + [revision_name(pod) for pod in step.pods.values() if not is_terminating(pod)].count(current)
    return first + count(rolling, "partition")


def replace_outdated(step: Step) -> None:
    """Deletes Pods of other revisions, from the highest ordinal down, within maxUnavailable."""
    update = step.spec.get("updateStrategy") or {}
    if update.get("type") != "RollingUpdate":
        return
    rolling = update.get("rollingUpdate") or {}
    most = rolling.get("maxUnavailable")
    room = 1 if most is None else max(1, int_or_percent(most, desired_replicas(step.owner), up=True))
    least = step.ordinals.start + count(rolling, "partition")
    room -= sum(not step.is_available(step.pods.get(ordinal)) for ordinal in step.ordinals)
    for ordinal in reversed(step.ordinals):
        pod = step.pods.get(ordinal)
        if ordinal < least or step.full:
            return
        if pod is None or is_terminating(pod) or revision_name(pod) == step.update["metadata"]["name"]:
            continue
        if step.is_available(pod):
            if room <= 0:
                return
            room -= 1
        step.delete(pod)
        if most is None:
            return


def status_of(step: Step) -> Json:
    """Counts and revisions; the update revision becomes the current one when all Pods have it."""
    names = {"currentRevision": step.current["metadata"]["name"], "updateRevision": step.update["metadata"]["name"]}
    pods = list(step.pods.values())
    staying = [revision_name(pod) for pod in pods if not is_terminating(pod)]
    ready = [pod for pod in pods if is_running_and_ready(pod)]
    waits = [pod_available_in_s(pod, count(step.spec, "minReadySeconds"), step.now_s) for pod in ready]
    counts = {
        "replicas": len(pods),
        "readyReplicas": len(ready),
        "availableReplicas": sum(wait == 0 for wait in waits),
        "currentReplicas": staying.count(names["currentRevision"]),
        "updatedReplicas": staying.count(names["updateRevision"]),
    }
    update, size = step.spec.get("updateStrategy") or {}, desired_replicas(step.owner)
    whole = all(counts[name] == size for name in ("replicas", "readyReplicas", "updatedReplicas"))
    if update.get("type") == "RollingUpdate" and whole:
        names["currentRevision"] = names["updateRevision"]
        counts["currentReplicas"] = counts["updatedReplicas"]
    status: Json = {
        "observedGeneration": count(step.owner["metadata"], "generation"),
        **{name: ordinal for name, ordinal in counts.items() if ordinal or name in {"replicas", "availableReplicas"}},
        **names,
    }
    if conditions := (step.owner.get("status") or {}).get("conditions"):
        status["conditions"] = conditions
    return status
