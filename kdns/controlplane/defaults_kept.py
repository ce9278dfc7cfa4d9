"""The defaults of the kinds that applications bring along: Secrets, storage, Jobs, Ingresses (their defaults.go)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable

from kdns.controlplane.defaults_pod import default_template
from kdns.controlplane.kinds import Json

_NO_LIMIT = 2**31 - 1
_OLD_CLASS = "kubernetes.io/ingress.class"
_IS_DEFAULT = "ingressclass.kubernetes.io/is-default-class"


def default_secret(obj: Json) -> Json:
    """A Secret is Opaque; stringData is written into data, whose line breaks go."""
    text = {key: b64encode((value or "").encode()).decode() for key, value in (obj.get("stringData") or {}).items()}
    given = {key: "".join((value or "").split()) for key, value in (obj.get("data") or {}).items()}
    rest = {key: value for key, value in obj.items() if key not in {"stringData", "data", "type"}}
    data = {**given, **text}
    return {**rest, **({"data": data} if data else {}), "type": obj.get("type") or "Opaque"}


def default_claim(obj: Json) -> Json:
    """A claim is for a file system."""
    return {**obj, "spec": {"volumeMode": "Filesystem", **_said(obj.get("spec"))}}


def default_volume(obj: Json) -> Json:
    """A volume has a file system and is retained."""
    spec = {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem", **_said(obj.get("spec"))}
    if spec.get("hostPath"):
        spec["hostPath"] = {"type": "", **spec["hostPath"]}
    return {**obj, "spec": spec}


def default_job(obj: Json) -> Json:
    """One Pod that must succeed, six failures, and the labels of its Pods."""
    spec = _said(obj.get("spec"))
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


def default_cron_job(obj: Json) -> Json:
    """Runs may overlap; three Jobs that succeeded are kept, and one that failed."""
    spec = {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
        **_said(obj.get("spec")),
    }
    job = spec.get("jobTemplate") or {}
    job_spec = job.get("spec") or {}
    filled = {**job_spec, "template": default_template(job_spec.get("template") or {})}
    return {**obj, "spec": {**spec, "jobTemplate": {**job, "spec": filled}}}


def default_ingress_class(obj: Json) -> Json:
    """Parameters are an object of the cluster."""
    spec = _said(obj.get("spec"))
    if spec.get("parameters"):
        spec["parameters"] = {"scope": "Cluster", **spec["parameters"]}
    return {**obj, "spec": spec}


def with_class(ingress: Json, classes: Iterable[Json]) -> Json:
    """A new Ingress of the default class, the newest if there are several, unless it names a class in either way."""
    spec = ingress.get("spec") or {}
    if spec.get("ingressClassName") is not None or _OLD_CLASS in (ingress["metadata"].get("annotations") or {}):
        return ingress
    marks = [each["metadata"] for each in classes]
    marks = [each for each in marks if (each.get("annotations") or {}).get(_IS_DEFAULT) == "true"]
    if not marks:
        return ingress
    newest = max(each["creationTimestamp"] for each in marks)
    name = min(each["name"] for each in marks if each["creationTimestamp"] == newest)
    return {**ingress, "spec": {**spec, "ingressClassName": name}}


def with_job_selector(obj: Json) -> Json:
    """A new Job, its Pods labelled with its uid and name, unless the selector is the author's (manualSelector)."""
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
    chosen = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    return {**obj, "spec": {**spec, "selector": spec.get("selector") or chosen, "template": template}}


def _said(spec: Json | None) -> Json:
    return {key: value for key, value in (spec or {}).items() if value is not None}
