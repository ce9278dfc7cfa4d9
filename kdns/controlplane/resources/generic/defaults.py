"""Defaults of generic kinds that clients read back."""

from __future__ import annotations

from typing import Final

from kdns.controlplane.meta.kinds import Json
from kdns.controlplane.resources.generic.autoscaler_v1 import cpu_metric

_CPU_PERCENT: Final = 80


def default_autoscaler(obj: Json) -> Json:
    """At least one replica, and without metrics 80% of the CPU time that Pods request."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return obj
    spec = {"minReplicas": 1, **{name: value for name, value in spec.items() if value is not None}}
    return {**obj, "spec": spec | ({} if spec.get("metrics") else {"metrics": [cpu_metric("target", _CPU_PERCENT)]})}
