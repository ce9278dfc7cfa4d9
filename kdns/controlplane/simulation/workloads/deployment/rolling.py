"""The sizes of ReplicaSets in a rolling update: at most maxSurge Pods more, maxUnavailable fewer than spec.replicas.

Differs: a Deployment that is scaled during a rollout is not scaled in proportion: the new ReplicaSet gets the surge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.simulation.workloads.replicas import count, desired_replicas, int_or_percent
from kdns.controlplane.storage.object_meta import key_of


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
    if not surge and not unavailable:
        unavailable = 1
    return surge, min(unavailable, total)


def oldest_first(replica_set: Json) -> tuple[str, str]:
    """Sorts key: creation time, then name."""
    meta = replica_set["metadata"]
    return meta.get("creationTimestamp") or "", meta["name"]


def size_of_new(deployment: Json, replica_sets: Iterable[Json], new: int) -> int:
    """Returns the size of the new ReplicaSet, `new` replicas now, within the surge."""
    if not is_rolling(deployment) or new >= desired_replicas(deployment):
        return desired_replicas(deployment)
    room = desired_replicas(deployment) + budget(deployment)[0] - sum(map(desired_replicas, replica_sets))
    return new + max(0, min(room, desired_replicas(deployment) - new))


def sizes_of_old(deployment: Json, new: Json, olds: Sequence[Json]) -> dict[Key, int]:
    """Returns the sizes of old ReplicaSets that are scaled down: unavailable Pods first, then within availability.

    Pods that the new ReplicaSet has not made available yet count as unavailable.
    """
    least = desired_replicas(deployment) - budget(deployment)[1]
    every_set = [new, *olds]
    room = sum(map(desired_replicas, every_set)) - least - (desired_replicas(new) - available(new))
    sizes = {key_of(each): desired_replicas(each) for each in olds if desired_replicas(each)}
    in_order = sorted((each for each in olds if desired_replicas(each)), key=oldest_first)
    spare = sum(map(available, every_set)) - least
    for each in in_order if room > 0 else ():
        broken = min(room, desired_replicas(each) - available(each))
        sizes[key_of(each)] -= broken
        room -= broken
    for each in in_order:
        fewer = max(0, min(room, spare, sizes[key_of(each)]))
        sizes[key_of(each)] -= fewer
        room -= fewer
        spare -= fewer
    return {key_of(each): sizes[key_of(each)] for each in in_order if sizes[key_of(each)] != desired_replicas(each)}
