"""Accessors of Pods, and their conditions (Kubernetes: pkg/api/v1/pod)."""

from __future__ import annotations

from kdns.controlplane.meta.kinds import Json

_FINISHED = frozenset({"Succeeded", "Failed"})


def status_of(pod: Json) -> Json:
    """Returns the status, never None."""
    status: Json = pod.get("status") or {}
    return status


def ready_condition(pod: Json) -> Json | None:
    """Returns the Pod's Ready condition."""
    for condition in status_of(pod).get("conditions") or []:
        if condition.get("type") == "Ready":
            found: Json = condition
            return found
    return None


def is_ready(pod: Json) -> bool:
    """Returns whether the Pod's Ready condition is True."""
    return (ready_condition(pod) or {}).get("status") == "True"


def with_condition(pod: Json, name: str, status: str, now: str, **why: str) -> Json:
    """Returns the Pod with this condition; the Pod itself if it has the condition."""
    rows = status_of(pod).get("conditions") or []
    found = next((row for row in rows if row.get("type") == name), None)
    said = {key: (found or {}).get(key) for key in ("status", "reason", "message") if (found or {}).get(key)}
    if found and said == {"status": status, **why}:
        return pod
    since = (found or {}).get("lastTransitionTime") if (found or {}).get("status") == status else now
    row = {"type": name, "status": status, "lastTransitionTime": since or now, **why}
    listed = [row if each is found else each for each in rows] if found else [*rows, row]
    return {**pod, "status": {**status_of(pod), "conditions": listed}}


def is_finished(pod: Json) -> bool:
    """Returns whether the Pod's phase is Succeeded or Failed."""
    return status_of(pod).get("phase") in _FINISHED


def node_of(pod: Json) -> str:
    """Returns spec.nodeName; "" for an unscheduled Pod."""
    return (pod.get("spec") or {}).get("nodeName") or ""


def pod_ips(pod: Json) -> list[str]:
    """Returns all addresses of the Pod, the primary one first."""
    status = status_of(pod)
    listed = [entry["ip"] for entry in status.get("podIPs") or [] if entry.get("ip")]
    return listed or ([status["podIP"]] if status.get("podIP") else [])


def grace_period_s(pod: Json, requested_s: int | None) -> int:
    """Returns seconds that a deleted Pod has to end; 0 for a Pod that is on no node or has finished."""
    if not node_of(pod) or is_finished(pod):
        return 0
    given_s = (pod.get("spec") or {}).get("terminationGracePeriodSeconds") if requested_s is None else requested_s
    return 1 if (given_s or 0) < 0 else int(given_s or 0)
