"""The Nodes that a Pod may be on: node selector, node affinity, taints and tolerations (kube-scheduler's filters).

Differs: resources, host ports, affinity between Pods and topology spread constraints are not evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kdns.cluster.selectors import Requirement
from kdns.controlplane.apimachinery.conditions import is_ready
from kdns.controlplane.apimachinery.kinds import Json

UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
NOT_READY: Final = "node.kubernetes.io/not-ready"
_OPERATORS: Final = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!", "Gt": ">", "Lt": "<"}
_SCHEDULING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})

_DAEMONS_TOLERATE: Final = {
    "not-ready": "NoExecute",
    "unreachable": "NoExecute",
    "disk-pressure": "NoSchedule",
    "memory-pressure": "NoSchedule",
    "pid-pressure": "NoSchedule",
    "unschedulable": "NoSchedule",
}
"""Taints below node.kubernetes.io/ that the Pods of all DaemonSets tolerate."""


def daemon_tolerations(spec: Json) -> list[Json]:
    """Returns the tolerations of a DaemonSet's Pod: those of the template, then its own."""
    given = list(spec.get("tolerations") or ())
    taints = _DAEMONS_TOLERATE | ({"network-unavailable": "NoSchedule"} if spec.get("hostNetwork") else {})
    added = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect} for key, effect in taints.items()
    ]
    return given + [toleration for toleration in added if toleration not in given]


def fits_node(spec: Json, node: Json) -> bool:
    """Returns whether the Node matches the Pod's node selector and required node affinity."""
    labels = node["metadata"].get("labels") or {}
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return affinity is None or any(_term(term, node) for term in affinity.get("nodeSelectorTerms") or ())


def untolerated(tolerations: list[Json], node: Json) -> set[str]:
    """Returns the effects of the Node's taints that are not tolerated."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return {taint.get("effect") or "" for taint in taints if not tolerates(tolerations, taint)}


def tolerates(tolerations: Iterable[Json], taint: Json) -> bool:
    return any(_tolerates(each, taint) for each in tolerations)


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def _term(term: Json, node: Json) -> bool:
    """Returns whether a Node matches a node selector term; an empty term matches none."""
    expressions, names = term.get("matchExpressions") or (), term.get("matchFields") or ()
    labels, meta = node["metadata"].get("labels") or {}, node["metadata"]
    met = [_requirement(row, labels) for row in expressions]
    met += [_requirement(row, {"metadata.name": meta["name"]}) for row in names]
    return bool(met) and all(met)


def _requirement(row: Json, labels: Json) -> bool:
    operator, values = _OPERATORS.get(row.get("operator") or ""), tuple(row.get("values") or ())
    if operator is None or (operator in {">", "<"} and not values):
        return False
    return Requirement(row.get("key") or "", operator, values).matches(labels)


def obstacle(pod: Json, node: Json) -> str:
    """Returns why the Pod cannot be scheduled to the Node, in kube-scheduler's words; "" if it can."""
    spec, tolerations = node.get("spec") or {}, (pod.get("spec") or {}).get("tolerations") or []
    if spec.get("unschedulable") and not tolerates(tolerations, {"key": UNSCHEDULABLE, "effect": "NoSchedule"}):
        return "node(s) were unschedulable"
    taints = [taint for taint in spec.get("taints") or () if taint.get("effect") in _SCHEDULING_EFFECTS]
    taints = [taint for taint in taints if taint.get("key") != UNSCHEDULABLE]
    if not is_ready(node):
        taints.append({"key": NOT_READY, "effect": "NoSchedule"})
    if not all(tolerates(tolerations, taint) for taint in taints):
        return "node(s) had untolerated taint(s)"
    return "" if fits_node(pod.get("spec") or {}, node) else "node(s) didn't match Pod's node affinity/selector"
