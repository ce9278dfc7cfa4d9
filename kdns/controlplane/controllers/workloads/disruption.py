"""The disruption controller: how many Pods of each PodDisruptionBudget may be evicted now (policy/v1).

Differs: expectedPods counts the Pods that exist; kube-controller-manager adds up the replicas of their controllers.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from kdns.cluster.objects import Key
from kdns.controlplane.controllers.reconciler import Action, Change, Name, Reconciler, Request, Result
from kdns.controlplane.meta.conditions import is_ready, set_condition
from kdns.controlplane.meta.kinds import DISRUPTION_BUDGET, POD, Json
from kdns.controlplane.resources.label_selectors import selector_of
from kdns.controlplane.resources.pod.pod import is_finished
from kdns.controlplane.storage.object_meta import is_terminating, timestamp


class Disruptions(Reconciler):
    """Requests are PodDisruptionBudgets by namespace and name."""

    name = "disruption-controller"
    watches = (DISRUPTION_BUDGET, POD)
    ignores_own_writes_of = frozenset({DISRUPTION_BUDGET})

    def __init__(self) -> None:
        self._budgets: dict[Key, Json] = {}
        self._pods: dict[str, dict[Key, Json]] = {}

    def observe(self, change: Change) -> Iterable[Name]:
        """Returns the budget itself, or the budgets of a Pod's namespace."""
        kind, key, obj, _ = change
        if kind == DISRUPTION_BUDGET:
            self._budgets.pop(key, None)
            if obj:
                self._budgets[key] = obj
            return (key,)
        pods = self._pods.setdefault(key[0], {})
        pods.pop(key, None)
        if obj:
            pods[key] = obj
        if not pods:
            del self._pods[key[0]]
        return [each for each in self._budgets if each[0] == key[0]]

    def reconcile(self, request: Request) -> Result:
        """Updates the status of the budget."""
        budget = self._budgets.get(request.key)
        if budget is None:
            return Result()
        status = self._status(budget, timestamp(request.now_s))
        changed = status != (budget.get("status") or {})
        return Result((Action("update", DISRUPTION_BUDGET, {**budget, "status": status}, "status"),) if changed else ())

    def _status(self, budget: Json, now: str) -> Json:
        spec, old = budget.get("spec") or {}, budget.get("status") or {}
        selector = selector_of(spec["selector"]) if spec.get("selector") is not None else None
        pods_there = self._pods.get(budget["metadata"]["namespace"], {}).values()
        pods = [pod for pod in pods_there if selector and selector.matches(pod["metadata"].get("labels"))]
        terminating = {pod["metadata"]["name"] for pod in pods if is_terminating(pod)}
        there = {pod["metadata"]["name"] for pod in pods}
        disrupted = {k: v for k, v in (old.get("disruptedPods") or {}).items() if k in there - terminating}
        running = [pod for pod in pods if not is_finished(pod)]
        healthy = sum(
            is_ready(pod) and pod["metadata"]["name"] not in terminating and pod["metadata"]["name"] not in disrupted
            for pod in running
        )
        desired = _desired_healthy(spec, len(running))
        allowed = max(0, healthy - desired) if running else 0
        status, reason = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
        condition = {"type": "DisruptionAllowed", "status": status, "reason": reason, "message": ""}
        condition["observedGeneration"] = budget["metadata"].get("generation", 0)
        conditions = set_condition(old.get("conditions") or (), condition, now)
        return {
            "observedGeneration": budget["metadata"].get("generation", 0),
            **({"disruptedPods": disrupted} if disrupted else {}),
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": len(running),
            "conditions": [row for row in conditions if row["type"] == "DisruptionAllowed"],
        }


def _desired_healthy(spec: Json, expected: int) -> int:
    """Returns how many Pods must be healthy; percentages are rounded up."""
    if spec.get("maxUnavailable") is not None:
        return max(0, expected - _number(spec["maxUnavailable"], expected))
    return _number(spec.get("minAvailable", 1), expected)


def _number(limit: int | str, of: int) -> int:
    return limit if isinstance(limit, int) else ceil(of * int(limit[:-1]) / 100)
