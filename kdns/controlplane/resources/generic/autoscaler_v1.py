"""HorizontalPodAutoscalers of autoscaling/v1, which has the average use of CPU time and no other metric.

Differs: fields that autoscaling/v1 lacks stay in the stored object, and are not shown as annotations.
"""

from __future__ import annotations

from typing import Any, Final

from kdns.controlplane.meta.inert import AUTOSCALER, AUTOSCALER_V1
from kdns.controlplane.meta.kinds import Json, Kind
from kdns.controlplane.resources.conversion import VersionConversion

_WANTED: Final = "targetCPUUtilizationPercentage"
_USED: Final = "currentCPUUtilizationPercentage"
_METRICS: Final = {"spec": ("metrics", "target", _WANTED), "status": ("currentMetrics", "current", _USED)}
"""Part of an object → list of metrics, value of a metric, and the field of autoscaling/v1 for it."""
_UNKNOWN: Final = {"spec": ("metrics", "behavior"), "status": ("currentMetrics", "conditions")}


def to_autoscaler_v1(obj: Json) -> Json:
    """Returns a stored autoscaler as autoscaling/v1."""
    shown = {**obj, "apiVersion": AUTOSCALER_V1.api_version}
    for part, (metrics, value, field) in _METRICS.items():
        if isinstance(stored := obj.get(part), dict):
            shown[part] = {name: each for name, each in stored.items() if name not in _UNKNOWN[part]}
            used = [percent for each in stored.get(metrics) or () if (percent := _cpu(each, value)) is not None]
            shown[part] |= {field: used[0]} if used else {}
    return shown


def to_autoscaler(obj: Json) -> Json:
    """Returns the stored form of an autoscaling/v1 autoscaler."""
    return updated({}, obj)


def configuration(kind: Kind, config: Json) -> Json:
    """Returns the configuration of the stored autoscaler from an applied one."""
    return {**to_autoscaler(config), "apiVersion": kind.api_version}


def updated(old: Json, sent: Json) -> Json:
    """Returns the autoscaler to store in the place of `old` ({} for a new one)."""
    new = {**sent, "apiVersion": AUTOSCALER.api_version}
    for part, (metrics, value, field) in _METRICS.items():
        if isinstance(shown := sent.get(part), dict):
            kept = {name: each for name, each in (old.get(part) or {}).items() if name in _UNKNOWN[part]}
            listed = [each for each in kept.pop(metrics, None) or () if _cpu(each, value) is None]
            percent = shown.get(field)
            listed += [] if percent is None else [cpu_metric(value, percent)]
            new[part] = {name: each for name, each in shown.items() if name != field} | kept
            new[part] |= {metrics: listed} if listed else {}
    return new


def _cpu(metric: Json, value: str) -> Any:
    """Returns the average use of CPU time in percent; None for another metric."""
    resource = metric.get("resource") or {}
    if metric.get("type") != "Resource" or resource.get("name") != "cpu":
        return None
    return (resource.get(value) or {}).get("averageUtilization")


def cpu_metric(value: str, percent: Any) -> Json:
    """Returns the metric of the average use of CPU time, with its `target` or `current` value in percent."""
    kind = {"type": "Utilization"} if value == "target" else {}
    return {"type": "Resource", "resource": {"name": "cpu", value: {**kind, "averageUtilization": percent}}}


CONVERSION: Final = VersionConversion(AUTOSCALER_V1, to_autoscaler_v1, updated, configuration, to_autoscaler)
"""The conversion from and to the stored kind."""
