"""The Pod status that simulated kubelets write: phase, addresses, conditions, container statuses.

Only missing values are set: the status of a manifest, and later writes of clients, stay.
"""

from __future__ import annotations

from hashlib import sha256

from kdns.controlplane.apimachinery.conditions import is_ready
from kdns.controlplane.apimachinery.human_duration import seconds_of
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.pod.pod import is_finished, node_of, pod_ips, status_of, with_condition
from kdns.controlplane.storage.object_meta import is_terminating

_KUBELETS = frozenset({"Ready", "ContainersReady", "Initialized"})
"""Conditions of a kubelet. A Pod that already has one of them keeps its phase."""


def is_waiting(pod: Json) -> bool:
    """The kubelet has work: the Pod is bound to a Node and is terminating or lacks status."""
    if not node_of(pod):
        return False
    if is_terminating(pod):
        return True
    return not is_finished(pod) and (lacks_status(pod) or _is_ready_outdated(pod) or is_done(pod))


def lacks_status(pod: Json) -> bool:
    """Addresses, the Ready condition or container statuses are missing."""
    conditions = status_of(pod).get("conditions") or []
    ready = any(row.get("type") == "Ready" for row in conditions)
    return not (pod_ips(pod) and ready and status_of(pod).get("containerStatuses"))


def is_done(pod: Json) -> bool:
    """The Pod belongs to a Job, so it succeeds at once."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(
        row.get("controller") and row.get("kind") == "Job" and str(row.get("apiVersion", "")).startswith("batch/")
        for row in owners
    )


def removal_s(pod: Json) -> float:
    """Unix time at which a terminating Pod is removed: after its longest preStop sleep, at most its grace period."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    granted_s = metadata.get("deletionGracePeriodSeconds") or 0
    sleeps = [
        (((container.get("lifecycle") or {}).get("preStop") or {}).get("sleep") or {}).get("seconds") or 0
        for container in spec.get("containers") or ()
    ]
    end_s = seconds_of(metadata["deletionTimestamp"]) or 0.0
    return end_s - granted_s + min(max(sleeps, default=0), granted_s)


def running_status(pod: Json, host_ips: list[str], addresses: list[str], now: str) -> Json:
    """The status of a Pod that runs since `now` (RFC 3339) with `addresses`; its own status wins."""
    own = {key: value for key, value in status_of(pod).items() if value}
    conditions = [row for row in own.get("conditions") or [] if not _is_unscheduled(row)]
    phase = own.get("phase") or "Pending"
    if phase == "Pending" and not any(row.get("type") in _KUBELETS for row in conditions):
        phase = "Running"
    own_ready = [row.get("status") == "True" for row in conditions if row.get("type") == "Ready"]
    ready = own_ready[0] if own_ready else phase == "Running"
    ips = pod_ips(pod) or (host_ips if (pod.get("spec") or {}).get("hostNetwork") else addresses)
    initial = own.get("initContainerStatuses") or _containers(pod, "initContainers", now, ready=True)
    status = {
        **own,
        "phase": phase,
        "hostIP": host_ips[0],
        "hostIPs": [{"ip": ip} for ip in host_ips],
        "podIP": ips[0],
        "podIPs": [{"ip": ip} for ip in ips],
        "startTime": own.get("startTime") or now,
        "conditions": _conditions(conditions, now, ready=ready),
        "containerStatuses": own.get("containerStatuses") or _containers(pod, "containers", now, ready=ready),
        **({"initContainerStatuses": initial} if initial else {}),
    }
    return gated_status({**pod, "status": status}, now)


def _is_unscheduled(row: Json) -> bool:
    return row.get("type") == "PodScheduled" and row.get("status") != "True"


def gated_status(pod: Json, now: str) -> Json:
    """Ready follows the Pod's readiness gates; unchanged without gates."""
    problem = _closed_gate(pod)
    if problem is None:
        return status_of(pod)
    reason = {"reason": "ReadinessGatesNotReady", "message": problem} if problem else {}
    return status_of(with_condition(pod, "Ready", "False" if problem else "True", now, **reason))


def _is_ready_outdated(pod: Json) -> bool:
    problem = _closed_gate(pod)
    return problem is not None and is_ready(pod) == bool(problem)


def _closed_gate(pod: Json) -> str | None:
    """Why readiness gates keep a Pod from being Ready, or "" if they do not.

    None for a Pod without gates or ready containers.
    """
    gates = [gate.get("conditionType", "") for gate in (pod.get("spec") or {}).get("readinessGates") or ()]
    by_type = {row.get("type"): row.get("status") for row in status_of(pod).get("conditions") or ()}
    if not gates or by_type.get("ContainersReady") != "True":
        return None
    closed = [f'"{gate}" is {by_type.get(gate, "missing")}' for gate in gates if by_type.get(gate) != "True"]
    return f"closed readiness gates: {', '.join(closed)}" if closed else ""


def succeeded_status(pod: Json, now: str) -> Json:
    status = status_of(pod)
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": status.get("startTime") or now, "finishedAt": now}
    for name in ("Ready", "ContainersReady"):
        pod = with_condition(pod, name, "False", now, reason="PodCompleted")
    pod = with_condition(pod, "PodReadyToStartContainers", "False", now)
    rows = [
        {**row, "ready": False, "started": False, "state": {"terminated": ended}}
        for row in status.get("containerStatuses") or ()
    ]
    return {**status_of(pod), "phase": "Succeeded", "containerStatuses": rows}


def _conditions(own: list[Json], now: str, *, ready: bool) -> list[Json]:
    """Own conditions win; missing ones are those of a kubelet, in its order."""
    by_type = {row.get("type"): row for row in own}
    defaults = {
        "PodReadyToStartContainers": True,
        "Initialized": True,
        "Ready": ready,
        "ContainersReady": ready,
        "PodScheduled": True,
    }
    rows = [
        by_type.pop(name, {"type": name, "status": "True" if holds else "False", "lastTransitionTime": now})
        for name, holds in defaults.items()
    ]
    return rows + list(by_type.values())


def _containers(pod: Json, field: str, now: str, *, ready: bool) -> list[Json]:
    running = {"running": {"startedAt": now}}
    finished = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}
    uid, rows = pod["metadata"].get("uid"), []
    for container in (pod.get("spec") or {}).get(field) or ():
        ended = field == "initContainers" and container.get("restartPolicy") != "Always"
        name, resources = container["name"], container.get("resources") or {}
        allocated = {"allocatedResources": resources["requests"]} if resources.get("requests") else {}
        row = {
            "name": name,
            "image": container.get("image") or "",
            "imageID": "",
            "containerID": f"simulated://{sha256(f'{uid}/{name}'.encode()).hexdigest()}",
            "resources": resources,
            "ready": ready,
            "restartCount": 0,
            "started": not ended,
            "state": finished if ended else running,
            **allocated,
        }
        rows.append(row)
    return rows
