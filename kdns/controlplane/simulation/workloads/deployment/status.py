"""The status of a Deployment: counts, and the conditions that `kubectl rollout status` waits for."""

from __future__ import annotations

from typing import Final

from kdns.controlplane.apimachinery.conditions import condition_of, set_condition
from kdns.controlplane.apimachinery.human_duration import seconds_of
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.simulation.workloads.deployment.replica_sets import Rollout
from kdns.controlplane.simulation.workloads.deployment.rolling import budget
from kdns.controlplane.simulation.workloads.replicas import count, desired_replicas, nonzero
from kdns.controlplane.storage.object_meta import timestamp

NEW_AVAILABLE: Final = "NewReplicaSetAvailable"
TIMED_OUT: Final = "ProgressDeadlineExceeded"
PAUSED: Final = "DeploymentPaused"
NO_DEADLINE: Final = 2**31 - 1
"""A progressDeadlineSeconds without limit."""

_OWN: Final = frozenset({"Available", "Progressing"})
"""The conditions that the controller sets; those of others stay."""
_PROGRESS: Final = {
    NEW_AVAILABLE: ("True", "has successfully progressed"),
    "ReplicaSetUpdated": ("True", "is progressing"),
    TIMED_OUT: ("False", "has timed out progressing"),
}


def deployment_status(rollout: Rollout, now_s: float, *, is_moving: bool) -> Json:
    """Returns the status; `is_moving` says that this step scales ReplicaSets."""
    deployment, new = rollout.deployment, rollout.new
    statuses = [replica_set.get("status") or {} for replica_set in rollout.replica_sets]
    available = sum(count(status, "availableReplicas") for status in statuses)
    counts = nonzero(
        observedGeneration=count(deployment["metadata"], "generation"),
        replicas=sum(count(status, "replicas") for status in statuses),
        updatedReplicas=count((new or {}).get("status"), "replicas"),
        readyReplicas=sum(count(status, "readyReplicas") for status in statuses),
        availableReplicas=available,
        unavailableReplicas=max(0, sum(map(desired_replicas, rollout.replica_sets)) - available),
    )
    counts["terminatingReplicas"] = sum(count(status, "terminatingReplicas") for status in statuses)
    is_enough = available >= desired_replicas(deployment) - budget(deployment)[1]
    conditions = [
        *(each for each in (deployment.get("status") or {}).get("conditions") or () if each.get("type") not in _OWN),
        _condition(
            deployment,
            now_s,
            type="Available",
            status=str(is_enough),
            reason=f"MinimumReplicas{'Available' if is_enough else 'Unavailable'}",
            message=f"Deployment {'has' if is_enough else 'does not have'} minimum availability.",
        ),
    ]
    if has_deadline(deployment):
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
    """Returns the condition; one with equal status and reason is kept, unless `is_new`."""
    old = condition_of(deployment, new["type"])
    if old and not is_new and (old.get("status"), old.get("reason")) == (new["status"], new["reason"]):
        return old
    now = timestamp(now_s)
    return set_condition([old] if old else [], {**new, "lastUpdateTime": now}, now)[0]


def has_deadline(deployment: Json) -> bool:
    seconds = (deployment.get("spec") or {}).get("progressDeadlineSeconds")
    return seconds is not None and seconds != NO_DEADLINE


def is_complete(deployment: Json, status: Json) -> bool:
    """Returns whether all Pods are updated and available, and no old Pods exist."""
    names = ("updatedReplicas", "replicas", "availableReplicas")
    return all(count(status, name) == desired_replicas(deployment) for name in names)


def _has_moved(old: Json, new: Json) -> bool:
    """Returns whether the counts of two statuses show progress."""
    outdated = [count(status, "replicas") - count(status, "updatedReplicas") for status in (old, new)]
    grown = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return outdated[1] < outdated[0] or any(count(new, name) > count(old, name) for name in grown)


def deadline_in_s(deployment: Json, condition: Json, now_s: float) -> float | None:
    """Returns seconds until the progress deadline; None for a rollout that is complete or has exceeded it."""
    if condition.get("reason") in {NEW_AVAILABLE, TIMED_OUT}:
        return None
    since_s = seconds_of(condition.get("lastUpdateTime")) or 0.0
    return max(0.0, since_s + count(deployment["spec"], "progressDeadlineSeconds") - now_s)
