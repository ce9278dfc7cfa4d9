"""The ReplicaSets of a Deployment: creating, matching, scaling and cleaning them up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kdns.cluster.objects import Key
from kdns.controlplane.controllers.owner_references import inherited_annotations, owner_reference
from kdns.controlplane.controllers.reconciler import Action, Event, Result
from kdns.controlplane.controllers.workloads.deployment.rolling import (
    DESIRED,
    MAX,
    budget,
    is_rolling,
    oldest_first,
    proportional_sizes,
)
from kdns.controlplane.controllers.workloads.deployment.status import NO_LIMIT
from kdns.controlplane.controllers.workloads.replicas import count, desired_replicas
from kdns.controlplane.controllers.workloads.revisions import safe_hash
from kdns.controlplane.meta.annotations import KUBECTL_LAST_APPLIED, annotated_number
from kdns.controlplane.meta.kinds import DEPLOYMENT, REPLICA_SET, Json
from kdns.controlplane.storage.object_meta import is_terminating, key_of

HASH: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
HISTORY: Final = "deployment.kubernetes.io/revision-history"

_HISTORY_MAX = 2000
_NOT_INHERITED = frozenset(
    {
        KUBECTL_LAST_APPLIED,
        "deprecated.deployment.rollback.to",
        DESIRED,
        HISTORY,
        MAX,
        REVISION,
    }
)
"""Annotations that a ReplicaSet does not inherit from its Deployment."""


def _template(obj: Json) -> Json:
    """Returns the Pod template without the label pod-template-hash."""
    template: Json = (obj.get("spec") or {}).get("template") or {}
    metadata = template.get("metadata") or {}
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name != HASH}
    return {**template, "metadata": {**metadata, "labels": labels}}


def same_template(replica_set: Json, deployment: Json) -> bool:
    """Returns whether the ReplicaSet has the present Pod template of the Deployment."""
    return _template(replica_set) == _template(deployment)


def set_name(deployment: Json, collisions: int) -> str:
    """Returns the name of the ReplicaSet of the present template; each collision gives another one."""
    return f"{deployment['metadata']['name']}-{safe_hash(_template(deployment), collisions)}"


def revision_of(replica_set: Json) -> int:
    """Returns the revision of the ReplicaSet, or 0."""
    return annotated_number(replica_set, REVISION) or 0


def newest(replica_sets: Iterable[Json]) -> Json | None:
    """Returns the ReplicaSet that was created last."""
    return max(replica_sets, key=oldest_first, default=None)


def new_replica_set(deployment: Json, name: str, number: int, size: int) -> Json:
    """Returns a ReplicaSet of the present template."""
    spec, meta = deployment["spec"], deployment["metadata"]
    template, text = spec.get("template") or {}, name.rpartition("-")[2]
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), HASH: text}
    selector = spec.get("selector") or {}
    annotations = {key: value for key, value in inherited_annotations(deployment).items() if key not in _NOT_INHERITED}
    replica_set = {
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": {**annotations, REVISION: str(number)},
            "ownerReferences": [owner_reference(DEPLOYMENT, deployment)],
        },
        "spec": {
            **({"minReadySeconds": spec["minReadySeconds"]} if spec.get("minReadySeconds") else {}),
            "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH: text}},
            "template": {**template, "metadata": {**metadata, "labels": labels}},
        },
    }
    return sized(replica_set, deployment, size)


def sized(replica_set: Json, deployment: Json, size: int) -> Json:
    """Returns the ReplicaSet with `size` replicas, and the annotations of the Deployment's size."""
    meta, most = replica_set["metadata"], desired_replicas(deployment) + budget(deployment)[0]
    annotations = {**(meta.get("annotations") or {}), DESIRED: str(desired_replicas(deployment)), MAX: str(most)}
    metadata = {**meta, "annotations": annotations}
    return {**replica_set, "metadata": metadata, "spec": {**replica_set["spec"], "replicas": size}}


def synced(replica_set: Json, deployment: Json, number: int) -> Json:
    """Returns the new ReplicaSet with the Deployment's annotations and minReadySeconds.

    Its revision is at least `number`.
    """
    meta = replica_set["metadata"]
    annotations = dict(meta.get("annotations") or {})
    annotations |= {key: value for key, value in inherited_annotations(deployment).items() if key not in _NOT_INHERITED}
    before = revision_of(replica_set)
    if before < number:
        annotations[REVISION] = str(number)
        if before:
            history = ",".join(filter(None, (annotations.get(HISTORY), str(before))))
            while len(history) > _HISTORY_MAX:
                history = history.partition(",")[2]
            annotations[HISTORY] = history
    spec = {key: value for key, value in replica_set["spec"].items() if key != "minReadySeconds"}
    if seconds := (deployment["spec"].get("minReadySeconds") or 0):
        spec["minReadySeconds"] = seconds
    return {**replica_set, "metadata": {**meta, "annotations": annotations}, "spec": spec}


@dataclass(frozen=True, slots=True)
class Rollout:
    """A Deployment and its ReplicaSets: `new` has the present template; `olds`, oldest first, have former ones."""

    deployment: Json
    new: Json | None
    olds: tuple[Json, ...]

    @property
    def every(self) -> list[Json]:
        """All ReplicaSets."""
        return [*self.olds, *([self.new] if self.new else [])]

    @property
    def limit(self) -> int:
        """spec.revisionHistoryLimit: the number of old ReplicaSets that are kept."""
        limit = self.deployment["spec"].get("revisionHistoryLimit")
        return NO_LIMIT if limit is None else int(limit)


def scaled(rollout: Rollout) -> Result | None:
    """Scales the ReplicaSets in proportion to the Deployment's new size; None if nothing changes."""
    deployment, new, olds = rollout.deployment, rollout.new, rollout.olds
    active = [each for each in rollout.every if desired_replicas(each)]
    if len(active) <= 1:
        only = active[0] if active else new or newest(olds)
        sizes = {key_of(only): desired_replicas(deployment)} if only else {}
    elif new and desired_replicas(new) == desired_replicas(deployment) == count(new.get("status"), "availableReplicas"):
        sizes = {key_of(each): 0 for each in active if each is not new} | {key_of(new): desired_replicas(new)}
    elif is_rolling(deployment):
        sizes = proportional_sizes(deployment, rollout.every)
    else:  # Recreate scales nothing up while old Pods end; the annotations change, so that this state is left
        sizes = {key_of(each): desired_replicas(each) for each in active}
    step = resized(deployment, sizes, rollout.every, annotate=True)
    return step if step.actions else None


def resized(deployment: Json, sizes: dict[Key, int], sets: Iterable[Json], *, annotate: bool = False) -> Result:
    """Updates to new sizes; with `annotate` also of ReplicaSets whose annotations alone change."""
    actions, events = [], []
    for each in sets:
        size = sizes.get(key_of(each), desired_replicas(each))
        changed = sized(each, deployment, size)
        if size != desired_replicas(each):
            events.append(scaling(deployment, each["metadata"]["name"], desired_replicas(each), size))
        elif not (annotate and key_of(each) in sizes and changed != each):
            continue
        actions.append(Action("update", REPLICA_SET, changed))
    return Result(actions, events)


def scaling(deployment: Json, name: str, before: int, after: int) -> Event:
    """Returns the Event of a ReplicaSet that is scaled."""
    way = "up" if after > before else "down"
    message = f"Scaled {way} replica set {name} from {before} to {after}"
    return Event(DEPLOYMENT, deployment, "Normal", "ScalingReplicaSet", message)


def surplus(rollout: Rollout) -> list[Action]:
    """Returns deletions of the oldest ReplicaSets without Pods, beyond the history limit."""
    olds = sorted((each for each in rollout.olds if not is_terminating(each)), key=revision_of)
    beyond = olds[: max(0, len(olds) - rollout.limit)]
    return [Action("delete", REPLICA_SET, each) for each in beyond if _is_idle(each)]


def _is_idle(replica_set: Json) -> bool:
    status, meta = replica_set.get("status"), replica_set["metadata"]
    is_observed = count(status, "observedGeneration") >= count(meta, "generation")
    return is_observed and not desired_replicas(replica_set) and not count(status, "replicas")
