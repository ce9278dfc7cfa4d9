"""The scheduler, as a controller: a Pod without a node is bound to the eligible Node with the fewest Pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.kinds import NODE, POD, Json
from kdns.controlplane.controllers.reconciler import Action, Change, Event, Name, Reconciler, Request, Result
from kdns.controlplane.kinds.pod.pod import is_finished, node_of, with_condition
from kdns.controlplane.simulation.nodes.placement import obstacle
from kdns.controlplane.storage.object_meta import is_terminating, timestamp

_NAME = "default-scheduler"
_GATED = "Scheduling is blocked due to non-empty scheduling gates"


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
        """Counts Pods by Node; a pending Pod, or all pending Pods for a Node."""
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
        """Binds the Pod to a Node, or sets PodScheduled to False with the reason, once for each reason."""
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
        node = min(fitting, key=lambda each: (self._load[each], each))
        event = Event(POD, pod, "Normal", "Scheduled", f"Successfully assigned {namespace}/{name} to {node}")
        return Result((Action("update", POD, {**pod, "spec": {**pod["spec"], "nodeName": node}}),), (event,))


def _pending_result(pod: Json, reason: str, message: str, now: str, events: tuple[Event, ...]) -> Result:
    changed = with_condition(pod, "PodScheduled", "False", now, reason=reason, message=message)
    return Result((Action("update", POD, changed, "status"),), events) if changed != pod else Result()


def _unschedulable_message(problems: dict[str, str]) -> str:
    """Returns the message of FailedScheduling: the number of Nodes by obstacle."""
    if not problems:
        return "no nodes available to schedule pods"
    most = len(problems)
    rows = ", ".join(sorted(f"{count} {problem}" for problem, count in Counter(problems.values()).items()))
    return f"0/{most} nodes are available: {rows}."
