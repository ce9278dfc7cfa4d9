"""PodDisruptionBudgets: their rules, and the controller that says how many Pods may go now (policy/v1).

Differs: the Pods that there should be are those that are there; Kubernetes asks their controllers for replicas.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import ceil

from kdns.cluster.objects import Key
from kdns.controlplane import formats
from kdns.controlplane.causes import invalid_value
from kdns.controlplane.controller import Action, Notice, Outcome, Subject
from kdns.controlplane.endpointpods import is_ready, is_terminating
from kdns.controlplane.kinds import DISRUPTION_BUDGET, POD, Json, Kind
from kdns.controlplane.label_selectors import selector_of, validate_label_selector
from kdns.controlplane.metadata import timestamp
from kdns.controlplane.pods import is_finished
from kdns.controlplane.status import Cause
from kdns.controlplane.validation import validate_meta, validate_meta_update

_PERCENT = re.compile("[0-9]+%")
_NOT_A_PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)


def validate_disruption_budget(obj: Json, old: Json | None = None) -> list[Cause]:
    """One of two limits, each a number or a percentage."""
    causes = validate_meta_update(old, obj) if old else []
    causes += validate_meta(obj, formats.dns_subdomain)
    spec = obj.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        causes.append(invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    for field in ("minAvailable", "maxUnavailable"):
        match spec.get(field):
            case str(text) if not _PERCENT.fullmatch(text):
                causes.append(invalid_value(f"spec.{field}", text, _NOT_A_PERCENT))
            case int(number) if number < 0:
                causes.append(invalid_value(f"spec.{field}", number, "must be greater than or equal to 0"))
    return causes + validate_label_selector("spec.selector", spec.get("selector") or {})


class Disruptions:
    """Subjects are budgets by namespace and name."""

    name = "disruption-controller"
    follows = (DISRUPTION_BUDGET, POD)
    settled: frozenset[Kind] = frozenset({DISRUPTION_BUDGET})

    def __init__(self) -> None:
        self._budgets: dict[Key, Json] = {}
        self._pods: dict[str, dict[Key, Json]] = {}

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """The budget itself, or the budgets of a Pod's namespace."""
        _ = revision
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

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """The budget's status as its Pods have it."""
        _ = since_s
        budget = self._budgets.get((subject[0], subject[1]))
        if budget is None:
            return Outcome()
        status = self._status(budget, timestamp(now_s))
        changed = status != (budget.get("status") or {})
        return Outcome(
            (Action("update", DISRUPTION_BUDGET, {**budget, "status": status}, "status"),) if changed else ()
        )

    def _status(self, budget: Json, now: str) -> Json:
        spec, old = budget.get("spec") or {}, budget.get("status") or {}
        selector = selector_of(spec["selector"]) if spec.get("selector") is not None else None
        everyone = self._pods.get(budget["metadata"]["namespace"], {}).values()
        pods = [pod for pod in everyone if selector and selector.matches(pod["metadata"].get("labels"))]
        going = {pod["metadata"]["name"] for pod in pods if is_terminating(pod)}
        there = {pod["metadata"]["name"] for pod in pods}
        granted = {k: v for k, v in (old.get("disruptedPods") or {}).items() if k in there - going}
        living = [pod for pod in pods if not is_finished(pod)]
        healthy = sum(
            is_ready(pod) and pod["metadata"]["name"] not in going and pod["metadata"]["name"] not in granted
            for pod in living
        )
        wanted = _wanted(spec, len(living))
        allowed = max(0, healthy - wanted) if living else 0
        reason = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
        return {
            "observedGeneration": budget["metadata"].get("generation", 0),
            **({"disruptedPods": granted} if granted else {}),
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": wanted,
            "expectedPods": len(living),
            "conditions": [_condition(old, *reason, budget["metadata"].get("generation", 0), now)],
        }

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """Nobody is told."""
        _ = subject, error
        return None


def _wanted(spec: Json, expected: int) -> int:
    """How many Pods must be healthy; percentages are rounded up."""
    if spec.get("maxUnavailable") is not None:
        return max(0, expected - _number(spec["maxUnavailable"], expected))
    return _number(spec.get("minAvailable", 1), expected)


def _number(limit: int | str, of: int) -> int:
    return limit if isinstance(limit, int) else ceil(of * int(limit[:-1]) / 100)


def _condition(old: Json, status: str, reason: str, generation: int, now: str) -> Json:
    found: Json = next((row for row in old.get("conditions") or () if row.get("type") == "DisruptionAllowed"), {})
    since = (found.get("lastTransitionTime") if found.get("status") == status else None) or now
    row = {"type": "DisruptionAllowed", "status": status, "observedGeneration": generation}
    return {**row, "lastTransitionTime": since, "reason": reason, "message": ""}
