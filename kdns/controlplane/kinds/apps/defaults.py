"""The defaults of workloads (apps/v1 and core/v1 defaults.go), with those of their Pod templates."""

from __future__ import annotations

from kdns.controlplane.apimachinery.annotations import annotated_number
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.defaults import without_nulls
from kdns.controlplane.kinds.pod.defaults import default_pod_template

ROLLING_UPDATE = "RollingUpdate"
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
"""The annotation that counts the changes of a DaemonSet's template; its Pods have the count as a label."""

_HISTORY = 10
_DEADLINE_S = 600


def default_deployment(obj: Json) -> Json:
    """Sets the defaults of a Deployment: one replica, rolling update with 25 % surge and 25 % unavailable."""
    spec = {"replicas": 1, "revisionHistoryLimit": _HISTORY, "progressDeadlineSeconds": _DEADLINE_S, **_spec(obj)}
    spec["strategy"] = _strategy(spec.get("strategy"), {"maxUnavailable": "25%", "maxSurge": "25%"})
    return {**obj, "spec": spec}


def default_replica_set(obj: Json) -> Json:
    return {**obj, "spec": {"replicas": 1, **_spec(obj)}}


def default_replication_controller(obj: Json) -> Json:
    """Sets the defaults of a ReplicationController: one replica; selector and labels are those of its template."""
    spec = {"replicas": 1, **without_nulls(obj.get("spec"))}
    if "template" in spec:
        spec["template"] = default_template(spec["template"])
    metadata = obj.get("metadata") or {}
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if labels and not spec.get("selector"):
        spec["selector"] = labels
    if labels and not metadata.get("labels"):
        metadata = {**metadata, "labels": labels}
    return {**obj, "metadata": metadata, "spec": spec}


def default_stateful_set(obj: Json) -> Json:
    """Sets the defaults of a StatefulSet: one replica, OrderedReady, no partition, claims are retained."""
    spec = {"replicas": 1, "revisionHistoryLimit": _HISTORY, "podManagementPolicy": "OrderedReady", **_spec(obj)}
    given = spec.get("updateStrategy") or {}
    strategy = _strategy(given, {"partition": 0})
    if given.get("type") == ROLLING_UPDATE and not given.get("rollingUpdate"):
        strategy.pop("rollingUpdate")  # as in Kubernetes: set only if the type is absent
    spec["updateStrategy"] = strategy
    kept = {"whenDeleted": "Retain", "whenScaled": "Retain"}
    spec["persistentVolumeClaimRetentionPolicy"] = kept | without_nulls(
        spec.get("persistentVolumeClaimRetentionPolicy")
    )
    if claims := spec.get("volumeClaimTemplates"):
        spec["volumeClaimTemplates"] = [_claim(claim) for claim in claims]
    return {**obj, "spec": spec}


def default_daemon_set(obj: Json) -> Json:
    """Sets the defaults of a DaemonSet: rolling update of one node at a time."""
    spec = {"revisionHistoryLimit": _HISTORY, **_spec(obj)}
    spec["updateStrategy"] = _strategy(spec.get("updateStrategy"), {"maxUnavailable": 1, "maxSurge": 0})
    return {**obj, "spec": spec}


def counted_template(new: Json, old: Json | None) -> Json:
    """Returns the DaemonSet with the annotation that counts the changes of its template."""
    metadata = new["metadata"]
    count = 1
    if old is not None:
        changed = (old.get("spec") or {}).get("template") != (new.get("spec") or {}).get("template")
        count = (annotated_number(old, TEMPLATE_GENERATION) or 1) + int(changed)
    annotations = {**(metadata.get("annotations") or {}), TEMPLATE_GENERATION: str(count)}
    return {**new, "metadata": {**metadata, "annotations": annotations}}


def default_template(template: Json) -> Json:
    given = without_nulls(template)
    return {
        "metadata": without_nulls(given.get("metadata")),
        "spec": default_pod_template({"spec": given.get("spec") or {}})["spec"],
    }


def _spec(obj: Json) -> Json:
    """Returns the spec without nulls, and with the defaults of its template."""
    spec = without_nulls(obj.get("spec"))
    return {**spec, "template": default_template(spec.get("template") or {})}


def _strategy(given: Json | None, rolling: Json) -> Json:
    strategy = {**without_nulls(given)}
    strategy["type"] = strategy.get("type") or ROLLING_UPDATE
    if strategy["type"] == ROLLING_UPDATE:
        strategy["rollingUpdate"] = rolling | without_nulls(strategy.get("rollingUpdate"))
    return strategy


def _claim(claim: Json) -> Json:
    """Returns a claim template with type, volume mode and phase."""
    spec = {"volumeMode": "Filesystem", **without_nulls(claim.get("spec"))}
    status = {**without_nulls(claim.get("status")), "phase": "Pending"}
    metadata = without_nulls(claim.get("metadata"))
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec, "status": status}
