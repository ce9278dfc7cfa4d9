"""The ReplicaSets of a Deployment: one for each Pod template that it had."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kdns.controlplane.apimachinery.annotations import KUBECTL_LAST_APPLIED, annotated_number
from kdns.controlplane.apimachinery.kinds import DEPLOYMENT, REPLICA_SET, Json
from kdns.controlplane.controllers.owner_references import inherited_annotations, owner_reference
from kdns.controlplane.controllers.reconciler import Action
from kdns.controlplane.simulation.workloads.replicas import count, desired_replicas
from kdns.controlplane.simulation.workloads.revisions import safe_hash
from kdns.controlplane.storage.object_meta import is_terminating

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


@dataclass(frozen=True, slots=True)
class Rollout:
    """A Deployment and its ReplicaSets: `new` has the present template; `olds`, oldest first, have former ones."""

    deployment: Json
    new: Json | None
    olds: tuple[Json, ...]

    @property
    def replica_sets(self) -> list[Json]:
        return [*self.olds, *([self.new] if self.new else [])]

    @property
    def revision(self) -> int:
        """The revision of the new ReplicaSet; one that is rolled out again gets the highest."""
        number = max(map(_revision_of, self.olds), default=0) + 1
        return max(number, _revision_of(self.new)) if self.new else number

    def created(self, size: int) -> Json:
        """Returns a ReplicaSet of the present template."""
        deployment = self.deployment
        spec, meta = deployment["spec"], deployment["metadata"]
        template, text = spec.get("template") or {}, safe_hash(_template(deployment))
        metadata = template.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), HASH: text}
        selector = spec.get("selector") or {}
        replica_set = {
            "metadata": {
                "name": f"{meta['name']}-{text}",
                "namespace": meta["namespace"],
                "labels": labels,
                "ownerReferences": [owner_reference(DEPLOYMENT, deployment)],
            },
            "spec": {
                "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH: text}},
                "template": {**template, "metadata": {**metadata, "labels": labels}},
            },
        }
        return self.synced(replica_set, size)

    def synced(self, replica_set: Json, size: int) -> Json:
        """Returns the new ReplicaSet with a size, its revision, and what the Deployment hands on."""
        meta, inherited = replica_set["metadata"], inherited_annotations(self.deployment)
        annotations = {
            **(meta.get("annotations") or {}),
            **{name: value for name, value in inherited.items() if name not in _NOT_INHERITED},
            REVISION: str(self.revision),
        }
        spec = {field: value for field, value in replica_set["spec"].items() if field != "minReadySeconds"}
        if seconds := self.deployment["spec"].get("minReadySeconds"):
            spec["minReadySeconds"] = seconds
        return {**replica_set, "metadata": {**meta, "annotations": annotations}, "spec": {**spec, "replicas": size}}

    def surplus(self) -> list[Action]:
        """Returns deletions of the oldest ReplicaSets without Pods, beyond spec.revisionHistoryLimit."""
        olds = sorted((old for old in self.olds if not is_terminating(old)), key=_revision_of)
        most = self.deployment["spec"].get("revisionHistoryLimit", len(olds))
        return [Action("delete", REPLICA_SET, old) for old in olds[: max(0, len(olds) - most)] if _is_idle(old)]


def rollout_of(deployment: Json, replica_sets: Iterable[Json]) -> Rollout:
    """Returns the rollout; of several ReplicaSets with the present template, the oldest is the new one."""
    ordered = sorted(
        replica_sets, key=lambda old: (old["metadata"].get("creationTimestamp") or "", old["metadata"]["name"])
    )
    new = next((replica_set for replica_set in ordered if _template(replica_set) == _template(deployment)), None)
    return Rollout(deployment, new, tuple(replica_set for replica_set in ordered if replica_set is not new))


def _revision_of(replica_set: Json) -> int:
    """Returns the revision of the ReplicaSet, or 0."""
    return annotated_number(replica_set, REVISION) or 0


def _is_idle(replica_set: Json) -> bool:
    status, meta = replica_set.get("status"), replica_set["metadata"]
    is_observed = count(status, "observedGeneration") >= count(meta, "generation")
    return is_observed and not desired_replicas(replica_set) and not count(status, "replicas")
