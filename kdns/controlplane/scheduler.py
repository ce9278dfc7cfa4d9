"""The scheduler, as a controller: a Pod without a node gets the one with the fewest Pods of those that it may have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kdns.cluster.objects import Key
from kdns.controlplane.controller import Action, Notice, Outcome, Subject
from kdns.controlplane.kinds import NODE, POD, Json, Kind
from kdns.controlplane.metadata import timestamp
from kdns.controlplane.nodes import obstacle
from kdns.controlplane.pods import is_finished, node_of, with_condition

_NAME = "default-scheduler"
_GATED = "Scheduling is blocked due to non-empty scheduling gates"


class Scheduler:
    """Subjects are Pods by namespace and name. Pods that name another scheduler are left to it."""

    name = _NAME
    follows = (NODE, POD)
    settled: frozenset[Kind] = frozenset()

    def __init__(self) -> None:
        self._nodes: dict[str, Json] = {}
        self._placed: dict[Key, str] = {}
        self._load: Counter[str] = Counter()
        self._pending: dict[Key, Json] = {}

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """Note who is where; a change of a node is a chance for all Pods that wait."""
        _ = revision
        if kind == NODE:
            self._nodes.pop(key[1], None)
            if obj:
                self._nodes[key[1]] = obj
            return tuple(self._pending)
        self._pending.pop(key, None)
        if before := self._placed.pop(key, ""):
            self._load[before] -= 1
        if obj is None or is_finished(obj):
            return ()
        if node := node_of(obj):
            self._placed[key] = node
            self._load[node] += 1
            return ()
        ours = (obj["spec"].get("schedulerName") or _NAME) == _NAME
        if obj["metadata"].get("deletionTimestamp") or not ours:
            return ()
        self._pending[key] = obj
        return (key,)

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """Onto a node, or a word about why not; the same word is not said again of the same Pod."""
        _ = since_s
        namespace, name = subject
        pod = self._pending.get((namespace, name))
        if pod is None:
            return Outcome()
        if pod["spec"].get("schedulingGates"):
            return _waits(pod, "SchedulingGated", _GATED, timestamp(now_s), ())
        problems = {node: obstacle(pod, obj) for node, obj in self._nodes.items()}
        fitting = [node for node, problem in problems.items() if not problem]
        if not fitting:
            message = _why(problems)
            notice = Notice(POD, pod, "Warning", "FailedScheduling", message)
            return _waits(pod, "Unschedulable", message, timestamp(now_s), (notice,))
        node = min(fitting, key=lambda each: (self._load[each], each))
        told = Notice(POD, pod, "Normal", "Scheduled", f"Successfully assigned {namespace}/{name} to {node}")
        return Outcome((Action("update", POD, {**pod, "spec": {**pod["spec"], "nodeName": node}}),), (told,))

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """Nobody is told: the log is."""
        _ = subject, error
        return None


def _waits(pod: Json, reason: str, message: str, now: str, notices: tuple[Notice, ...]) -> Outcome:
    changed = with_condition(pod, "PodScheduled", "False", now, reason=reason, message=message)
    return Outcome((Action("update", POD, changed, "status"),), notices) if changed != pod else Outcome()


def _why(problems: dict[str, str]) -> str:
    """The scheduler's sentence: how many nodes have which obstacle."""
    if not problems:
        return "no nodes available to schedule pods"
    most = len(problems)
    rows = ", ".join(sorted(f"{count} {problem}" for problem, count in Counter(problems.values()).items()))
    unhelpful = f"preemption: 0/{most} nodes are available: {most} Preemption is not helpful for scheduling."
    return f"0/{most} nodes are available: {rows}. {unhelpful}"
