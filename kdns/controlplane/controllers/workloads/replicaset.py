"""The ReplicaSet controller, also of ReplicationControllers (kube-controller-manager: pkg/controller/replicaset)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import floor, log2
from typing import TypeAlias

from kdns.cluster.objects import Key
from kdns.controlplane.controllers.events import combined_events
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
from kdns.controlplane.controllers.workloads.index import ACTIONS_MAX, Dependents, WorkloadIndex
from kdns.controlplane.controllers.workloads.pods import (
    Suffix,
    available_in_s,
    generated_names,
    is_active,
    new_pod,
    ready_since_s,
)
from kdns.controlplane.controllers.workloads.replicas import count
from kdns.controlplane.meta.conditions import condition_of, set_condition
from kdns.controlplane.meta.errors import StatusError
from kdns.controlplane.meta.human_duration import seconds_of
from kdns.controlplane.meta.kinds import POD, REPLICA_SET, Json, Kind
from kdns.controlplane.resources.pod.pod import is_finished
from kdns.controlplane.storage.object_meta import is_terminating, key_of, timestamp

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}

Rank: TypeAlias = tuple[bool, int, bool, int, int, float, int, float, str]


class ReplicaSets(Reconciler):
    """Requests are ReplicaSets, or ReplicationControllers, by namespace and name."""

    def __init__(self, kind: Kind, suffix: Suffix) -> None:
        self.name = "replicaset-controller" if kind == REPLICA_SET else "replication-controller"
        self.watches = (kind, POD)
        self._kind, self._suffix = kind, suffix
        self._index = WorkloadIndex(kind, POD)
        self._siblings = Dependents()
        self._failures: dict[Key, str] = {}
        self._ready_since_s: dict[Key, float | None] = {}
        self._chosen_pods: dict[Key, list[Key]] = {}

    def observe(self, change: Change) -> Iterable[Name]:
        """Returns the ReplicaSet, that of a Pod, or those that could adopt the Pod."""
        kind, key, obj, _ = change
        if kind == self._kind:
            self._siblings.apply(key, obj)
            if obj is None:
                self._failures.pop(key, None)
                self._chosen_pods.pop(key, None)
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
            more = self._create(owner, missing) if missing > 0 else self._delete(owner, active, -missing, request.now_s)
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

    def _delete(self, owner: Json, active: list[Json], surplus: int, now_s: float) -> tuple[list[Action], list[Event]]:
        if surplus <= 0:
            return [], []
        chosen = self._chosen(owner, active, surplus, now_s)
        ranked = chosen[:ACTIONS_MAX]
        messages = [f"Deleted pod: {pod['metadata']['name']}" for pod in ranked]
        events = combined_events(self._kind, owner, "SuccessfulDelete", messages, more=surplus > ACTIONS_MAX)
        return [Action("delete", POD, pod) for pod in ranked], events

    def _chosen(self, owner: Json, active: list[Json], surplus: int, now_s: float) -> list[Json]:
        """Returns the Pods to delete, in order of `rank`; the next reconcile deletes the rest of the same choice."""
        key, pods = key_of(owner), {key_of(pod): pod for pod in active}
        chosen = [pods[each] for each in self._chosen_pods.pop(key, ()) if each in pods]
        if len(chosen) != surplus:
            on_node = self._related_by_node(owner, active)
            chosen = sorted(active, key=lambda pod: rank(pod, on_node[_node(pod)], now_s))[:surplus]
        if surplus > ACTIONS_MAX:
            self._chosen_pods[key] = [key_of(pod) for pod in chosen[ACTIONS_MAX:]]
        return chosen

    def _related_by_node(self, owner: Json, active: list[Json]) -> Counter[str]:
        """Returns the number of active Pods on each node, of all ReplicaSets of the same Deployment."""
        deployment = controller_of(owner)
        if deployment is None:
            return Counter(map(_node, active))
        siblings = self._siblings.controlled_by(deployment["uid"])
        pods = [pod for sibling in siblings for pod in self._index.parts[POD].of(sibling)]
        return Counter(_node(pod) for pod in pods if is_active(pod))

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


def _node(pod: Json) -> str:
    return (pod.get("spec") or {}).get("nodeName") or ""


def rank(pod: Json, related_on_node: int, now_s: float) -> Rank:
    """Sorts key of deletion (ActivePodsWithRanks): Pods that are deleted first sort first.

    Those without a node, Pending, not Ready, with lower deletion cost, on nodes with more Pods, Ready for a shorter
    time, with more restarts, younger. Times are compared by their logarithm, then the uid decides.
    """
    meta, status = pod["metadata"], pod.get("status") or {}
    since_s = ready_since_s(pod)
    restarts = max((row.get("restartCount") or 0 for row in status.get("containerStatuses") or ()), default=0)
    return (
        bool(_node(pod)),
        _PHASES.get(status.get("phase", ""), 0),
        since_s is not None,
        deletion_cost(meta.get("annotations") or {}),
        -related_on_node,
        _magnitude(since_s, now_s),
        -restarts,
        _magnitude(seconds_of(meta.get("creationTimestamp") or ""), now_s),
        str(meta.get("uid", "")),
    )


def deletion_cost(annotations: Json) -> int:
    """Returns the pod-deletion-cost, 0 if it is missing or not an int32."""
    text = str(annotations.get(DELETION_COST, "0"))
    digits = text.removeprefix("-")
    fits = digits.isdecimal() and digits.isascii() and len(digits) <= 10 and (digits == "0" or digits[0] != "0")
    return int(text) if fits and -(2**31) <= int(text) < 2**31 else 0


def _magnitude(since_s: float | None, now_s: float) -> float:
    """Returns the duration since then as a power of two."""
    duration_s = now_s - (since_s or 0.0)
    return floor(log2(duration_s)) if duration_s > 0 else -1.0
