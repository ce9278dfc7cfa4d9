"""What the kubelet of a simulated Node reports: labels, addresses, capacity and conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kdns.controlplane.meta.kinds import Json

HOSTNAME: Final = "kubernetes.io/hostname"
NODE_LABELS: Final = {HOSTNAME: "", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
"""The labels that a kubelet sets; the hostname is the name of the Node."""

_HEALTHY = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory"),
    "DiskPressure": ("False", "KubeletHasSufficientDisk"),
    "PIDPressure": ("False", "KubeletHasSufficientPID"),
    "Ready": ("True", "KubeletReady"),
}
_SYSTEM: Final = {
    **dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "kubeProxyVersion"), ""),
    "containerRuntimeVersion": "none",
    "kubeletVersion": "simulated",
    "operatingSystem": "linux",
    "architecture": "amd64",
}
"""NodeSystemInfo, all of whose fields are required."""


def node_status(given: Json, name: str, addresses: Sequence[str], pods_max: int, now: str) -> Json:
    """The status of a Node that is Ready since `now` (RFC 3339); values of `given`, its own status, take precedence."""
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
    own = {key: value for key, value in given.items() if value}
    return {**status, **own, "nodeInfo": {**_SYSTEM, **(given.get("nodeInfo") or {})}}


def lacks_node_status(node: Json) -> bool:
    """Whether the status lacks a Ready condition or an internal address."""
    status = node.get("status") or {}
    return not (any(row.get("type") == "Ready" for row in status.get("conditions") or ()) and internal_ips(node))


def internal_ips(node: Json) -> list[str]:
    """The addresses of type InternalIP."""
    rows = (node.get("status") or {}).get("addresses") or ()
    return [row["address"] for row in rows if row.get("type") == "InternalIP" and row.get("address")]


def is_ready(node: Json) -> bool:
    """Whether the Node's Ready condition is True."""
    rows = (node.get("status") or {}).get("conditions") or ()
    return any(row.get("type") == "Ready" and row.get("status") == "True" for row in rows)
