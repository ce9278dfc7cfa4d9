"""The report of a simulated Node's kubelet: labels, addresses, capacity and conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kdns.controlplane.apimachinery.annotations import ZONE
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.schema.schema import KUBERNETES_VERSION

HOSTNAME: Final = "kubernetes.io/hostname"
_LEGACY: Final = {
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": ZONE,
}
"""Old labels, and the label with the same value. kubelet and cloud providers set both; old manifests select by the
old.
"""

NODE_ANNOTATIONS: Final = {
    "node.alpha.kubernetes.io/ttl": "0",
    "volumes.kubernetes.io/controller-managed-attach-detach": "true",
}
_ENDPOINTS: Final = {"daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}
_HEALTHY = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    "Ready": ("True", "KubeletReady", "kubelet is posting ready status"),
}
_NO_HUGE_PAGES: Final = {"hugepages-1Gi": "0", "hugepages-2Mi": "0"}
_SYSTEM: Final = {
    **dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion", "kubeProxyVersion"), ""),
    "osImage": "simulated",
    "containerRuntimeVersion": "simulated://0",
    "kubeletVersion": f"v{KUBERNETES_VERSION}",
}
"""NodeSystemInfo without the platform; all of its fields are required."""


def node_labels(name: str, platform: tuple[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The labels of a Node after its kubelet's registration; its own win."""
    system, architecture = platform
    return with_legacy_labels({HOSTNAME: name, "kubernetes.io/os": system, "kubernetes.io/arch": architecture, **own})


def with_legacy_labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {**labels, **{old: labels[new] for old, new in _LEGACY.items() if new in labels}}


def node_status(
    current: Json, name: str, addresses: Sequence[str], pods_max: int, now: str, platform: tuple[str, str]
) -> Json:
    """The status of a Node that is Ready since `now` (RFC 3339).

    Values of `current`, its status so far, win. `addresses` and the name fill in missing types of addresses.
    """
    own = {key: value for key, value in current.items() if value}
    listed = own.get("addresses") or []
    rows = [*({"type": "InternalIP", "address": ip} for ip in addresses), {"type": "Hostname", "address": name}]
    known = {row.get("type") for row in listed if row.get("address")}
    capacity = {"cpu": "1000", "ephemeral-storage": "1Ti", "memory": "1Ti", "pods": str(pods_max), **_NO_HUGE_PAGES}
    filled = {
        "capacity": capacity,
        "allocatable": current.get("capacity") or capacity,
        **own,
        "addresses": [*listed, *(row for row in rows if row["type"] not in known)],
    }
    conditions = {row.get("type"): row for row in current.get("conditions") or ()}
    for kind, (state, reason, message) in _HEALTHY.items():
        row = {"type": kind, "status": state, "reason": reason, "message": message}
        conditions.setdefault(kind, {**row, "lastHeartbeatTime": now, "lastTransitionTime": now})
    machine = dict(zip(("operatingSystem", "architecture"), platform, strict=True))
    reported = {key: value for key, value in (current.get("nodeInfo") or {}).items() if value}
    node_info = {**_SYSTEM, **machine, **reported}
    return {**filled, **_ENDPOINTS, "conditions": [*conditions.values()], "nodeInfo": node_info}


def lacks_node_status(node: Json) -> bool:
    rows = (node.get("status") or {}).get("conditions") or ()
    return not ({row.get("type") for row in rows} >= _HEALTHY.keys() and internal_ips(node))


def internal_ips(node: Json) -> list[str]:
    rows = (node.get("status") or {}).get("addresses") or ()
    return [row["address"] for row in rows if row.get("type") == "InternalIP" and row.get("address")]
