"""The Deployment controller: one ReplicaSet for each Pod template, scaled step by step.

A reconcile takes one step; the event of its write enqueues the Deployment for the next one.
"""

from __future__ import annotations

from collections.abc import Mapping

from kdns.controlplane.apimachinery.conditions import condition_of
from kdns.controlplane.apimachinery.kinds import DEPLOYMENT, REPLICA_SET, Json, Kind
from kdns.controlplane.controllers.reconciler import Action, Event, Result
from kdns.controlplane.simulation.workloads.controller import WorkloadController
from kdns.controlplane.simulation.workloads.deployment.replica_sets import REVISION, Rollout, rollout_of
from kdns.controlplane.simulation.workloads.deployment.rolling import NEW, next_sizes
from kdns.controlplane.simulation.workloads.deployment.status import deadline_in_s, deployment_status, is_complete
from kdns.controlplane.simulation.workloads.replicas import desired_replicas

_MIN_WAIT_S = 1.0


class Deployments(WorkloadController):
    """Requests are Deployments by namespace and name."""

    def __init__(self) -> None:
        super().__init__("deployment-controller", DEPLOYMENT, REPLICA_SET)

    def step(self, owner: Json, owned: Mapping[Kind, list[Json]], now_s: float) -> Result:
        """Updates the status and the revision, then creates, scales or removes ReplicaSets."""
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
    """Returns the writes of the next step, and the Events about scaled ReplicaSets."""
    sizes, actions, events = next_sizes(rollout), list[Action](), list[Event]()
    for replica_set in rollout.replica_sets:
        name, before = replica_set["metadata"]["name"], desired_replicas(replica_set)
        size = sizes.get(name, before)
        updated = {**replica_set, "spec": {**replica_set["spec"], "replicas": size}}
        if replica_set is rollout.new:
            updated = rollout.synced(replica_set, size)
        if updated != replica_set:
            actions.append(Action("update", REPLICA_SET, updated))
            events += _scaling(rollout.deployment, name, before, size)
    if NEW in sizes:
        created = rollout.created(sizes[NEW])
        actions.append(Action("create", REPLICA_SET, created))
        events += _scaling(rollout.deployment, created["metadata"]["name"], 0, sizes[NEW])
    return actions, events


def _scaling(deployment: Json, name: str, before: int, after: int) -> list[Event]:
    if before == after:
        return []
    way = "up" if after > before else "down"
    message = f"Scaled {way} replica set {name} from {before} to {after}"
    return [Event(DEPLOYMENT, deployment, "Normal", "ScalingReplicaSet", message)]
