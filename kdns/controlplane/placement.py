"""Which nodes a Pod may be on: node selector, node affinity, taints and tolerations (kube-scheduler's filters)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kdns.controlplane.kinds import Json

DAEMON_TOLERATIONS: Final[tuple[Json, ...]] = (
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/pid-pressure", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
)
"""What Pods of DaemonSets tolerate beside what their template says."""

_HOST_NETWORK: Final[Json] = {
    "key": "node.kubernetes.io/network-unavailable",
    "operator": "Exists",
    "effect": "NoSchedule",
}


def daemon_tolerations(spec: Json) -> list[Json]:
    """The tolerations of a DaemonSet's Pod: those of the template, then those that all of them have."""
    given = list(spec.get("tolerations") or ())
    added = [*DAEMON_TOLERATIONS, *([_HOST_NETWORK] if spec.get("hostNetwork") else [])]
    return given + [each for each in added if each not in given]


def fits_node(spec: Json, node: Json) -> bool:
    """Whether the node has the labels that the Pod wants, by its node selector and its required node affinity."""
    labels = node["metadata"].get("labels") or {}
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return affinity is None or any(_term(term, node) for term in affinity.get("nodeSelectorTerms") or ())


def untolerated(tolerations: list[Json], node: Json) -> set[str]:
    """The effects of the node's taints that the Pod does not tolerate."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return {taint.get("effect") or "" for taint in taints if not tolerates(tolerations, taint)}


def tolerates(tolerations: Iterable[Json], taint: Json) -> bool:
    """Whether one of the tolerations is for the taint."""
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
    """Whether a node meets one term; an empty one is met by none."""
    expressions, names = term.get("matchExpressions") or (), term.get("matchFields") or ()
    labels, meta = node["metadata"].get("labels") or {}, node["metadata"]
    met = [_requirement(row, labels) for row in expressions]
    met += [_requirement(row, {"metadata.name": meta["name"]}) for row in names]
    return bool(met) and all(met)


def _requirement(row: Json, labels: Json) -> bool:
    found, values = labels.get(row.get("key") or ""), row.get("values") or []
    match row.get("operator"):
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt" as operator:
            try:
                difference = int(found or "") - int(values[0])
            except (ValueError, IndexError):
                return False
            return difference > 0 if operator == "Gt" else difference < 0
        case _:
            return False


def on_node_only(spec: Json, name: str) -> Json:
    """The Pod's spec, bound to one node as Pods of DaemonSets are: by affinity, instead of what its template says."""
    required = {"nodeSelectorTerms": [{"matchFields": [_named(name)]}]}
    affinity = spec.get("affinity") or {}
    node = {**(affinity.get("nodeAffinity") or {}), "requiredDuringSchedulingIgnoredDuringExecution": required}
    return {**spec, "affinity": {**affinity, "nodeAffinity": node}}


def _named(name: str) -> Json:
    return {"key": "metadata.name", "operator": "In", "values": [name]}
