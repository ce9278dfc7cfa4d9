"""Nodes of the simulation: what their kubelet would report, and which Pods they take.

Differs: resources, host ports, affinity between Pods and topology spread constraints are not looked at; what a Pod
does not exclude is good enough. Pods are spread evenly over the nodes that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kdns.controlplane.kinds import Json

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NOT_READY = "node.kubernetes.io/not-ready"
_HEALTHY = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory"),
    "DiskPressure": ("False", "KubeletHasSufficientDisk"),
    "PIDPressure": ("False", "KubeletHasSufficientPID"),
    "Ready": ("True", "KubeletReady"),
}
_KEEPING_AWAY = frozenset({"NoSchedule", "NoExecute"})


def node_status(given: Json, name: str, addresses: Sequence[str], pods_max: int, now: str) -> Json:
    """The status of a node that is well since `now` (RFC 3339); what its own status says comes first."""
    conditions = [
        {"type": kind, "status": status, "reason": why, "lastHeartbeatTime": now, "lastTransitionTime": now}
        for kind, (status, why) in _HEALTHY.items()
    ]
    rows = [{"type": "InternalIP", "address": address} for address in addresses]
    capacity = {"cpu": "1000", "memory": "1Ti", "pods": str(pods_max)}
    system = {"operatingSystem": "linux", "kubeletVersion": "simulated", "containerRuntimeVersion": "none"}
    status = {
        "capacity": capacity,
        "allocatable": given.get("capacity") or capacity,
        "conditions": conditions,
        "addresses": [*rows, {"type": "Hostname", "address": name}],
        "nodeInfo": system,
    }
    return {**status, **{key: value for key, value in given.items() if value}}


def lacks_node_status(node: Json) -> bool:
    """Whether nobody has said yet how the node is, or where."""
    status = node.get("status") or {}
    return not (any(row.get("type") == "Ready" for row in status.get("conditions") or ()) and internal_ips(node))


def internal_ips(node: Json) -> list[str]:
    """The node's own addresses."""
    rows = (node.get("status") or {}).get("addresses") or ()
    return [row["address"] for row in rows if row.get("type") == "InternalIP"]


def is_ready(node: Json) -> bool:
    """Whether the node's Ready condition is True."""
    rows = (node.get("status") or {}).get("conditions") or ()
    return any(row.get("type") == "Ready" and row.get("status") == "True" for row in rows)


def obstacle(pod: Json, node: Json) -> str:
    """Why the scheduler may not put the Pod on the node, in its words; "" if it may."""
    spec, tolerations = node.get("spec") or {}, (pod.get("spec") or {}).get("tolerations") or []
    if spec.get("unschedulable") and not _tolerated({"key": UNSCHEDULABLE, "effect": "NoSchedule"}, tolerations):
        return "node(s) were unschedulable"
    taints = [taint for taint in spec.get("taints") or () if taint.get("effect") in _KEEPING_AWAY]
    taints = [taint for taint in taints if taint.get("key") != UNSCHEDULABLE]
    if not is_ready(node):
        taints.append({"key": NOT_READY, "effect": "NoSchedule"})
    if not all(_tolerated(taint, tolerations) for taint in taints):
        return "node(s) had untolerated taint(s)"
    return "" if _wanted(pod, node) else "node(s) didn't match Pod's node affinity/selector"


def evicting_taints(node: Json) -> list[Json]:
    """The taints that Pods have to leave for."""
    return [taint for taint in (node.get("spec") or {}).get("taints") or () if taint.get("effect") == "NoExecute"]


def stays_s(pod: Json, node: Json, since_s: float, now_s: float) -> float | None:
    """Seconds that the node's taints, there since `since_s`, leave the Pod: 0 if it has to go, None for any time."""
    tolerations, left = (pod.get("spec") or {}).get("tolerations") or [], list[float]()
    for taint in evicting_taints(node):
        fitting = [each for each in tolerations if _tolerates(each, taint)]
        if not fitting:
            return 0.0
        times = [each["tolerationSeconds"] for each in fitting if each.get("tolerationSeconds") is not None]
        left += [max(0.0, since_s + min(times) - now_s)] if times else []
    return min(left, default=None)


def _tolerated(taint: Json, tolerations: Sequence[Json]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if (toleration.get("operator") or "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def _wanted(pod: Json, node: Json) -> bool:
    """nodeSelector, and the node affinity that is required."""
    spec, labels = pod.get("spec") or {}, node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_matches(term, node, labels) for term in required.get("nodeSelectorTerms") or ())


def _matches(term: Json, node: Json, labels: Json) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    own = {"metadata.name": node["metadata"]["name"]}
    return bool(expressions or fields) and all(
        _TESTS.get(row.get("operator", ""), _never)(found.get(row["key"]), row.get("values") or [])
        for rows, found in ((expressions, labels), (fields, own))
        for row in rows
    )


def _never(_value: str | None, _values: Sequence[str]) -> bool:
    return False


def _compared(value: str | None, values: Sequence[str], sign: int) -> bool:
    try:
        return value is not None and sign * (int(value) - int(values[0])) > 0
    except (ValueError, IndexError):
        return False


_TESTS: dict[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compared(value, values, 1),
    "Lt": lambda value, values: _compared(value, values, -1),
}
