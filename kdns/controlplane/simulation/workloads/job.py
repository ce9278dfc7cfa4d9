"""The Job controller: Pods until enough of them have succeeded.

Simulated kubelets let Pods of Jobs succeed at once (`is_done`); a Pod fails only when a client writes that status, and
is replaced.
Differs: a finished Pod counts only while it exists, so one that is deleted while its Job is active may run again.
Indexes, deadlines, limits of failures, times to live and policies are stored and have no effect.
"""

from __future__ import annotations

from collections.abc import Iterable

from kdns.controlplane.apimachinery.conditions import is_ready, is_true, set_condition
from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import JOB, POD, Json
from kdns.controlplane.controllers.events import combined_events
from kdns.controlplane.controllers.reconciler import (
    Action,
    Change,
    Event,
    Name,
    Reconciler,
    Request,
    Result,
    status_update,
)
from kdns.controlplane.simulation.workloads.index import ACTIONS_MAX, WorkloadIndex
from kdns.controlplane.simulation.workloads.pods import Suffix, generated_names, is_active, new_pod
from kdns.controlplane.storage.object_meta import is_terminating, timestamp

REACHED = ("CompletionsReached", "Reached expected number of succeeded pods")
_ENDS = frozenset({"Complete", "Failed"})
_CONTROLLER = "kubernetes.io/job-controller"


class Jobs(Reconciler):
    """Requests are Jobs by namespace and name."""

    name = "job-controller"
    watches = (JOB, POD)

    def __init__(self, suffix: Suffix) -> None:
        self._suffix, self._index = suffix, WorkloadIndex(JOB, POD)

    def observe(self, change: Change) -> Iterable[Name]:
        kind, key, obj, _ = change
        return self._index.observe(kind, key, obj)

    def reconcile(self, request: Request) -> Result:
        """Writes the status first, then creations or deletions of Pods, at most `ACTIONS_MAX`."""
        key = request.key
        job = self._index.all.get(key)
        if job is None or is_terminating(job) or is_finished_job(job):
            return Result()
        if (job["spec"].get("managedBy") or _CONTROLLER) != _CONTROLLER:
            return Result()
        pods, changes = self._index.claimed(key, POD)
        if changes:
            return Result(changes)
        active_job = _ActiveJob(job, pods, request.now_s)
        status, events = active_job.status()
        actions = status_update(JOB, job, status)
        ends = is_finished_job({"status": status})
        if ends or job["spec"].get("suspend"):
            actions += [Action("delete", POD, pod) for pod in active_job.active[:ACTIONS_MAX]]
            return Result(actions, events)
        surplus = active_job.active[active_job.desired :] if len(active_job.active) > active_job.desired else []
        actions += [Action("delete", POD, pod) for pod in surplus[:ACTIONS_MAX]]
        made = self._created(active_job)
        messages = [f"Created pod: {action.obj['metadata']['name']}" for action in made]
        events += combined_events(JOB, job, "SuccessfulCreate", messages)
        return Result([*actions, *made], events)

    def _created(self, active_job: _ActiveJob) -> list[Action]:
        job, template = active_job.job, active_job.job["spec"].get("template") or {}
        missing = min(active_job.desired - len(active_job.active), ACTIONS_MAX)
        if missing <= 0:
            return []
        taken = self._index.parts[POD].objects
        names = generated_names(job, missing, self._suffix, taken)
        base = f"{job['metadata']['name']}-"
        return [Action("create", POD, new_pod(JOB, job, template, name, base)) for name in names]

    def failed(self, request: Request, action: Action, error: StatusError) -> Event | None:
        """Returns FailedCreate for a Pod."""
        job = self._index.all.get(request.key)
        if job is None or not action.creates(POD):
            return None
        return Event(JOB, job, "Warning", "FailedCreate", f"Error creating: {error.message}")


class _ActiveJob:
    """A Job that has not finished, and its Pods."""

    def __init__(self, job: Json, pods: list[Json], now_s: float) -> None:
        self.job, self._pods, self._now_s = job, pods, now_s
        self._spec, self._old = job["spec"], job.get("status") or {}
        self.active = [pod for pod in pods if is_active(pod)]
        self.succeeded = max(len(self._ended("Succeeded")), self._old.get("succeeded") or 0)
        self._failed = max(len(self._ended("Failed")), self._old.get("failed") or 0)
        suspended = self._spec.get("suspend")
        self._started = None if suspended else self._old.get("startTime") or timestamp(now_s)

    def _ended(self, phase: str) -> list[Json]:
        return [pod for pod in self._pods if (pod.get("status") or {}).get("phase") == phase]

    @property
    def desired(self) -> int:
        most, completions = self._spec.get("parallelism") or 0, self._spec.get("completions")
        if completions is None:
            return min(most, len(self.active)) if self.succeeded else int(most)
        return int(max(0, min(most, completions - self.succeeded)))

    def _is_complete(self) -> bool:
        completions = self._spec.get("completions")
        if completions is None:
            return bool(self.succeeded) and not self.active
        return self.succeeded >= int(completions)

    def status(self) -> tuple[Json, list[Event]]:
        now, rows, events = timestamp(self._now_s), self._old.get("conditions") or [], list[Event]()
        if self._spec.get("suspend"):
            rows = with_conditions(rows, ["Suspended"], "True", ("JobSuspended", "Job suspended"), now)
        elif is_true(self.job, "Suspended"):
            rows = with_conditions(rows, ["Suspended"], "False", ("JobResumed", "Job resumed"), now)
        active = 0 if self._spec.get("suspend") else len(self.active)
        ends = not self._spec.get("suspend") and self._is_complete()
        if ends:
            rows = with_conditions(rows, ["SuccessCriteriaMet", "Complete"], "True", REACHED, now)
            active = 0
            events.append(Event(JOB, self.job, "Normal", "Completed", "Job completed"))
        counts = {"active": active, "succeeded": self.succeeded, "failed": self._failed}
        status: Json = {
            **({"startTime": self._started} if self._started else {}),
            **({"completionTime": now} if ends else {}),
            **{name: number for name, number in counts.items() if number},
            "terminating": sum(is_terminating(pod) for pod in self._pods),
            "uncountedTerminatedPods": {},
            "ready": 0 if ends else sum(is_ready(pod) for pod in self.active),
            **({"conditions": rows} if rows else {}),
        }
        return status, events


def is_finished_job(job: Json) -> bool:
    """Returns whether the Job is Complete or Failed."""
    return any(is_true(job, name) for name in _ENDS)


def with_conditions(
    rows: Iterable[Json], names: Iterable[str], status: str, why: tuple[str, str], now: str
) -> list[Json]:
    """Returns the conditions with some set; one with equal status and reason keeps its times."""
    listed = list(rows)
    for name in names:
        if not any((row.get("type"), row.get("status"), row.get("reason")) == (name, status, why[0]) for row in listed):
            row = {"type": name, "status": status, "lastProbeTime": now, "reason": why[0], "message": why[1]}
            listed = set_condition(listed, row, now)
    return listed
