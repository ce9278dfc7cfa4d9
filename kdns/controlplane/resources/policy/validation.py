"""The rules of PodDisruptionBudgets (kube-apiserver: pkg/apis/policy/validation)."""

from __future__ import annotations

from kdns.controlplane.meta import formats
from kdns.controlplane.meta.errors import Cause
from kdns.controlplane.meta.field_errors import invalid_value
from kdns.controlplane.meta.kinds import Json
from kdns.controlplane.resources.apps.validation import validate_int_or_percent
from kdns.controlplane.resources.label_selectors import validate_label_selector
from kdns.controlplane.resources.validation import validate_meta, validate_meta_update


def validate_disruption_budget(obj: Json, old: Json | None = None) -> list[Cause]:
    """Checks for at most one of minAvailable and maxUnavailable, each a number or a percentage."""
    causes = validate_meta_update(old, obj) if old else []
    causes += validate_meta(obj, formats.dns_subdomain)
    spec = obj.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        causes.append(invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    for field in ("minAvailable", "maxUnavailable"):
        causes += validate_int_or_percent(f"spec.{field}", spec.get(field))
    return causes + validate_label_selector("spec.selector", spec.get("selector") or {})
