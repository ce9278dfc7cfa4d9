"""The ReplicaSets of a Deployment: how they are made, told apart by template, and what is noted on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kdns.controlplane.kinds import DEPLOYMENT, Json
from kdns.controlplane.revisions import safe_hash
from kdns.controlplane.rollouts import DESIRED, MAX, annotated_number, budget, oldest_first, wanted
from kdns.controlplane.workloads import handed_on, owner_reference

HASH: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
HISTORY: Final = "deployment.kubernetes.io/revision-history"

_HISTORY_MAX = 2000
_OWN = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "deprecated.deployment.rollback.to",
        DESIRED,
        HISTORY,
        MAX,
        REVISION,
    }
)
"""Annotations that are not handed on from a Deployment to its ReplicaSets."""


def _template(obj: Json) -> Json:
    """The Pod template without the label that tells ReplicaSets apart."""
    template: Json = (obj.get("spec") or {}).get("template") or {}
    metadata = template.get("metadata") or {}
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name != HASH}
    return {**template, "metadata": {**metadata, "labels": labels}}


def same_template(replica_set: Json, deployment: Json) -> bool:
    """Whether the ReplicaSet makes the Pods that the Deployment wants now."""
    return _template(replica_set) == _template(deployment)


def set_name(deployment: Json, collisions: int) -> str:
    """The name of the ReplicaSet for the present template; another one for each collision."""
    return f"{deployment['metadata']['name']}-{safe_hash(_template(deployment), collisions)}"


def revision_of(replica_set: Json) -> int:
    """The number of the rollout that the ReplicaSet was last used for."""
    return annotated_number(replica_set, REVISION) or 0


def newest(replica_sets: Iterable[Json]) -> Json | None:
    """The one made last."""
    return max(replica_sets, key=oldest_first, default=None)


def made_set(deployment: Json, name: str, number: int, size: int) -> Json:
    """A new ReplicaSet for the present template."""
    spec, meta = deployment["spec"], deployment["metadata"]
    template, text = spec.get("template") or {}, name.rpartition("-")[2]
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), HASH: text}
    selector = spec.get("selector") or {}
    annotations = {key: value for key, value in handed_on(deployment).items() if key not in _OWN}
    made = {
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
    return sized(made, deployment, size)


def sized(replica_set: Json, deployment: Json, size: int) -> Json:
    """The ReplicaSet with another size, and with the sizes of its Deployment noted."""
    meta, most = replica_set["metadata"], wanted(deployment) + budget(deployment)[0]
    noted = {**(meta.get("annotations") or {}), DESIRED: str(wanted(deployment)), MAX: str(most)}
    metadata = {**meta, "annotations": noted}
    return {**replica_set, "metadata": metadata, "spec": {**replica_set["spec"], "replicas": size}}


def synced(replica_set: Json, deployment: Json, number: int) -> Json:
    """The new ReplicaSet with the Deployment's annotations and readiness time, and a revision not below `number`."""
    meta = replica_set["metadata"]
    annotations = dict(meta.get("annotations") or {})
    annotations |= {key: value for key, value in handed_on(deployment).items() if key not in _OWN}
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
