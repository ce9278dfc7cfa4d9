"""The arithmetic of a Deployment's rollout: how far ReplicaSets may grow and must shrink, and by which steps.

Pure numbers over Deployments and ReplicaSets (kube-controller-manager: deployment/rolling.go, sync.go, util).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kdns.cluster.objects import Key
from kdns.controlplane.kinds import Json
from kdns.controlplane.workloads import count

DESIRED = "deployment.kubernetes.io/desired-replicas"
MAX = "deployment.kubernetes.io/max-replicas"
_PERCENT = 100


def int_or_percent(value: int | str | None, total: int, *, up: bool) -> int:
    """A number, or a percentage of `total` rounded up or down; 0 for neither."""
    if isinstance(value, int):
        return value
    digits = str(value or "").removesuffix("%")
    share = int(digits) * total if digits.isdecimal() else 0
    return -(-share // _PERCENT) if up else share // _PERCENT


def wanted(obj: Json) -> int:
    """spec.replicas."""
    return count(obj.get("spec"), "replicas")


def available(replica_set: Json) -> int:
    """The available Pods that remain when the ReplicaSet has the size it is asked for.

    Differs: kube-controller-manager counts Pods that are about to be deleted until the status says otherwise, and may
    for a moment go below what must be available.
    """
    return min(count(replica_set.get("status"), "availableReplicas"), wanted(replica_set))


def is_rolling(deployment: Json) -> bool:
    """Whether old Pods are replaced a few at a time."""
    return ((deployment.get("spec") or {}).get("strategy") or {}).get("type") == "RollingUpdate"


def budget(deployment: Json) -> tuple[int, int]:
    """(max surge, max unavailable) in Pods; never both 0 in a rolling update, both 0 otherwise."""
    if not is_rolling(deployment) or not wanted(deployment):
        return 0, 0
    rolling, total = deployment["spec"]["strategy"].get("rollingUpdate") or {}, wanted(deployment)
    surge = int_or_percent(rolling.get("maxSurge"), total, up=True)
    unavailable = int_or_percent(rolling.get("maxUnavailable"), total, up=False)
    if not surge and not unavailable:
        unavailable = 1
    return surge, min(unavailable, total)


def oldest_first(replica_set: Json) -> tuple[str, str]:
    """Sorts by age."""
    meta = replica_set["metadata"]
    return meta.get("creationTimestamp") or "", meta["name"]


def size_of_new(deployment: Json, replica_sets: Iterable[Json], new: int) -> int:
    """How large the new ReplicaSet, of size `new`, may be now: the surge is not to be exceeded."""
    if not is_rolling(deployment) or new >= wanted(deployment):
        return wanted(deployment)
    room = wanted(deployment) + budget(deployment)[0] - sum(map(wanted, replica_sets))
    return new + max(0, min(room, wanted(deployment) - new))


def sizes_of_old(deployment: Json, new: Json, olds: Sequence[Json]) -> dict[Key, int]:
    """How far old ReplicaSets shrink now: first by Pods that are not available, then as far as enough are.

    Counted so that the Pods that the new ReplicaSet still lacks are taken for unavailable.
    """
    least = wanted(deployment) - budget(deployment)[1]
    everything = [new, *olds]
    room = sum(map(wanted, everything)) - least - (wanted(new) - available(new))
    sizes = {_key(each): wanted(each) for each in olds if wanted(each)}
    in_order = sorted((each for each in olds if wanted(each)), key=oldest_first)
    spare = sum(map(available, everything)) - least
    for each in in_order if room > 0 else ():
        broken = min(room, wanted(each) - available(each))
        sizes[_key(each)] -= broken
        room -= broken
    for each in in_order:
        fewer = max(0, min(room, spare, sizes[_key(each)]))
        sizes[_key(each)] -= fewer
        room -= fewer
        spare -= fewer
    return {_key(each): sizes[_key(each)] for each in in_order if sizes[_key(each)] != wanted(each)}


def proportional_sizes(deployment: Json, replica_sets: Iterable[Json]) -> dict[Key, int]:
    """The sizes of several active ReplicaSets after the Deployment was scaled in the middle of a rollout.

    Each gets its share of what is added or taken; what rounding leaves goes to the largest.
    """
    surge = budget(deployment)[0]
    active = [each for each in replica_sets if wanted(each)]
    allowed = wanted(deployment) + surge if wanted(deployment) else 0
    change = allowed - sum(map(wanted, active))
    active.sort(key=oldest_first, reverse=change > 0)
    active.sort(key=wanted, reverse=True)
    sizes, left = {}, change
    for each in active:
        share = _share(deployment, each, surge)
        step = min(share, left) if change > 0 else max(share, left)
        step = step if change else 0
        sizes[_key(each)] = wanted(each) + step
        left -= step
    if active and change:
        first = _key(active[0])
        sizes[first] = max(0, sizes[first] + left)
    return sizes


def _share(deployment: Json, replica_set: Json, surge: int) -> int:
    """How much larger a ReplicaSet becomes in proportion to how the Deployment grew."""
    size = wanted(replica_set)
    if not wanted(deployment):
        return -size
    annotated = annotated_number(replica_set, MAX)
    before = count(deployment.get("status"), "replicas") if annotated is None else annotated
    if not before:
        return 0
    return int(size * (wanted(deployment) + surge) / before + 0.5) - size


def annotated_number(obj: Json, annotation: str) -> int | None:
    """An annotation that holds a number; None where it does not."""
    text = (obj["metadata"].get("annotations") or {}).get(annotation) or ""
    return int(text) if text.isdecimal() and text.isascii() else None


def was_scaled(deployment: Json, replica_sets: Iterable[Json]) -> bool:
    """Whether the Deployment's size changed since its active ReplicaSets were sized."""
    desired = (annotated_number(each, DESIRED) for each in replica_sets if wanted(each))
    return any(number is not None and number != wanted(deployment) for number in desired)


def _key(obj: Json) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
