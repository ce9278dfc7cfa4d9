"""The Deployment controller: one ReplicaSet for each Pod template, scaled step by step.

A reconcile takes one step; the event of its write enqueues the Deployment for the next one.
"""

from __future__ import annotations

from collections.abc import Iterable

from kdns.controlplane.apimachinery.conditions import condition_of
from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import DEPLOYMENT, REPLICA_SET, Json
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
from kdns.controlplane.simulation.workloads.deployment.replica_sets import (
    REVISION,
    Rollout,
    new_replica_set,
    resized,
    revision_of,
    same_template,
    scaling,
    set_name,
    surplus,
    synced,
)
from kdns.controlplane.simulation.workloads.deployment.rolling import (
    is_rolling,
    oldest_first,
    size_of_new,
    sizes_of_old,
)
from kdns.controlplane.simulation.workloads.deployment.status import (
    counted_status,
    deadline_in_s,
    deployment_conditions,
    has_deadline,
    is_complete,
    progressing,
    rollout_status,
    with_condition,
)
from kdns.controlplane.simulation.workloads.index import WorkloadIndex
from kdns.controlplane.simulation.workloads.replicas import count, desired_replicas
from kdns.controlplane.storage.object_meta import is_terminating, key_of

_MIN_WAIT_S = 1.0


class Deployments(Reconciler):
    """Requests are Deployments by namespace and name."""

    name = "deployment-controller"
    watches = (DEPLOYMENT, REPLICA_SET)

    def __init__(self) -> None:
        self._index = WorkloadIndex(DEPLOYMENT, REPLICA_SET)

    def observe(self, change: Change) -> Iterable[Name]:
        kind, key, obj, _ = change
        return self._index.observe(kind, key, obj)

    def reconcile(self, request: Request) -> Result:
        """Takes one step of the rollout, and updates the status."""
        key, now_s = request.key, request.now_s
        deployment = self._index.all.get(key)
        if deployment is None:
            return Result()
        sets, changes = self._index.claimed(key, REPLICA_SET)
        if changes:
            return Result(changes)
        sets.sort(key=oldest_first)
        new = next((each for each in sets if same_template(each, deployment)), None)
        rollout = Rollout(deployment, new, tuple(each for each in sets if each is not new))
        if is_terminating(deployment):
            return Result(status_update(DEPLOYMENT, deployment, counted_status(deployment, new, sets, now_s)))
        if due := self._synced(rollout, now_s):
            return Result(due)
        if deployment["spec"].get("paused"):
            status = _without_progress(counted_status(deployment, new, sets, now_s))
            step = _paused(rollout)
            return Result([*status_update(DEPLOYMENT, deployment, status), *step.actions], step.events)
        take_step = self._rolling if is_rolling(deployment) else self._recreating
        step = take_step(rollout, now_s)
        status = rollout_status(deployment, new, sets, now_s)
        if new is None and any(action.verb == "create" for action in step.actions):
            return step
        if not step.actions and is_complete(deployment, status):
            step = Result(surplus(rollout))
        condition = condition_of({"status": status}, "Progressing")
        left_s = deadline_in_s(deployment, condition, now_s) if condition and has_deadline(deployment) else None
        requeue_after_s = None if left_s is None else left_s + _MIN_WAIT_S
        return Result([*status_update(DEPLOYMENT, deployment, status), *step.actions], step.events, requeue_after_s)

    def failed(self, request: Request, action: Action, error: StatusError) -> Event | None:
        """Returns ReplicaSetCreateError."""
        deployment = self._index.all.get(request.key)
        if deployment is None or not action.creates(REPLICA_SET):
            return None
        message = f'Failed to create new replica set "{set_name(deployment)}": {error.message}'
        return Event(DEPLOYMENT, deployment, "Warning", "ReplicaSetCreateError", message)

    def _synced(self, rollout: Rollout, now_s: float) -> list[Action]:
        """Updates of the new ReplicaSet's annotations and minReadySeconds, and of the Deployment's revision."""
        deployment, new = rollout.deployment, rollout.new
        if new is None:
            return []
        number = max(map(revision_of, rollout.olds), default=0) + 1
        updated = synced(new, deployment, number)
        actions = [Action("update", REPLICA_SET, updated)] if updated != new else []
        status = dict(deployment.get("status") or {})
        if has_deadline(deployment) and condition_of(deployment, "Progressing") is None:
            row = progressing("True", "FoundNewReplicaSet", f'Found new replica set "{new["metadata"]["name"]}"')
            status["conditions"] = with_condition(deployment_conditions(deployment), row, now_s)
        annotated = {**(deployment["metadata"].get("annotations") or {}), REVISION: str(revision_of(updated))}
        if annotated != deployment["metadata"].get("annotations") or status != (deployment.get("status") or {}):
            changed = {**deployment, "metadata": {**deployment["metadata"], "annotations": annotated}, "status": status}
            actions.append(Action("update", DEPLOYMENT, changed, "status"))
        return actions

    def _created(self, rollout: Rollout, now_s: float) -> Result:
        """Creates the new ReplicaSet, as large as the surge allows."""
        deployment = rollout.deployment
        number = max(map(revision_of, rollout.olds), default=0) + 1
        size = size_of_new(deployment, rollout.olds, 0)
        replica_set = new_replica_set(deployment, number, size)
        name, status = replica_set["metadata"]["name"], dict(deployment.get("status") or {})
        if has_deadline(deployment):
            row = progressing("True", "NewReplicaSetCreated", f'Created new replica set "{name}"')
            status["conditions"] = with_condition(deployment_conditions(deployment), row, now_s)
        annotations = {**(deployment["metadata"].get("annotations") or {}), REVISION: str(number)}
        annotated = {**deployment, "metadata": {**deployment["metadata"], "annotations": annotations}, "status": status}
        events = [scaling(deployment, name, 0, size)] if size else []
        return Result(
            [Action("create", REPLICA_SET, replica_set), Action("update", DEPLOYMENT, annotated, "status")], events
        )

    def _rolling(self, rollout: Rollout, now_s: float) -> Result:
        """Scales the new ReplicaSet up within the surge, else the old ones down within availability (RollingUpdate)."""
        deployment, new = rollout.deployment, rollout.new
        if new is None:
            return self._created(rollout, now_s)
        size = size_of_new(deployment, rollout.every, desired_replicas(new))
        if size != desired_replicas(new):
            return resized(deployment, {key_of(new): size}, [new])
        return resized(deployment, sizes_of_old(deployment, new, rollout.olds), rollout.olds)

    def _recreating(self, rollout: Rollout, now_s: float) -> Result:
        """Scales the old ReplicaSets to 0, waits until their Pods have ended, then scales the new one up (Recreate)."""
        active = [each for each in rollout.olds if desired_replicas(each)]
        if active:
            return resized(rollout.deployment, {key_of(each): 0 for each in active}, active)
        if any(_runs(each) for each in rollout.olds):
            return Result()
        if rollout.new is None:
            return self._created(rollout, now_s)
        return resized(rollout.deployment, {key_of(rollout.new): desired_replicas(rollout.deployment)}, [rollout.new])


def _paused(rollout: Rollout) -> Result:
    """Brings a paused Deployment to its size by its newest ReplicaSet that has Pods, else by the new one."""
    active = [each for each in rollout.every if desired_replicas(each)] or rollout.every
    if not active:
        return Result()
    *others, last = active
    size = max(0, desired_replicas(rollout.deployment) - sum(map(desired_replicas, others)))
    return resized(rollout.deployment, {key_of(last): size}, [last])


def _without_progress(status: Json) -> Json:
    """Returns the status of a paused Deployment, whose progress is judged anew when it is resumed."""
    return {**status, "conditions": [row for row in status["conditions"] if row.get("type") != "Progressing"]}


def _runs(replica_set: Json) -> bool:
    """Returns whether Pods of the ReplicaSet run, or have not ended yet."""
    status = replica_set.get("status")
    return bool(count(status, "replicas") or count(status, "terminatingReplicas"))
