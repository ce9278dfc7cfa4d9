"""The ReplicaSet controller, also of ReplicationControllers (kube-controller-manager: pkg/controller/replicaset)."""

from __future__ import annotations

from collections.abc import Iterable

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.conditions import condition_of, is_ready, set_condition
from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import POD, REPLICA_SET, Json, Kind
from kdns.controlplane.controllers.events import combined_events
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
from kdns.controlplane.simulation.workloads.index import ACTIONS_MAX, WorkloadIndex
from kdns.controlplane.simulation.workloads.pods import (
    Suffix,
    available_in_s,
    generated_names,
    is_active,
    new_pod,
    ready_since_s,
)
from kdns.controlplane.simulation.workloads.replicas import count
from kdns.controlplane.storage.object_meta import is_terminating, key_of, timestamp


class ReplicaSets(Reconciler):
    """Requests are ReplicaSets, or ReplicationControllers, by namespace and name."""

    def __init__(self, kind: Kind, suffix: Suffix) -> None:
        self.name = "replicaset-controller" if kind == REPLICA_SET else "replication-controller"
        self.watches = (kind, POD)
        self._kind, self._suffix = kind, suffix
        self._index = WorkloadIndex(kind, POD)
        self._failures: dict[Key, str] = {}
        self._ready_since_s: dict[Key, float | None] = {}

    def observe(self, change: Change) -> Iterable[Name]:
        """Returns the ReplicaSet, that of a Pod, or those that could adopt the Pod."""
        kind, key, obj, _ = change
        if kind == self._kind:
            if obj is None:
                self._failures.pop(key, None)
        elif obj is None:
            self._ready_since_s.pop(key, None)
        else:
            self._ready_since_s[key] = ready_since_s(obj)
        return self._index.observe(kind, key, obj)

    def reconcile(self, request: Request) -> Result:
        """Writes the status first, then creations or deletions of Pods, at most `ACTIONS_MAX`."""
        key = request.key
        owner = self._index.all.get(key)
        if owner is None:
            return Result()
        pods, changes = self._index.claimed(key, POD)
        if changes:
            return Result(changes)
        active = [pod for pod in pods if is_active(pod)]
        status, requeue_after_s = self._status(owner, pods, active, self._failures.pop(key, ""), request.now_s)
        actions, events = status_update(self._kind, owner, status), list[Event]()
        if not is_terminating(owner):
            missing = count(owner.get("spec"), "replicas") - len(active)
            more = self._create(owner, missing) if missing > 0 else self._delete(owner, active, -missing)
            actions += more[0]
            events += more[1]
        return Result(actions, events, requeue_after_s)

    def failed(self, request: Request, action: Action, error: StatusError) -> Event | None:
        """Returns FailedCreate for a Pod, and sets ReplicaFailure."""
        key = request.key
        owner = self._index.all.get(key)
        if owner is None or not action.creates(POD):
            return None
        self._failures[key] = error.message
        return Event(self._kind, owner, "Warning", "FailedCreate", f"Error creating: {error.message}")

    def _create(self, owner: Json, missing: int) -> tuple[list[Action], list[Event]]:
        base = f"{owner['metadata']['name']}-"
        taken = self._index.parts[POD].objects
        names = generated_names(owner, min(missing, ACTIONS_MAX), self._suffix, taken)
        template = (owner.get("spec") or {}).get("template") or {}
        actions = [Action("create", POD, new_pod(self._kind, owner, template, name, base)) for name in names]
        messages = [f"Created pod: {name}" for name in names]
        return actions, combined_events(self._kind, owner, "SuccessfulCreate", messages, more=missing > ACTIONS_MAX)

    def _delete(self, owner: Json, active: list[Json], surplus: int) -> tuple[list[Action], list[Event]]:
        if surplus <= 0:
            return [], []
        deleted = sorted(active, key=rank, reverse=True)[: min(surplus, ACTIONS_MAX)]
        messages = [f"Deleted pod: {pod['metadata']['name']}" for pod in deleted]
        events = combined_events(self._kind, owner, "SuccessfulDelete", messages, more=surplus > ACTIONS_MAX)
        return [Action("delete", POD, pod) for pod in deleted], events

    def _status(
        self, owner: Json, pods: list[Json], active: list[Json], failure: str, now_s: float
    ) -> tuple[Json, float | None]:
        spec, old = owner.get("spec") or {}, owner.get("status") or {}
        labels = (((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}).items()
        least_s = count(spec, "minReadySeconds")
        waits = [available_in_s(self._ready_since_s[key_of(pod)], least_s, now_s) for pod in active]
        labelled = sum(labels <= (pod["metadata"].get("labels") or {}).items() for pod in active)
        counts = {
            "fullyLabeledReplicas": labelled,
            "readyReplicas": sum(wait is not None for wait in waits),
            "availableReplicas": sum(wait == 0 for wait in waits),
        }
        status: Json = {"replicas": len(active), **{name: number for name, number in counts.items() if number}}
        if self._kind == REPLICA_SET:
            status["terminatingReplicas"] = sum(is_terminating(pod) and not is_finished(pod) for pod in pods)
        if generation := count(owner["metadata"], "generation"):
            status["observedGeneration"] = generation
        if failure:
            row = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": failure}
            held = condition_of({"status": old}, "ReplicaFailure")
            status["conditions"] = set_condition([held] if held else [], row, timestamp(now_s))
        return status, min((wait for wait in waits if wait), default=None)


def rank(pod: Json) -> tuple[bool, bool, str]:
    """Returns the sort key of deletion; the highest goes first: without a Node, not Ready, the youngest.

    Differs: kube-controller-manager looks at pod-deletion-cost, at how full Nodes are and at restarts too.
    """
    return not _is_placed(pod), not is_ready(pod), pod["metadata"].get("creationTimestamp") or ""


def _is_placed(pod: Json) -> bool:
    return bool((pod.get("spec") or {}).get("nodeName"))
