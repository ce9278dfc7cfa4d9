"""The defaults of Jobs (batch/v1 defaults.go), and the selector that a new Job gets."""

from __future__ import annotations

from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.apps.defaults import default_template
from kdns.controlplane.kinds.defaults import without_nulls

_NO_LIMIT = 2**31 - 1


def default_job(obj: Json) -> Json:
    """Returns one completion, a backoff limit of six, and the labels of its template."""
    spec = without_nulls(obj.get("spec"))
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    failed = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    spec = {
        "parallelism": 1,
        "backoffLimit": 6 if spec.get("backoffLimitPerIndex") is None else _NO_LIMIT,
        "completionMode": "NonIndexed",
        "suspend": False,
        "manualSelector": False,
        "podReplacementPolicy": failed,
        **spec,
        "template": default_template(spec.get("template") or {}),
    }
    meta = obj.get("metadata") or {}
    labels = meta.get("labels") or ((spec["template"].get("metadata") or {}).get("labels"))
    return {**obj, "metadata": {**meta, **({"labels": labels} if labels else {})}, "spec": spec}


def with_job_selector(obj: Json) -> Json:
    """Returns a new Job with its uid as selector, and uid and name as Pod labels, unless manualSelector is set."""
    spec = obj["spec"]
    if spec.get("manualSelector"):
        return obj
    uid, name = obj["metadata"]["uid"], obj["metadata"].get("name") or ""
    template = spec["template"]
    meta = template.get("metadata") or {}
    ours = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    template = {**template, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), **ours}}}
    marks = obj["metadata"]
    obj = {**obj, "metadata": {**marks, "labels": marks.get("labels") or template["metadata"]["labels"]}}
    chosen = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    return {**obj, "spec": {**spec, "selector": spec.get("selector") or chosen, "template": template}}
