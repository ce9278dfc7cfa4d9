"""The Deployment controller: one ReplicaSet for each Pod template, scaled step by step.

A reconcile takes one step; the event of its write enqueues the Deployment for the next one.
"""

from __future__ import annotations

from collections.abc import Iterable

from kdns.cluster.objects import Key
from kdns.controlplane.controllers.owner_references import controller_of
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
from kdns.controlplane.controllers.workloads.deployment.replica_sets import (
    REVISION,
    Rollout,
    new_replica_set,
    resized,
    revision_of,
    same_template,
    scaled,
    scaling,
    set_name,
    surplus,
    synced,
)
from kdns.controlplane.controllers.workloads.deployment.rolling import (
    is_rolling,
    oldest_first,
    size_of_new,
    sizes_of_old,
    was_scaled,
)
from kdns.controlplane.controllers.workloads.deployment.status import (
    counted_status,
    deadline_in_s,
    deployment_conditions,
    has_deadline,
    is_complete,
    pause_conditions,
    progressing,
    rollout_status,
    with_condition,
)
from kdns.controlplane.controllers.workloads.index import Dependents, WorkloadIndex
from kdns.controlplane.controllers.workloads.replicas import count, desired_replicas
from kdns.controlplane.meta.conditions import condition_of
from kdns.controlplane.meta.errors import StatusError
from kdns.controlplane.meta.kinds import DEPLOYMENT, POD, REPLICA_SET, Json
from kdns.controlplane.resources.pod.pod import is_finished
from kdns.controlplane.storage.object_meta import is_terminating, key_of

_MIN_WAIT_S = 1.0


class Deployments(Reconciler):
    """Requests are Deployments by namespace and name."""

    name = "deployment-controller"
    watches = (DEPLOYMENT, REPLICA_SET, POD)

    def __init__(self) -> None:
        self._index = WorkloadIndex(DEPLOYMENT, REPLICA_SET)
        self._pods = Dependents()
        self._set_keys: dict[str, Key] = {}

    def observe(self, change: Change) -> Iterable[Name]:
        """Returns the Deployment, or that of a ReplicaSet; that of a finished Pod only with strategy Recreate."""
        kind, key, obj, _ = change
        if kind == POD:
            old = self._pods.apply(key, obj)
            return self._recreated_with(old) if obj is None or is_finished(obj) else ()
        if kind == REPLICA_SET:
            old = self._index.parts[REPLICA_SET].objects.get(key)
            if old is not None:
                self._set_keys.pop(old["metadata"]["uid"], None)
            if obj is not None:
                self._set_keys[obj["metadata"]["uid"]] = key
        return self._index.observe(kind, key, obj)

    def reconcile(self, request: Request) -> Result:
        """Takes one step of the rollout, and updates the status."""
        key = request.key
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
            return Result(status_update(DEPLOYMENT, deployment, counted_status(deployment, new, sets, request.now_s)))
        if (conditions := pause_conditions(deployment, request.now_s)) is not None:
            status = {**(deployment.get("status") or {}), "conditions": conditions}
            return Result(status_update(DEPLOYMENT, deployment, status))
        if due := self._synced(rollout, request.now_s):
            return Result(due)
        paused = bool(deployment["spec"].get("paused"))
        if paused or was_scaled(deployment, sets):
            step = scaled(rollout) or (Result(surplus(rollout)) if paused else Result())
            status = counted_status(deployment, new, sets, request.now_s)
            return Result([*status_update(DEPLOYMENT, deployment, status), *step.actions], step.events)
        take_step = self._rolling if is_rolling(deployment) else self._recreating
        step = take_step(rollout, request.now_s)
        status = rollout_status(deployment, new, sets, request.now_s)
        if new is None and any(action.verb == "create" for action in step.actions):
            return step
        if not step.actions and is_complete(deployment, status):
            step = Result(surplus(rollout))
        condition = condition_of({"status": status}, "Progressing")
        left_s = deadline_in_s(deployment, condition, request.now_s) if condition and has_deadline(deployment) else None
        requeue_after_s = None if left_s is None else left_s + _MIN_WAIT_S
        return Result([*status_update(DEPLOYMENT, deployment, status), *step.actions], step.events, requeue_after_s)

    def failed(self, request: Request, action: Action, error: StatusError) -> Event | None:
        """Returns ReplicaSetCreateError."""
        deployment = self._index.all.get(request.key)
        if deployment is None or not action.creates(REPLICA_SET):
            return None
        message = f'Failed to create new replica set "{self._name(deployment)[0]}": {error.message}'
        return Event(DEPLOYMENT, deployment, "Warning", "ReplicaSetCreateError", message)

    def _recreated_with(self, pod: Json | None) -> Iterable[Name]:
        controller = controller_of(pod) if pod else None
        key = self._set_keys.get(controller["uid"]) if controller else None
        deployments = self._index.affected(self._index.parts[REPLICA_SET].objects[key]) if key else ()
        return [each for each in deployments if not is_rolling(self._index.all[each])]

    def _name(self, deployment: Json) -> tuple[str, int]:
        """Returns the name of the next ReplicaSet, and the number of collisions with names of other ReplicaSets."""
        namespace, collisions = deployment["metadata"]["namespace"], count(deployment.get("status"), "collisionCount")
        while (namespace, set_name(deployment, collisions)) in self._index.parts[REPLICA_SET].objects:
            collisions += 1
        return set_name(deployment, collisions), collisions

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
        name, collisions = self._name(deployment)
        number = max(map(revision_of, rollout.olds), default=0) + 1
        size = size_of_new(deployment, rollout.olds, 0)
        replica_set = new_replica_set(deployment, name, number, size)
        status = dict(deployment.get("status") or {})
        if collisions != count(status, "collisionCount"):
            status["collisionCount"] = collisions
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
        if any(count(each.get("status"), "replicas") for each in rollout.olds) or self._old_pods_run(rollout):
            return Result()
        if rollout.new is None:
            return self._created(rollout, now_s)
        return resized(rollout.deployment, {key_of(rollout.new): desired_replicas(rollout.deployment)}, [rollout.new])

    def _old_pods_run(self, rollout: Rollout) -> bool:
        return any(not is_finished(pod) for each in rollout.olds for pod in self._pods.of(each))
