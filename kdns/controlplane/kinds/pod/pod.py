"""Accessors of Pods, and their conditions (Kubernetes: pkg/api/v1/pod)."""

from __future__ import annotations

from kdns.controlplane.apimachinery.conditions import condition_of, set_condition
from kdns.controlplane.apimachinery.kinds import Json

_FINISHED = frozenset({"Succeeded", "Failed"})


def status_of(pod: Json) -> Json:
    status: Json = pod.get("status") or {}
    return status


def with_condition(pod: Json, name: str, status: str, now: str, **why: str) -> Json:
    """Returns `pod` itself if it already has the condition."""
    old = condition_of(pod, name) or {}
    if {key: old[key] for key in ("status", "reason", "message") if old.get(key)} == {"status": status, **why}:
        return pod
    rows = set_condition(status_of(pod).get("conditions") or [], {"type": name, "status": status, **why}, now)
    return {**pod, "status": {**status_of(pod), "conditions": rows}}


def is_finished(pod: Json) -> bool:
    return status_of(pod).get("phase") in _FINISHED


def node_of(pod: Json) -> str:
    return (pod.get("spec") or {}).get("nodeName") or ""


def pod_ips(pod: Json) -> list[str]:
    """The primary address is first."""
    status = status_of(pod)
    listed = [entry["ip"] for entry in status.get("podIPs") or [] if entry.get("ip")]
    return listed or ([status["podIP"]] if status.get("podIP") else [])


def grace_period_s(pod: Json, requested_s: int | None) -> int:
    """0 for a Pod that is on no node or has finished."""
    if not node_of(pod) or is_finished(pod):
        return 0
    period_s = (pod.get("spec") or {}).get("terminationGracePeriodSeconds") if requested_s is None else requested_s
    return 1 if (period_s or 0) < 0 else int(period_s or 0)
