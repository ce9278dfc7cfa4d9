"""The rules of Jobs (kube-apiserver: pkg/apis/batch/validation)."""

from __future__ import annotations

from kdns.cluster import selectors
from kdns.controlplane.apimachinery import formats
from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.field_errors import immutable, invalid_value, required, unsupported
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.label_selectors import selector_text
from kdns.controlplane.kinds.pod.validation import validate_pod_spec
from kdns.controlplane.kinds.validation import IMMUTABLE, validate_labels, validate_meta, validate_meta_update

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_MODES = ("NonIndexed", "Indexed")
_INDEXED_ONLY = ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy")
_ONCE = ("OnFailure", "Never")
_MOST_INDEXES = 100_000
_NOT_NEGATIVE = "must be greater than or equal to 0"


def validate_job(obj: Json, old: Json | None = None) -> list[Cause]:
    """Returns all violated rules of a Job; template, selector and completion mode are immutable."""
    causes = validate_meta_update(old, obj) if old else []
    causes += validate_meta(obj, formats.dns_subdomain)
    spec = obj.get("spec") or {}
    if not old:
        causes += _own_selector(obj, spec)
    causes += validate_job_spec("spec", spec)
    causes += _selected(spec)
    return causes + _changes(spec, old) if old else causes


def _own_selector(obj: Json, spec: Json) -> list[Cause]:
    """Checks that the selector is the generated one, the Job's uid, unless manualSelector is set."""
    if spec.get("manualSelector"):
        return []
    wanted = {"matchLabels": {CONTROLLER_UID: obj["metadata"].get("uid", "")}}
    if spec.get("selector") == wanted:
        return []
    return [invalid_value("spec.selector", spec.get("selector"), "`selector` not auto-generated")]


def _selected(spec: Json) -> list[Cause]:
    if spec.get("selector") is None:
        return [required("spec.selector")]
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    try:
        fits = selectors.parse(selector_text(spec["selector"])).matches(labels)
    except selectors.SelectorError as error:
        return [invalid_value("spec.selector", spec["selector"], str(error))]
    detail = "`selector` does not match template `labels`"
    return [] if fits else [invalid_value("spec.template.metadata.labels", labels, detail)]


def validate_job_spec(path: str, spec: Json) -> list[Cause]:
    causes = [
        invalid_value(f"{path}.{field}", spec[field], _NOT_NEGATIVE) for field in _COUNTS if (spec.get(field) or 0) < 0
    ]
    indexed = spec.get("completionMode") == "Indexed"
    if spec.get("completionMode") not in (None, *_MODES):
        causes.append(unsupported(f"{path}.completionMode", spec["completionMode"], _MODES))
    if indexed and spec.get("completions") is None:
        causes.append(required(f"{path}.completions", "when completion mode is Indexed"))
    if indexed and (spec.get("parallelism") or 0) > _MOST_INDEXES:
        detail = f"must be less than or equal to {_MOST_INDEXES} when completion mode is Indexed"
        causes.append(invalid_value(f"{path}.parallelism", spec["parallelism"], detail))
    odd = [field for field in _INDEXED_ONLY if not indexed and spec.get(field) is not None]
    causes += [invalid_value(f"{path}.{field}", spec[field], "requires indexed completion mode") for field in odd]
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        causes.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    return causes + _template(path, spec)


def _template(path: str, spec: Json) -> list[Cause]:
    template = spec.get("template") or {}
    pod_path, pod = f"{path}.template.spec", template.get("spec") or {}
    causes = validate_labels(f"{path}.template.labels", (template.get("metadata") or {}).get("labels"))
    causes += validate_pod_spec(pod_path, pod)
    restarts = pod.get("restartPolicy")
    if restarts in {None, "", "Always"}:
        causes.append(required(f"{pod_path}.restartPolicy", 'valid values: "OnFailure", "Never"'))
    elif restarts not in _ONCE:
        causes.append(unsupported(f"{pod_path}.restartPolicy", restarts, _ONCE))
    elif spec.get("podFailurePolicy") and restarts != "Never":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        causes.append(invalid_value(f"{pod_path}.restartPolicy", restarts, detail))
    return causes


def _changes(spec: Json, old: Json) -> list[Cause]:
    stored = old.get("spec") or {}
    fixed = ["completions", "selector", "template", "podFailurePolicy", "successPolicy", "completionMode", "managedBy"]
    if stored.get("suspend") and not (old.get("status") or {}).get("startTime"):
        fixed.remove("template")
    if spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism"):
        fixed.remove("completions")
    changed = [field for field in fixed if spec.get(field) != stored.get(field)]
    return [immutable(f"spec.{field}", spec.get(field), IMMUTABLE) for field in changed]
