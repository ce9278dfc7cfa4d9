"""The defaults of workloads (apps/v1 and core/v1 defaults.go), with those of their Pod templates."""

from __future__ import annotations

from kdns.controlplane.defaults_pod import default_pod
from kdns.controlplane.kinds import Json

ROLLING_UPDATE = "RollingUpdate"
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
"""Counts the changes of a DaemonSet's template; its Pods carry the count as a label."""

_HISTORY = 10
_DEADLINE_S = 600


def default_deployment(obj: Json) -> Json:
    """Deployment: one replica, rolling update with a quarter more and a quarter less."""
    spec = {"replicas": 1, "revisionHistoryLimit": _HISTORY, "progressDeadlineSeconds": _DEADLINE_S, **_spec(obj)}
    spec["strategy"] = _strategy(spec.get("strategy"), {"maxUnavailable": "25%", "maxSurge": "25%"})
    return {**obj, "spec": spec}


def default_replica_set(obj: Json) -> Json:
    """ReplicaSet: one replica."""
    return {**obj, "spec": {"replicas": 1, **_spec(obj)}}


def default_replication_controller(obj: Json) -> Json:
    """ReplicationController: one replica; the labels of its template select its Pods and are its own."""
    spec = {"replicas": 1, **_said(obj.get("spec"))}
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
    """StatefulSet: one replica, in order, all of them updated, claims kept."""
    spec = {"replicas": 1, "revisionHistoryLimit": _HISTORY, "podManagementPolicy": "OrderedReady", **_spec(obj)}
    given = spec.get("updateStrategy") or {}
    strategy = _strategy(given, {"partition": 0})
    if given.get("type") == ROLLING_UPDATE and not given.get("rollingUpdate"):
        strategy.pop("rollingUpdate")  # as in Kubernetes: filled in only where the type is not said
    spec["updateStrategy"] = strategy
    kept = {"whenDeleted": "Retain", "whenScaled": "Retain"}
    spec["persistentVolumeClaimRetentionPolicy"] = kept | _said(spec.get("persistentVolumeClaimRetentionPolicy"))
    if claims := spec.get("volumeClaimTemplates"):
        spec["volumeClaimTemplates"] = [_claim(claim) for claim in claims]
    return {**obj, "spec": spec}


def default_daemon_set(obj: Json) -> Json:
    """DaemonSet: one node at a time."""
    spec = {"revisionHistoryLimit": _HISTORY, **_spec(obj)}
    spec["updateStrategy"] = _strategy(spec.get("updateStrategy"), {"maxUnavailable": 1, "maxSurge": 0})
    return {**obj, "spec": spec}


def counted_template(new: Json, old: Json | None) -> Json:
    """The DaemonSet with the count of its template's changes, which the server keeps in an annotation."""
    metadata = new["metadata"]
    count = 1
    if old is not None:
        kept = (old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "1")
        changed = (old.get("spec") or {}).get("template") != (new.get("spec") or {}).get("template")
        count = (int(kept) if kept.isdecimal() else 1) + int(changed)
    annotations = {**(metadata.get("annotations") or {}), TEMPLATE_GENERATION: str(count)}
    return {**new, "metadata": {**metadata, "annotations": annotations}}


def default_template(template: Json) -> Json:
    """A Pod template with the defaults of a Pod."""
    given = _said(template)
    return {"metadata": _said(given.get("metadata")), "spec": default_pod({"spec": given.get("spec") or {}})["spec"]}


def _said(fields: Json | None) -> Json:
    return {key: value for key, value in (fields or {}).items() if value is not None}


def _spec(obj: Json) -> Json:
    """What the client said of the spec, its template with defaults, also where it is left out."""
    spec = _said(obj.get("spec"))
    return {**spec, "template": default_template(spec.get("template") or {})}


def _strategy(given: Json | None, rolling: Json) -> Json:
    strategy = {**_said(given)}
    strategy["type"] = strategy.get("type") or ROLLING_UPDATE
    if strategy["type"] == ROLLING_UPDATE:
        strategy["rollingUpdate"] = rolling | _said(strategy.get("rollingUpdate"))
    return strategy


def _claim(claim: Json) -> Json:
    """A claim template as a claim of the core group, with its volume mode and phase."""
    spec = {"volumeMode": "Filesystem", **_said(claim.get("spec"))}
    status = {**_said(claim.get("status")), "phase": "Pending"}
    metadata = _said(claim.get("metadata"))
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec, "status": status}
