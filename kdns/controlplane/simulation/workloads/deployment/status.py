"""The status of a Deployment: counts over its ReplicaSets, and the conditions Available, Progressing, ReplicaFailure.

(kube-controller-manager: deployment/progress.go, sync.go.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kdns.controlplane.apimachinery.conditions import condition_of, set_condition
from kdns.controlplane.apimachinery.human_duration import seconds_of
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.simulation.workloads.deployment.rolling import budget
from kdns.controlplane.simulation.workloads.replicas import count, desired_replicas
from kdns.controlplane.storage.object_meta import timestamp

NEW_AVAILABLE: Final = "NewReplicaSetAvailable"
TIMED_OUT: Final = "ProgressDeadlineExceeded"
NO_LIMIT: Final = 2**31 - 1
"""A progressDeadlineSeconds or revisionHistoryLimit without limit."""

_SUMMED = ("replicas", "readyReplicas", "availableReplicas")


def with_condition(rows: Sequence[Json], new: Json, now_s: float, *, refresh: bool = False) -> list[Json]:
    """Returns the conditions with a new one at the end.

    One with equal status and reason is kept, unless `refresh`.
    """
    same = [row for row in rows if row.get("type") == new["type"]]
    is_kept = any((row.get("status"), row.get("reason")) == (new["status"], new["reason"]) for row in same)
    if is_kept and not refresh:
        return list(rows)
    now = timestamp(now_s)
    others = [row for row in rows if row.get("type") != new["type"]]
    return [*others, *set_condition(same, {**new, "lastUpdateTime": now}, now)]


def progressing(status: str, reason: str, message: str) -> Json:
    """Returns a Progressing condition without its times."""
    return {"type": "Progressing", "status": status, "reason": reason, "message": message}


def has_deadline(deployment: Json) -> bool:
    seconds = (deployment.get("spec") or {}).get("progressDeadlineSeconds")
    return seconds is not None and seconds != NO_LIMIT


def deployment_conditions(deployment: Json) -> list[Json]:
    return list((deployment.get("status") or {}).get("conditions") or ())


def counted_status(deployment: Json, new: Json | None, replica_sets: Sequence[Json], now_s: float) -> Json:
    """Returns the status with its counts and Available; `replica_sets` include `new`."""
    sums = {name: sum(count(each.get("status"), name) for each in replica_sets) for name in _SUMMED}
    total = sum(map(desired_replicas, replica_sets))
    counts = {
        "observedGeneration": count(deployment["metadata"], "generation"),
        "replicas": sums["replicas"],
        "updatedReplicas": count((new or {}).get("status"), "replicas"),
        "readyReplicas": sums["readyReplicas"],
        "availableReplicas": sums["availableReplicas"],
        "unavailableReplicas": max(0, total - sums["availableReplicas"]),
    }
    status: Json = {name: number for name, number in counts.items() if number}
    status["terminatingReplicas"] = sum(count(each.get("status"), "terminatingReplicas") for each in replica_sets)
    enough = sums["availableReplicas"] >= desired_replicas(deployment) - budget(deployment)[1]
    row = {
        "type": "Available",
        "status": "True" if enough else "False",
        "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
        "message": f"Deployment {'has' if enough else 'does not have'} minimum availability.",
    }
    status["conditions"] = with_condition(deployment_conditions(deployment), row, now_s)
    return status


def is_complete(deployment: Json, status: Json) -> bool:
    """Returns whether all Pods are updated and available, and no old Pods exist."""
    names = ("updatedReplicas", "replicas", "availableReplicas")
    return all(count(status, name) == desired_replicas(deployment) for name in names)


def rollout_status(deployment: Json, new: Json | None, replica_sets: Sequence[Json], now_s: float) -> Json:
    """Returns the status with Progressing and ReplicaFailure too."""
    status = counted_status(deployment, new, replica_sets, now_s)
    rows, condition = status["conditions"], condition_of(deployment, "Progressing")
    if not has_deadline(deployment):
        rows = [row for row in rows if row.get("type") != "Progressing"]
    elif not (
        count(status, "replicas") == count(status, "updatedReplicas")
        and (condition or {}).get("reason") == NEW_AVAILABLE
    ):
        rows = _progressed(deployment, new, status, condition, now_s)
    failure = next((row for each in ([new] if new else []) + list(replica_sets) if (row := _failure(each))), None)
    rows = (
        with_condition(rows, failure, now_s)
        if failure
        else [row for row in rows if row.get("type") != "ReplicaFailure"]
    )
    return {**status, "conditions": rows}


def _progressed(deployment: Json, new: Json | None, status: Json, condition: Json | None, now_s: float) -> list[Json]:
    rows = status["conditions"]
    name = f'ReplicaSet "{new["metadata"]["name"]}"' if new else f'Deployment "{deployment["metadata"]["name"]}"'
    if is_complete(deployment, status):
        row = progressing("True", NEW_AVAILABLE, f"{name} has successfully progressed.")
        return with_condition(rows, row, now_s)
    if _moved(deployment.get("status") or {}, status):
        row = progressing("True", "ReplicaSetUpdated", f"{name} is progressing.")
        return with_condition(rows, row, now_s, refresh=True)
    if condition is not None and deadline_in_s(deployment, condition, now_s) == 0:
        row = progressing("False", TIMED_OUT, f"{name} has timed out progressing.")
        return with_condition(rows, row, now_s)
    return list(rows)


def _moved(old: Json, new: Json) -> bool:
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


def _failure(replica_set: Json) -> Json | None:
    condition = condition_of(replica_set, "ReplicaFailure")
    return None if condition is None else {name: condition[name] for name in ("type", "status", "reason", "message")}
