"""The Deployment controller: one ReplicaSet per Pod template, scaled step by step (pkg/controller/deployment).

A reconcile takes one step; the event of its write enqueues the Deployment for the next one. In a rolling update there
are at most maxSurge Pods more, and maxUnavailable fewer, than spec.replicas.

Differs: a Deployment that is scaled during a rollout is not scaled in proportion: the new ReplicaSet gets the surge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kdns.controlplane.apimachinery.annotations import KUBECTL_LAST_APPLIED, annotated_number
from kdns.controlplane.apimachinery.conditions import condition_of, set_condition
from kdns.controlplane.apimachinery.human_duration import seconds_of
from kdns.controlplane.apimachinery.kinds import DEPLOYMENT, REPLICA_SET, Json, Kind
from kdns.controlplane.controllers.reconciler import Action, Event, Result
from kdns.controlplane.gc.owners import inherited_annotations, owner_reference
from kdns.controlplane.simulation.workloads.controller import WorkloadController
from kdns.controlplane.simulation.workloads.pods import count, desired_replicas, int_or_percent, nonzero
from kdns.controlplane.simulation.workloads.revisions import safe_hash
from kdns.controlplane.storage.object_meta import is_terminating, timestamp

HASH: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
_NOT_INHERITED = frozenset({KUBECTL_LAST_APPLIED, "deprecated.deployment.rollback.to", REVISION})
"""Annotations that a ReplicaSet does not inherit from its Deployment."""
NEW: Final = ""
"""The name of a ReplicaSet that is not created yet."""
NEW_AVAILABLE: Final = "NewReplicaSetAvailable"
TIMED_OUT: Final = "ProgressDeadlineExceeded"
PAUSED: Final = "DeploymentPaused"
_MIN_WAIT_S: Final = 1.0
NO_DEADLINE: Final = 2**31 - 1
"""A progressDeadlineSeconds without limit."""

_OWN: Final = frozenset({"Available", "Progressing"})
"""The conditions that the controller sets; those of others stay."""
_PROGRESS: Final = {
    NEW_AVAILABLE: ("True", "has successfully progressed"),
    "ReplicaSetUpdated": ("True", "is progressing"),
    TIMED_OUT: ("False", "has timed out progressing"),
}


class Deployments(WorkloadController):
    """Requests are Deployments by namespace and name."""

    def __init__(self) -> None:
        super().__init__("deployment-controller", DEPLOYMENT, REPLICA_SET)

    def step(self, owner: Json, owned: Mapping[Kind, list[Json]], now_s: float) -> Result:
        rollout = rollout_of(owner, owned[REPLICA_SET])
        actions, events = _scaled(rollout)
        status = deployment_status(rollout, now_s, is_moving=bool(events))
        if not actions and is_complete(owner, status):
            actions = rollout.surplus()
        annotations = owner["metadata"].get("annotations") or {}
        if rollout.new or any(action.creates(REPLICA_SET) for action in actions):
            annotations = {**annotations, REVISION: str(rollout.revision)}
        progressing = condition_of({"status": status}, "Progressing")
        wait_s = deadline_in_s(owner, progressing, now_s) if progressing else None
        changed = {**owner, "metadata": {**owner["metadata"], "annotations": annotations}, "status": status}
        if (annotations, status) != (owner["metadata"].get("annotations") or {}, owner.get("status") or {}):
            actions.insert(0, Action("update", DEPLOYMENT, changed, "status"))
        return Result(actions, events, None if wait_s is None else wait_s + _MIN_WAIT_S)


def _scaled(rollout: Rollout) -> tuple[list[Action], list[Event]]:
    sizes, actions, scaled = next_sizes(rollout), list[Action](), list[tuple[str, int, int]]()
    for replica_set in rollout.replica_sets:
        name, before = replica_set["metadata"]["name"], desired_replicas(replica_set)
        size = sizes.get(name, before)
        updated = {**replica_set, "spec": {**replica_set["spec"], "replicas": size}}
        if replica_set is rollout.new:
            updated = rollout.synced(replica_set, size)
        if updated != replica_set:
            actions.append(Action("update", REPLICA_SET, updated))
            scaled.append((name, before, size))
    if NEW in sizes:
        created = rollout.created(sizes[NEW])
        actions.append(Action("create", REPLICA_SET, created))
        scaled.append((created["metadata"]["name"], 0, sizes[NEW]))
    messages = [
        f"Scaled {'up' if size > before else 'down'} replica set {name} from {before} to {size}"
        for name, before, size in scaled
        if size != before
    ]
    return actions, [
        Event(DEPLOYMENT, rollout.deployment, "Normal", "ScalingReplicaSet", message) for message in messages
    ]


def _template(obj: Json) -> Json:
    """The Pod template without the label pod-template-hash."""
    template: Json = (obj.get("spec") or {}).get("template") or {}
    metadata = template.get("metadata") or {}
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name != HASH}
    return {**template, "metadata": {**metadata, "labels": labels}}


@dataclass(frozen=True, slots=True)
class Rollout:
    """A Deployment and its ReplicaSets: `new` has the present template; `olds`, oldest first, have former ones."""

    deployment: Json
    new: Json | None
    olds: tuple[Json, ...]

    @property
    def replica_sets(self) -> list[Json]:
        return [*self.olds, *([self.new] if self.new else [])]

    @property
    def revision(self) -> int:
        """The revision of the new ReplicaSet; a template that is rolled out again gets the highest."""
        number = max(map(_revision_of, self.olds), default=0) + 1
        return max(number, _revision_of(self.new)) if self.new else number

    def created(self, size: int) -> Json:
        deployment = self.deployment
        spec, meta = deployment["spec"], deployment["metadata"]
        template, text = spec.get("template") or {}, safe_hash(_template(deployment))
        metadata = template.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), HASH: text}
        selector = spec.get("selector") or {}
        replica_set = {
            "metadata": {
                "name": f"{meta['name']}-{text}",
                "namespace": meta["namespace"],
                "labels": labels,
                "ownerReferences": [owner_reference(DEPLOYMENT, deployment)],
            },
            "spec": {
                "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH: text}},
                "template": {**template, "metadata": {**metadata, "labels": labels}},
            },
        }
        return self.synced(replica_set, size)

    def synced(self, replica_set: Json, size: int) -> Json:
        """The new ReplicaSet with a size, its revision, and what it inherits from the Deployment."""
        meta, inherited = replica_set["metadata"], inherited_annotations(self.deployment)
        annotations = {
            **(meta.get("annotations") or {}),
            **{name: value for name, value in inherited.items() if name not in _NOT_INHERITED},
            REVISION: str(self.revision),
        }
        spec = {field: value for field, value in replica_set["spec"].items() if field != "minReadySeconds"}
        if seconds := self.deployment["spec"].get("minReadySeconds"):
            spec["minReadySeconds"] = seconds
        return {**replica_set, "metadata": {**meta, "annotations": annotations}, "spec": {**spec, "replicas": size}}

    def surplus(self) -> list[Action]:
        """Deletes the oldest ReplicaSets without Pods, beyond spec.revisionHistoryLimit."""
        olds = sorted((old for old in self.olds if not is_terminating(old)), key=_revision_of)
        most = self.deployment["spec"].get("revisionHistoryLimit", len(olds))
        return [Action("delete", REPLICA_SET, old) for old in olds[: max(0, len(olds) - most)] if _is_idle(old)]


def rollout_of(deployment: Json, replica_sets: Iterable[Json]) -> Rollout:
    """If several ReplicaSets have the present template, the oldest is the new one."""
    ordered = sorted(
        replica_sets, key=lambda old: (old["metadata"].get("creationTimestamp") or "", old["metadata"]["name"])
    )
    new = next((replica_set for replica_set in ordered if _template(replica_set) == _template(deployment)), None)
    return Rollout(deployment, new, tuple(replica_set for replica_set in ordered if replica_set is not new))


def _revision_of(replica_set: Json) -> int:
    return annotated_number(replica_set, REVISION) or 0


def _is_idle(replica_set: Json) -> bool:
    status, meta = replica_set.get("status"), replica_set["metadata"]
    is_observed = count(status, "observedGeneration") >= count(meta, "generation")
    return is_observed and not desired_replicas(replica_set) and not count(status, "replicas")


def available(replica_set: Json) -> int:
    """Available Pods of the ReplicaSet, at most spec.replicas.

    Differs: kube-controller-manager counts Pods that will be deleted until the status is updated, and may briefly go
    below the minimum of available Pods.
    """
    return min(count(replica_set.get("status"), "availableReplicas"), desired_replicas(replica_set))


def is_rolling(deployment: Json) -> bool:
    return ((deployment.get("spec") or {}).get("strategy") or {}).get("type") == "RollingUpdate"


def budget(deployment: Json) -> tuple[int, int]:
    """(maxSurge, maxUnavailable) in Pods: never both 0 in a rolling update, both 0 otherwise."""
    if not is_rolling(deployment) or not desired_replicas(deployment):
        return 0, 0
    rolling, total = deployment["spec"]["strategy"].get("rollingUpdate") or {}, desired_replicas(deployment)
    surge = int_or_percent(rolling.get("maxSurge"), total, up=True)
    unavailable = int_or_percent(rolling.get("maxUnavailable"), total, up=False)
    return surge, min(unavailable or int(not surge), total)


def size_of_new(deployment: Json, replica_sets: Iterable[Json], new: int) -> int:
    """The size of the new ReplicaSet, `new` replicas now, within the surge."""
    total = desired_replicas(deployment)
    if not is_rolling(deployment) or new >= total:
        return total
    room = total + budget(deployment)[0] - sum(map(desired_replicas, replica_sets))
    return max(new, min(new + room, total))


def sizes_of_old(deployment: Json, new: Json, olds: Sequence[Json]) -> dict[str, int]:
    """The sizes of old ReplicaSets, by name: unavailable Pods are deleted first, then those of the oldest.

    Pods that the new ReplicaSet has not made available yet count as unavailable.
    """
    least = desired_replicas(deployment) - budget(deployment)[1]
    sizes = {replica_set["metadata"]["name"]: desired_replicas(replica_set) for replica_set in olds}
    room = max(0, sum(sizes.values()) + available(new) - least)
    for is_broken in (True, False):
        for replica_set in olds:
            name = replica_set["metadata"]["name"]
            fewer = min(room, sizes[name] - available(replica_set) if is_broken else sizes[name])
            sizes[name] -= fewer
            room -= fewer
    return sizes


def next_sizes(rollout: Rollout) -> dict[str, int]:
    """The sizes of ReplicaSets after the next step, by name; `NEW` does not exist yet.

    RollingUpdate: the new one grows within the surge, else the old ones shrink within availability. Recreate: the old
    ones end first, with their Pods. Paused: the newest one with Pods is scaled to the Deployment's size.
    """
    deployment, new, olds = rollout.deployment, rollout.new, rollout.olds
    total, name = desired_replicas(deployment), new["metadata"]["name"] if new else NEW
    active = [old for old in olds if desired_replicas(old)]
    if deployment["spec"].get("paused"):
        scaled = [*active, new] if new and desired_replicas(new) else active or rollout.replica_sets
        others = sum(map(desired_replicas, scaled[:-1]))
        return {scaled[-1]["metadata"]["name"]: max(0, total - others)} if scaled else {}
    if not is_rolling(deployment):
        if active or any(map(_runs, olds)):
            return {old["metadata"]["name"]: 0 for old in active}
        return {name: total}
    size = size_of_new(deployment, rollout.replica_sets, desired_replicas(new) if new else 0)
    if new is None or size != desired_replicas(new):
        return {name: size}
    return sizes_of_old(deployment, new, olds)


def _runs(replica_set: Json) -> bool:
    """Pods of the ReplicaSet run, or have not ended yet."""
    status = replica_set.get("status")
    return bool(count(status, "replicas") or count(status, "terminatingReplicas"))


def deployment_status(rollout: Rollout, now_s: float, *, is_moving: bool) -> Json:
    """`is_moving`: this step scales ReplicaSets."""
    deployment, new = rollout.deployment, rollout.new

    def total(name: str) -> int:
        return sum(count(replica_set.get("status"), name) for replica_set in rollout.replica_sets)

    available = total("availableReplicas")
    counts = nonzero(
        observedGeneration=count(deployment["metadata"], "generation"),
        replicas=total("replicas"),
        updatedReplicas=count((new or {}).get("status"), "replicas"),
        readyReplicas=total("readyReplicas"),
        availableReplicas=available,
        unavailableReplicas=max(0, sum(map(desired_replicas, rollout.replica_sets)) - available),
    )
    counts["terminatingReplicas"] = total("terminatingReplicas")
    is_enough = available >= desired_replicas(deployment) - budget(deployment)[1]
    conditions = [
        *(row for row in (deployment.get("status") or {}).get("conditions") or () if row.get("type") not in _OWN),
        _condition(
            deployment,
            now_s,
            type="Available",
            status=str(is_enough),
            reason=f"MinimumReplicas{'Available' if is_enough else 'Unavailable'}",
            message=f"Deployment {'has' if is_enough else 'does not have'} minimum availability.",
        ),
    ]
    if deployment["spec"].get("progressDeadlineSeconds", NO_DEADLINE) != NO_DEADLINE:
        conditions.append(_progressing(rollout, counts, now_s, is_moving=is_moving))
    return {**counts, "conditions": conditions}


def _progressing(rollout: Rollout, counts: Json, now_s: float, *, is_moving: bool) -> Json:
    deployment, old = rollout.deployment, condition_of(rollout.deployment, "Progressing")
    if deployment["spec"].get("paused"):
        if old and old.get("reason") == TIMED_OUT:
            return old
        message = "Deployment is paused"
        return _condition(deployment, now_s, type="Progressing", status="Unknown", reason=PAUSED, message=message)
    is_available = is_complete(deployment, counts)
    was_paused = old is not None and old.get("reason") == PAUSED
    is_progress = is_moving or old is None or was_paused or _has_moved(deployment.get("status") or {}, counts)
    if old and not is_available and not is_moving:
        is_updated = count(counts, "replicas") == count(counts, "updatedReplicas")
        if old.get("reason") == NEW_AVAILABLE and (is_updated or not is_progress):
            return old
        if not is_progress and deadline_in_s(deployment, old, now_s) != 0:
            return old
    reason = NEW_AVAILABLE if is_available else "ReplicaSetUpdated" if is_progress else TIMED_OUT
    status, what = _PROGRESS[reason]
    owner = rollout.new or deployment
    kind = "ReplicaSet" if rollout.new else "Deployment"
    message = f'{kind} "{owner["metadata"]["name"]}" {what}.'
    is_new = reason == "ReplicaSetUpdated"
    return _condition(
        deployment, now_s, is_new=is_new, type="Progressing", status=status, reason=reason, message=message
    )


def _condition(deployment: Json, now_s: float, *, is_new: bool = False, **new: str) -> Json:
    """A condition with equal status and reason stays, unless `is_new`."""
    old = condition_of(deployment, new["type"])
    if old and not is_new and (old.get("status"), old.get("reason")) == (new["status"], new["reason"]):
        return old
    now = timestamp(now_s)
    return set_condition([old] if old else [], {**new, "lastUpdateTime": now}, now)[0]


def is_complete(deployment: Json, status: Json) -> bool:
    """All Pods are updated and available, and no old Pods exist."""
    names = ("updatedReplicas", "replicas", "availableReplicas")
    return all(count(status, name) == desired_replicas(deployment) for name in names)


def _has_moved(old: Json, new: Json) -> bool:
    outdated = [count(status, "replicas") - count(status, "updatedReplicas") for status in (old, new)]
    grown = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return outdated[1] < outdated[0] or any(count(new, name) > count(old, name) for name in grown)


def deadline_in_s(deployment: Json, condition: Json, now_s: float) -> float | None:
    """Seconds until the progress deadline; None for a rollout that is complete or has exceeded it."""
    if condition.get("reason") in {NEW_AVAILABLE, TIMED_OUT}:
        return None
    since_s = seconds_of(condition.get("lastUpdateTime")) or 0.0
    return max(0.0, since_s + count(deployment["spec"], "progressDeadlineSeconds") - now_s)
