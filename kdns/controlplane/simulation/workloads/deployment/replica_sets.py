"""The ReplicaSets of a Deployment: creating, matching, scaling and cleaning them up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.annotations import KUBECTL_LAST_APPLIED, annotated_number
from kdns.controlplane.apimachinery.kinds import DEPLOYMENT, REPLICA_SET, Json
from kdns.controlplane.controllers.owner_references import inherited_annotations, owner_reference
from kdns.controlplane.controllers.reconciler import Action, Event, Result
from kdns.controlplane.simulation.workloads.deployment.status import NO_LIMIT
from kdns.controlplane.simulation.workloads.replicas import count, desired_replicas
from kdns.controlplane.simulation.workloads.revisions import safe_hash
from kdns.controlplane.storage.object_meta import is_terminating, key_of

HASH: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
_NOT_INHERITED = frozenset({KUBECTL_LAST_APPLIED, "deprecated.deployment.rollback.to", REVISION})
"""Annotations that a ReplicaSet does not inherit from its Deployment."""


def _template(obj: Json) -> Json:
    """Returns the Pod template without the label pod-template-hash."""
    template: Json = (obj.get("spec") or {}).get("template") or {}
    metadata = template.get("metadata") or {}
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name != HASH}
    return {**template, "metadata": {**metadata, "labels": labels}}


def same_template(replica_set: Json, deployment: Json) -> bool:
    return _template(replica_set) == _template(deployment)


def set_name(deployment: Json) -> str:
    return f"{deployment['metadata']['name']}-{safe_hash(_template(deployment))}"


def revision_of(replica_set: Json) -> int:
    """Returns the revision of the ReplicaSet, or 0."""
    return annotated_number(replica_set, REVISION) or 0


def new_replica_set(deployment: Json, number: int, size: int) -> Json:
    """Returns a ReplicaSet of the present template."""
    spec, meta = deployment["spec"], deployment["metadata"]
    template, name = spec.get("template") or {}, set_name(deployment)
    text = name.rpartition("-")[2]
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), HASH: text}
    selector = spec.get("selector") or {}
    annotations = {key: value for key, value in inherited_annotations(deployment).items() if key not in _NOT_INHERITED}
    return {
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": {**annotations, REVISION: str(number)},
            "ownerReferences": [owner_reference(DEPLOYMENT, deployment)],
        },
        "spec": {
            "replicas": size,
            **({"minReadySeconds": spec["minReadySeconds"]} if spec.get("minReadySeconds") else {}),
            "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH: text}},
            "template": {**template, "metadata": {**metadata, "labels": labels}},
        },
    }


def synced(replica_set: Json, deployment: Json, number: int) -> Json:
    """Returns the new ReplicaSet with the Deployment's annotations and minReadySeconds.

    Its revision is at least `number`.
    """
    meta = replica_set["metadata"]
    annotations = dict(meta.get("annotations") or {})
    annotations |= {key: value for key, value in inherited_annotations(deployment).items() if key not in _NOT_INHERITED}
    annotations[REVISION] = str(max(number, revision_of(replica_set)))
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
        return [*self.olds, *([self.new] if self.new else [])]

    @property
    def limit(self) -> int:
        """spec.revisionHistoryLimit: the number of old ReplicaSets that are kept."""
        limit = self.deployment["spec"].get("revisionHistoryLimit")
        return NO_LIMIT if limit is None else int(limit)


def resized(deployment: Json, sizes: Mapping[Key, int], sets: Iterable[Json]) -> Result:
    """Updates to new sizes."""
    actions, events = [], []
    for replica_set in sets:
        before = desired_replicas(replica_set)
        if (size := sizes.get(key_of(replica_set), before)) == before:
            continue
        events.append(scaling(deployment, replica_set["metadata"]["name"], before, size))
        resized_set = {**replica_set, "spec": {**replica_set["spec"], "replicas": size}}
        actions.append(Action("update", REPLICA_SET, resized_set))
    return Result(actions, events)


def scaling(deployment: Json, name: str, before: int, after: int) -> Event:
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
