"""The scheduler, as a controller: a Pod without a node is bound to the eligible Node with the fewest Pods.

Eligible by node selector, node affinity, taints and tolerations (kube-scheduler's filters). Differs: resources, host
ports, affinity between Pods and topology spread constraints are not evaluated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from kdns.cluster.objects import Key
from kdns.cluster.selectors import Requirement
from kdns.controlplane.apimachinery.conditions import is_ready
from kdns.controlplane.apimachinery.kinds import NODE, POD, Json
from kdns.controlplane.controllers.reconciler import Action, Change, Event, Name, Reconciler, Request, Result
from kdns.controlplane.kinds.pod.pod import is_finished, node_of, with_condition
from kdns.controlplane.storage.object_meta import is_terminating, timestamp

_NAME = "default-scheduler"
_GATED = "Scheduling is blocked due to non-empty scheduling gates"
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


class Scheduler(Reconciler):
    """Requests are Pods by namespace and name, except those of another scheduler."""

    name = _NAME
    watches = (NODE, POD)

    def __init__(self) -> None:
        self._nodes: dict[str, Json] = {}
        self._placed: dict[Key, str] = {}
        self._load: Counter[str] = Counter()
        self._pending: dict[Key, Json] = {}

    def observe(self, change: Change) -> Iterable[Name]:
        kind, key, obj, _ = change
        if kind == NODE:
            self._nodes.pop(key[1], None)
            if obj:
                self._nodes[key[1]] = obj
            return tuple(self._pending)
        self._pending.pop(key, None)
        if before := self._placed.pop(key, ""):
            self._load[before] -= 1
            if not self._load[before]:
                del self._load[before]
        if obj is None or is_finished(obj):
            return ()
        if node := node_of(obj):
            self._placed[key] = node
            self._load[node] += 1
            return ()
        is_default = (obj["spec"].get("schedulerName") or _NAME) == _NAME
        if is_terminating(obj) or not is_default:
            return ()
        self._pending[key] = obj
        return (key,)

    def reconcile(self, request: Request) -> Result:
        """Binds the Pod to a Node, or sets PodScheduled to False with the reason, once per reason."""
        (namespace, name), now_s = request
        pod = self._pending.get((namespace, name))
        if pod is None:
            return Result()
        if pod["spec"].get("schedulingGates"):
            return _pending_result(pod, "SchedulingGated", _GATED, timestamp(now_s), ())
        problems = {node: obstacle(pod, obj) for node, obj in self._nodes.items()}
        fitting = [node for node, problem in problems.items() if not problem]
        if not fitting:
            message = _unschedulable_message(problems)
            event = Event(POD, pod, "Warning", "FailedScheduling", message)
            return _pending_result(pod, "Unschedulable", message, timestamp(now_s), (event,))
        node = min(fitting, key=lambda name: (self._load[name], name))
        event = Event(POD, pod, "Normal", "Scheduled", f"Successfully assigned {namespace}/{name} to {node}")
        return Result((Action("update", POD, {**pod, "spec": {**pod["spec"], "nodeName": node}}),), (event,))


def _pending_result(pod: Json, reason: str, message: str, now: str, events: tuple[Event, ...]) -> Result:
    changed = with_condition(pod, "PodScheduled", "False", now, reason=reason, message=message)
    return Result((Action("update", POD, changed, "status"),), events) if changed != pod else Result()


def _unschedulable_message(problems: dict[str, str]) -> str:
    if not problems:
        return "no nodes available to schedule pods"
    most = len(problems)
    rows = ", ".join(sorted(f"{count} {problem}" for problem, count in Counter(problems.values()).items()))
    return f"0/{most} nodes are available: {rows}."


def daemon_tolerations(spec: Json) -> list[Json]:
    """The tolerations of a DaemonSet's Pod: those of the template, then those that all have."""
    tolerations = list(spec.get("tolerations") or ())
    taints = _DAEMONS_TOLERATE | ({"network-unavailable": "NoSchedule"} if spec.get("hostNetwork") else {})
    added = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect} for key, effect in taints.items()
    ]
    return tolerations + [toleration for toleration in added if toleration not in tolerations]


def fits_node(spec: Json, node: Json) -> bool:
    labels = node["metadata"].get("labels") or {}
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return affinity is None or any(_term(term, node) for term in affinity.get("nodeSelectorTerms") or ())


def untolerated(tolerations: list[Json], node: Json) -> set[str]:
    taints = (node.get("spec") or {}).get("taints") or ()
    return {taint.get("effect") or "" for taint in taints if not tolerates(tolerations, taint)}


def tolerates(tolerations: Iterable[Json], taint: Json) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def _term(term: Json, node: Json) -> bool:
    """An empty node selector term matches no Node."""
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
    """Why the Pod cannot be scheduled to the Node, in kube-scheduler's words; "" if it can."""
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
