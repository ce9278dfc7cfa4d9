"""The sizes of ReplicaSets in a rolling update: at most maxSurge Pods more, maxUnavailable fewer than spec.replicas.

Differs: a Deployment that is scaled during a rollout is not scaled in proportion: the new ReplicaSet gets the surge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.simulation.workloads.deployment.replica_sets import Rollout
from kdns.controlplane.simulation.workloads.replicas import count, desired_replicas, int_or_percent

NEW: Final = ""
"""Stands for the name of a ReplicaSet that has to be created."""


def available(replica_set: Json) -> int:
    """Returns the available Pods of the ReplicaSet, at most spec.replicas.

    Differs: kube-controller-manager counts Pods that will be deleted until the status is updated, and may briefly go
    below the minimum of available Pods.
    """
    return min(count(replica_set.get("status"), "availableReplicas"), desired_replicas(replica_set))


def is_rolling(deployment: Json) -> bool:
    """Returns whether the strategy is RollingUpdate."""
    return ((deployment.get("spec") or {}).get("strategy") or {}).get("type") == "RollingUpdate"


def budget(deployment: Json) -> tuple[int, int]:
    """Returns (maxSurge, maxUnavailable) in Pods: never both 0 in a rolling update, both 0 otherwise."""
    if not is_rolling(deployment) or not desired_replicas(deployment):
        return 0, 0
    rolling, total = deployment["spec"]["strategy"].get("rollingUpdate") or {}, desired_replicas(deployment)
    surge = int_or_percent(rolling.get("maxSurge"), total, up=True)
    unavailable = int_or_percent(rolling.get("maxUnavailable"), total, up=False)
    return surge, min(unavailable or int(not surge), total)


def size_of_new(deployment: Json, replica_sets: Iterable[Json], new: int) -> int:
    """Returns the size of the new ReplicaSet, `new` replicas now, within the surge."""
    total = desired_replicas(deployment)
    if not is_rolling(deployment) or new >= total:
        return total
    room = total + budget(deployment)[0] - sum(map(desired_replicas, replica_sets))
    return max(new, min(new + room, total))


def sizes_of_old(deployment: Json, new: Json, olds: Sequence[Json]) -> dict[str, int]:
    """Returns the sizes of old ReplicaSets, by name: unavailable Pods leave first, then the oldest.

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
    """Returns the sizes of ReplicaSets after the next step, by name; `NEW` does not exist yet.

    RollingUpdate: the new one grows within the surge, else the old ones shrink within availability. Recreate: the old
    ones end first, with their Pods. Paused: the newest one with Pods brings the Deployment to its size.
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
    """Returns whether Pods of the ReplicaSet run, or have not ended yet."""
    status = replica_set.get("status")
    return bool(count(status, "replicas") or count(status, "terminatingReplicas"))
