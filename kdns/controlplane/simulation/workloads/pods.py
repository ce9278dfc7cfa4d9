"""Pods of workloads: when they are available, how they are created from a template, and counts."""

from __future__ import annotations

from kdns.controlplane.apimachinery.conditions import condition_of
from kdns.controlplane.apimachinery.human_duration import seconds_of
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.gc.owners import owner_reference
from kdns.controlplane.kinds.pod.pod import is_finished
from kdns.controlplane.storage.object_meta import is_terminating

_PERCENT = 100


def is_active(pod: Json) -> bool:
    """A replica: the Pod has not finished and is not terminating."""
    return not is_terminating(pod) and not is_finished(pod)


def available_in_s(pod: Json, min_ready_s: int, now_s: float) -> float | None:
    """Seconds until a Ready Pod is available, 0 if it is; None for a Pod that is terminating or not Ready."""
    condition = condition_of(pod, "Ready") or {}
    if condition.get("status") != "True" or is_terminating(pod):
        return None
    if not min_ready_s:
        return 0.0
    return max(0.0, (seconds_of(condition.get("lastTransitionTime")) or 0.0) + min_ready_s - now_s)


def new_pod(kind: Kind, owner: Json, template: Json) -> Json:
    """A Pod of the template, controlled by `owner`; the API names it."""
    source, meta = template.get("metadata") or {}, owner["metadata"]
    inherited = {field: source[field] for field in ("labels", "annotations", "finalizers") if source.get(field)}
    metadata = {
        "generateName": f"{meta['name']}-",
        "namespace": meta.get("namespace", ""),
        **inherited,
        "ownerReferences": [owner_reference(kind, owner)],
    }
    return {"metadata": metadata, "spec": template.get("spec") or {}}


def with_labels(pod: Json, labels: Json) -> Json:
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}}


def count(fields: Json | None, name: str) -> int:
    """0 if the field is absent."""
    return int((fields or {}).get(name) or 0)


def desired_replicas(obj: Json) -> int:
    return count(obj.get("spec"), "replicas")


def nonzero(**counts: int) -> Json:
    return {name: number for name, number in counts.items() if number}


def int_or_percent(value: int | str | None, total: int, *, up: bool) -> int:
    """A number, or a percentage of `total` rounded up or down; 0 for any other value."""
    if isinstance(value, int):
        return value
    digits = str(value or "").removesuffix("%")
    share = int(digits) * total if digits.isdecimal() else 0
    return -(-share // _PERCENT) if up else share // _PERCENT
