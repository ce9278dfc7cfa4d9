"""The Job controller: Pods until enough of them have succeeded.

Simulated kubelets let Pods of Jobs succeed at once (`is_done`); a Pod fails only when a client writes that status, and
is replaced.

Differs: a finished Pod counts only while it exists, so one that is deleted while its Job is active may run again.
Indexes, deadlines, limits of failures, times to live and policies are stored and have no effect.
"""

from __future__ import annotations

from typing import Final

from kdns.controlplane.apimachinery.conditions import condition_of, is_ready, is_true, set_condition
from kdns.controlplane.apimachinery.kinds import JOB, Json
from kdns.controlplane.controllers.reconciler import Event
from kdns.controlplane.simulation.workloads.controller import Plan, PodController, View
from kdns.controlplane.simulation.workloads.pods import count, is_active, nonzero
from kdns.controlplane.storage.object_meta import is_terminating, timestamp

REACHED: Final = ("CompletionsReached", "Reached expected number of succeeded pods")
_CONTROLLER: Final = "kubernetes.io/job-controller"


class Jobs(PodController):
    """Slots are numbers of active Pods; a Job that is complete or suspended has none."""

    def __init__(self) -> None:
        super().__init__("job-controller", JOB)

    def acts_on(self, owner: Json) -> bool:
        is_finished = is_true(owner, "Complete") or is_true(owner, "Failed")
        return not is_finished and (owner["spec"].get("managedBy") or _CONTROLLER) == _CONTROLLER

    def plan(self, view: View) -> Plan:
        spec, old = view.spec, view.owner.get("status") or {}
        active = list(filter(is_active, view.pods))
        phases = [(pod.get("status") or {}).get("phase") for pod in view.pods]
        succeeded = max(phases.count("Succeeded"), count(old, "succeeded"))
        failed = max(phases.count("Failed"), count(old, "failed"))
        size, is_complete = _desired(spec, len(active), succeeded)
        is_suspended = bool(spec.get("suspend"))
        if is_suspended:
            size, is_complete = 0, False
        now, events = timestamp(view.now_s), []
        changes: Json = {}
        if is_suspended:
            changes["Suspended"] = ("True", "JobSuspended", "Job suspended")
        elif is_true(view.owner, "Suspended"):
            changes["Suspended"] = ("False", "JobResumed", "Job resumed")
        if is_complete:
            changes |= dict.fromkeys(("SuccessCriteriaMet", "Complete"), ("True", *REACHED))
            events.append(Event(JOB, view.owner, "Normal", "Completed", "Job completed"))
        conditions = old.get("conditions") or []
        for name, (state, reason, message) in changes.items():
            before = condition_of(view.owner, name) or {}
            if (before.get("status"), before.get("reason")) != (state, reason):
                new = {"type": name, "status": state, "lastProbeTime": now, "reason": reason, "message": message}
                conditions = set_condition(conditions, new, now)
        started = None if is_suspended else old.get("startTime") or now
        runs = size > 0
        status = {
            **({"startTime": started} if started else {}),
            **({"completionTime": now} if is_complete else {}),
            **nonzero(active=len(active) if runs else 0, succeeded=succeeded, failed=failed),
            "terminating": sum(map(is_terminating, view.pods)),
            "uncountedTerminatedPods": {},
            "ready": sum(map(is_ready, active)) if runs else 0,
            **({"conditions": conditions} if conditions else {}),
        }
        return Plan(status, range(size), dict(enumerate(active[:size])), surplus=active[size:], events=events)


def _desired(spec: Json, active: int, succeeded: int) -> tuple[int, bool]:
    """How many Pods should be active, and whether the Job is complete.

    Without completions, the Job is a work queue: after the first success no Pod is added, and it ends with the last.
    """
    most, completions = count(spec, "parallelism"), spec.get("completions")
    if completions is None:
        return (min(most, active), not active) if succeeded else (most, False)
    return max(0, min(most, completions - succeeded)), succeeded >= completions
