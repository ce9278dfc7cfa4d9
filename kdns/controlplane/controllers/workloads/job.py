"""The Job controller, with the TTL of finished Jobs (kube-controller-manager: job, ttlafterfinished).

Simulated kubelets let Pods of Jobs succeed at once (`is_done`); a Pod fails only when a client writes that status.
Differs: a finished Pod counts only while it exists, so one that is deleted while its Job is active may run again.
podFailurePolicy, successPolicy and limits by index are stored and have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

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
from kdns.controlplane.controllers.workloads.index import ACTIONS_MAX, WorkloadIndex
from kdns.controlplane.controllers.workloads.pods import Suffix, generated_names, is_active, new_pod
from kdns.controlplane.meta.annotations import annotated_number
from kdns.controlplane.meta.conditions import is_ready, is_true, set_condition
from kdns.controlplane.meta.errors import StatusError
from kdns.controlplane.meta.human_duration import seconds_of
from kdns.controlplane.meta.kinds import JOB, POD, Json
from kdns.controlplane.storage.object_meta import is_terminating, timestamp

INDEX = "batch.kubernetes.io/job-completion-index"
REACHED = ("CompletionsReached", "Reached expected number of succeeded pods")
EXCEEDED = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
OVERDUE = ("DeadlineExceeded", "Job was active longer than specified deadline")
_RUN = re.compile(r"(?P<low>[0-9]{1,10})(-(?P<high>[0-9]{1,10}))?")
_ENDS = frozenset({"Complete", "Failed"})
_CONTROLLER = "kubernetes.io/job-controller"
_FOREGROUND: Json = {"propagationPolicy": "Foreground"}


class Jobs(Reconciler):
    """Requests are Jobs by namespace and name."""

    name = "job-controller"
    watches = (JOB, POD)

    def __init__(self, suffix: Suffix) -> None:
        self._suffix, self._index = suffix, WorkloadIndex(JOB, POD)

    def observe(self, change: Change) -> Iterable[Name]:
        """Returns the Job, or that of a Pod."""
        kind, key, obj, _ = change
        return self._index.observe(kind, key, obj)

    def reconcile(self, request: Request) -> Result:
        """Writes the status first, then creations or deletions of Pods, at most `ACTIONS_MAX`."""
        key = request.key
        job = self._index.all.get(key)
        if job is None or is_terminating(job) or (job["spec"].get("managedBy") or _CONTROLLER) != _CONTROLLER:
            return Result()
        if is_finished_job(job):
            return _expiry(job, request.now_s)
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
        return Result([*actions, *made], events, active_job.overdue_in_s)

    def _created(self, active_job: _ActiveJob) -> list[Action]:
        job, template = active_job.job, active_job.job["spec"].get("template") or {}
        missing = min(active_job.desired - len(active_job.active), ACTIONS_MAX)
        if missing <= 0:
            return []
        taken = self._index.parts[POD].objects
        base = f"{job['metadata']['name']}-"
        if not active_job.is_indexed:
            names = generated_names(job, missing, self._suffix, taken)
            return [Action("create", POD, new_pod(JOB, job, template, name, base)) for name in names]
        return [
            Action("create", POD, _indexed(new_pod(JOB, job, template, f"{base}{index}-{self._suffix()}"), job, index))
            for index in active_job.free_indexes(missing)
        ]

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
        self.is_indexed = self._spec.get("completionMode") == "Indexed"
        self.active = [pod for pod in pods if is_active(pod)]
        self._done = indexes_in(self._old.get("completedIndexes") or "", self._spec.get("completions") or 0)
        self._done |= {index for pod in self._ended("Succeeded") if (index := index_of(pod)) is not None}
        counted = len(self._done) if self.is_indexed else len(self._ended("Succeeded"))
        self.succeeded = max(counted, self._old.get("succeeded") or 0)
        self._failed = max(len(self._ended("Failed")), self._old.get("failed") or 0)
        suspended = self._spec.get("suspend")
        self._started = None if suspended else self._old.get("startTime") or timestamp(now_s)
        self.overdue_in_s = self._overdue_in_s()

    def _ended(self, phase: str) -> list[Json]:
        return [pod for pod in self._pods if (pod.get("status") or {}).get("phase") == phase]

    @property
    def desired(self) -> int:
        """The number of Pods that should be active now."""
        most, completions = self._spec.get("parallelism") or 0, self._spec.get("completions")
        if completions is None:
            return min(most, len(self.active)) if self.succeeded else int(most)
        return int(max(0, min(most, completions - self.succeeded)))

    def free_indexes(self, number: int) -> list[int]:
        """Returns the lowest indexes that are neither active nor completed."""
        busy = self._done | {index for pod in self.active if (index := index_of(pod)) is not None}
        free = (index for index in range(self._spec.get("completions") or 0) if index not in busy)
        return [index for index, _ in zip(free, range(number), strict=False)]

    def _overdue_in_s(self) -> float | None:
        most_s, started_s = self._spec.get("activeDeadlineSeconds"), seconds_of(self._started)
        return None if most_s is None or started_s is None else max(0.0, started_s + most_s - self._now_s)

    def _end(self) -> tuple[str, tuple[str, str]] | None:
        """Returns the condition that ends the Job, with its reason and message; None while it is active."""
        completions = self._spec.get("completions")
        enough = self.succeeded and not self.active if completions is None else self.succeeded >= completions
        if enough:
            return "Complete", REACHED
        if self._failed > (self._spec.get("backoffLimit") or 0):
            return "Failed", EXCEEDED
        return ("Failed", OVERDUE) if self.overdue_in_s == 0 else None

    def status(self) -> tuple[Json, list[Event]]:
        """Returns the status, and the Events of its changes."""
        now, rows, events = timestamp(self._now_s), self._old.get("conditions") or [], list[Event]()
        if self._spec.get("suspend"):
            rows = with_conditions(rows, ["Suspended"], "True", ("JobSuspended", "Job suspended"), now)
        elif is_true(self.job, "Suspended"):
            rows = with_conditions(rows, ["Suspended"], "False", ("JobResumed", "Job resumed"), now)
        active = 0 if self._spec.get("suspend") else len(self.active)
        end = None if self._spec.get("suspend") else self._end()
        if end:
            name, why = end
            before = "SuccessCriteriaMet" if name == "Complete" else "FailureTarget"
            rows = with_conditions(rows, [before, name], "True", why, now)
            active = 0
            if name == "Complete":
                events.append(Event(JOB, self.job, "Normal", "Completed", "Job completed"))
            else:
                events.append(Event(JOB, self.job, "Warning", *why))
        counts = {"active": active, "succeeded": self.succeeded, "failed": self._failed}
        status: Json = {
            **({"startTime": self._started} if self._started else {}),
            **({"completionTime": now} if end and end[0] == "Complete" else {}),
            **{name: number for name, number in counts.items() if number},
            **({"completedIndexes": indexes_text(self._done)} if self.is_indexed and self._done else {}),
            "terminating": sum(is_terminating(pod) for pod in self._pods),
            "uncountedTerminatedPods": {},
            "ready": 0 if end else sum(is_ready(pod) for pod in self.active),
            **({"conditions": rows} if rows else {}),
        }
        return status, events


def _indexed(pod: Json, job: Json, index: int) -> Json:
    """Returns the Pod with its completion index: annotation, label, environment variable and hostname."""
    meta, spec = pod["metadata"], pod["spec"]
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{INDEX}']"}}
    variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}
    marks = {name: {**(meta.get(name) or {}), INDEX: str(index)} for name in ("annotations", "labels")}
    given = {
        field: [{**each, "env": [*(each.get("env") or ()), variable]} for each in spec[field]]
        for field in ("initContainers", "containers")
        if spec.get(field)
    }
    hostname = spec.get("hostname") or f"{job['metadata']['name']}-{index}"
    return {"metadata": {**meta, **marks}, "spec": {**spec, **given, "hostname": hostname}}


def _expiry(job: Json, now_s: float) -> Result:
    """Deletes a finished Job with its Pods after ttlSecondsAfterFinished."""
    ttl_s = job["spec"].get("ttlSecondsAfterFinished")
    rows = (job.get("status") or {}).get("conditions") or ()
    times = [seconds_of(row.get("lastTransitionTime")) for row in rows if row.get("type") in {"Complete", "Failed"}]
    if ttl_s is None or not times or times[0] is None:
        return Result()
    wait_s = times[0] + ttl_s - now_s
    return Result(requeue_after_s=wait_s) if wait_s > 0 else Result((Action("delete", JOB, job, options=_FOREGROUND),))


def index_of(pod: Json) -> int | None:
    """Returns the completion index of a Pod."""
    return annotated_number(pod, INDEX)


def indexes_text(indexes: Collection[int]) -> str:
    """Returns the text of status.completedIndexes: `1,3-5`. A run of two is written as two numbers."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(
        f"{run[0]}" if len(run) == 1 else f"{run[0]}{',' if len(run) == 2 else '-'}{run[-1]}" for run in runs
    )


def indexes_in(text: str, completions: int) -> set[int]:
    """Returns the indexes of status.completedIndexes below `completions`; malformed parts are ignored."""
    indexes: set[int] = set()
    for part in text.split(","):
        if run := _RUN.fullmatch(part):
            indexes |= set(range(int(run["low"]), min(int(run["high"] or run["low"]) + 1, completions)))
    return indexes


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
