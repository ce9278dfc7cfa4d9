"""The rules of Jobs: counts, the selector and its template, and what is immutable.

Differs: fields without effect here, such as those of indexes and failure policies, are checked by their schema only.
"""

from __future__ import annotations

from typing import Final

from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.field_errors import immutable, invalid_value, required
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.apps.validation import MISMATCH, negative_counts, validate_metadata, validate_template
from kdns.controlplane.kinds.label_selectors import selector_of, validate_label_selector
from kdns.controlplane.kinds.validation import IMMUTABLE

CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
_COUNTS: Final = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
_FIXED: Final = ("completions", "selector", "template", "completionMode", "managedBy")


def validate_job(obj: Json, old: Json | None = None) -> list[Cause]:
    """Returns the violated rules; the template of a suspended Job may change until it has started."""
    spec, template = obj.get("spec") or {}, (obj.get("spec") or {}).get("template") or {}
    causes = [*validate_metadata(obj, old), *negative_counts(spec, _COUNTS), *_selector(obj, spec, is_new=old is None)]
    pod = template.get("spec") or {}
    causes += validate_template(template, pod)
    if pod.get("restartPolicy") in {None, "", "Always"}:
        causes.append(required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
    if old:
        stored = old.get("spec") or {}
        may_change = {"template"} if stored.get("suspend") and not (old.get("status") or {}).get("startTime") else set()
        causes += [
            immutable(f"spec.{field}", spec.get(field), IMMUTABLE)
            for field in _FIXED
            if field not in may_change and spec.get(field) != stored.get(field)
        ]
    return causes


def _selector(obj: Json, spec: Json, *, is_new: bool) -> list[Cause]:
    """Checks that the selector is the generated one, the Job's uid, unless manualSelector is set."""
    selector = spec.get("selector")
    if selector is None:
        return [required("spec.selector")]
    wanted = {"matchLabels": {CONTROLLER_UID: obj["metadata"].get("uid", "")}}
    if is_new and not spec.get("manualSelector") and selector != wanted:
        return [invalid_value("spec.selector", selector, "`selector` not auto-generated")]
    if causes := validate_label_selector("spec.selector", selector):
        return causes
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    fits = selector_of(selector).matches(labels)
    return [] if fits else [invalid_value("spec.template.metadata.labels", labels, MISMATCH)]
