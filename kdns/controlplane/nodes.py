"""Nodes of the simulation: what their kubelet would report, and which Pods they take.

Differs: resources, host ports, affinity between Pods and topology spread constraints are not looked at; what a Pod
does not exclude is good enough. Pods are spread evenly over the nodes that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kdns.controlplane.kinds import Json
from kdns.controlplane.placement import fits_node, tolerates

HOSTNAME: Final = "kubernetes.io/hostname"
NODE_LABELS: Final = {HOSTNAME: "", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
"""What a kubelet labels its node with; the host name is the node's."""

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NOT_READY = "node.kubernetes.io/not-ready"
_HEALTHY = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory"),
    "DiskPressure": ("False", "KubeletHasSufficientDisk"),
    "PIDPressure": ("False", "KubeletHasSufficientPID"),
    "Ready": ("True", "KubeletReady"),
}
_KEEPING_AWAY = frozenset({"NoSchedule", "NoExecute"})
_SYSTEM: Final = {
    **dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "kubeProxyVersion"), ""),
    "containerRuntimeVersion": "none",
    "kubeletVersion": "simulated",
    "operatingSystem": "linux",
    "architecture": "amd64",
}
"""All of it is required: clients do not read a node that lacks any."""


def node_status(given: Json, name: str, addresses: Sequence[str], pods_max: int, now: str) -> Json:
    """The status of a node that is well since `now` (RFC 3339); what its own status says comes first."""
    conditions = [
        {"type": kind, "status": status, "reason": why, "lastHeartbeatTime": now, "lastTransitionTime": now}
        for kind, (status, why) in _HEALTHY.items()
    ]
    rows = [{"type": "InternalIP", "address": address} for address in addresses]
    capacity = {"cpu": "1000", "memory": "1Ti", "pods": str(pods_max)}
    status = {
        "capacity": capacity,
        "allocatable": given.get("capacity") or capacity,
        "conditions": conditions,
        "addresses": [*rows, {"type": "Hostname", "address": name}],
    }
    said = {key: value for key, value in given.items() if value}
    return {**status, **said, "nodeInfo": {**_SYSTEM, **(given.get("nodeInfo") or {})}}


def lacks_node_status(node: Json) -> bool:
    """Whether nobody has said yet how the node is, or where."""
    status = node.get("status") or {}
    return not (any(row.get("type") == "Ready" for row in status.get("conditions") or ()) and internal_ips(node))


def internal_ips(node: Json) -> list[str]:
    """The node's own addresses."""
    rows = (node.get("status") or {}).get("addresses") or ()
    return [row["address"] for row in rows if row.get("type") == "InternalIP" and row.get("address")]


def is_ready(node: Json) -> bool:
    """Whether the node's Ready condition is True."""
    rows = (node.get("status") or {}).get("conditions") or ()
    return any(row.get("type") == "Ready" and row.get("status") == "True" for row in rows)


def obstacle(pod: Json, node: Json) -> str:
    """Why the scheduler may not put the Pod on the node, in its words; "" if it may."""
    spec, tolerations = node.get("spec") or {}, (pod.get("spec") or {}).get("tolerations") or []
    if spec.get("unschedulable") and not tolerates(tolerations, {"key": UNSCHEDULABLE, "effect": "NoSchedule"}):
        return "node(s) were unschedulable"
    taints = [taint for taint in spec.get("taints") or () if taint.get("effect") in _KEEPING_AWAY]
    taints = [taint for taint in taints if taint.get("key") != UNSCHEDULABLE]
    if not is_ready(node):
        taints.append({"key": NOT_READY, "effect": "NoSchedule"})
    if not all(tolerates(tolerations, taint) for taint in taints):
        return "node(s) had untolerated taint(s)"
    return "" if fits_node(pod.get("spec") or {}, node) else "node(s) didn't match Pod's node affinity/selector"


def evicting_taints(node: Json) -> list[Json]:
    """The taints that Pods have to leave for."""
    return [taint for taint in (node.get("spec") or {}).get("taints") or () if taint.get("effect") == "NoExecute"]


def stays_s(pod: Json, node: Json, since_s: float, now_s: float) -> float | None:
    """Seconds that the node's taints, there since `since_s`, leave the Pod: 0 if it has to go, None for any time."""
    tolerations, left = (pod.get("spec") or {}).get("tolerations") or [], list[float]()
    for taint in evicting_taints(node):
        fitting = [each for each in tolerations if tolerates([each], taint)]
        if not fitting:
            return 0.0
        times = [each["tolerationSeconds"] for each in fitting if each.get("tolerationSeconds") is not None]
        left += [max(0.0, since_s + min(times) - now_s)] if times else []
    return min(left, default=None)
