"""HorizontalPodAutoscalers of autoscaling/v1, whose one metric is the average use of CPU time.

Nothing acts on autoscalers, so the status is converted no further than both versions agree.
Differs: fields that autoscaling/v1 lacks stay in the stored object, and are not shown as annotations.
"""

from __future__ import annotations

from typing import Any, Final

from kdns.controlplane.apimachinery.inert import AUTOSCALER, AUTOSCALER_V1
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.kinds.conversion import VersionConversion

_PERCENT: Final = "targetCPUUtilizationPercentage"


def to_autoscaler_v1(obj: Json) -> Json:
    """Returns a stored autoscaler as autoscaling/v1."""
    spec = obj.get("spec") or {}
    percent = next(filter(None, map(_cpu_percent, spec.get("metrics") or ())), None)
    shown = {name: value for name, value in spec.items() if name not in {"metrics", "behavior"}}
    return {**obj, "apiVersion": AUTOSCALER_V1.api_version, "spec": shown | ({_PERCENT: percent} if percent else {})}


def to_autoscaler(obj: Json) -> Json:
    """Returns the stored form of an autoscaling/v1 autoscaler."""
    return updated({}, obj)


def configuration(kind: Kind, config: Json) -> Json:
    return {**to_autoscaler(config), "apiVersion": kind.api_version}


def updated(old: Json, sent: Json) -> Json:
    """Returns the autoscaler to store in the place of `old` ({} for a new one)."""
    stored, spec = old.get("spec") or {}, dict(sent.get("spec") or {})
    metrics = [metric for metric in stored.get("metrics") or () if _cpu_percent(metric) is None]
    if (percent := spec.pop(_PERCENT, None)) is not None:
        target = {"type": "Utilization", "averageUtilization": percent}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    unknown = {"behavior": stored.get("behavior"), "metrics": metrics}
    spec |= {name: value for name, value in unknown.items() if value}
    return {**sent, "apiVersion": AUTOSCALER.api_version, "spec": spec}


def _cpu_percent(metric: Json) -> Any:
    """Returns the wanted use of CPU time in percent; None for another metric."""
    resource = metric.get("resource") or {}
    if metric.get("type") != "Resource" or resource.get("name") != "cpu":
        return None
    return (resource.get("target") or {}).get("averageUtilization")


CONVERSION: Final = VersionConversion(AUTOSCALER_V1, to_autoscaler_v1, updated, configuration, to_autoscaler)
"""The conversion from and to the stored kind."""
