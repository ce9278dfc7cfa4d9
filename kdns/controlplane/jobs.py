"""Jobs: Pods until enough of them succeeded (kube-controller-manager: job, ttl-after-finished).

Pods of Jobs are simulated to succeed at once, see pods.is_done; those that fail do because a client says so.
Differs: a Pod that ended is counted as long as it is there, so one that is removed while its Job runs may run again.
podFailurePolicy, successPolicy and limits by index are kept and not acted upon.
"""

from __future__ import annotations

from collections.abc import Iterable

from kdns.cluster.objects import Key
from kdns.controlplane.ages import seconds_of
from kdns.controlplane.controller import Action, Notice, Outcome, Subject
from kdns.controlplane.endpointpods import is_ready
from kdns.controlplane.jobstatus import (
    EXCEEDED,
    INDEX,
    OVERDUE,
    REACHED,
    has_ended,
    holds,
    index_of,
    indexes_in,
    indexes_text,
    with_conditions,
)
from kdns.controlplane.kinds import JOB, POD, Json, Kind
from kdns.controlplane.metadata import timestamp
from kdns.controlplane.workloads import (
    CHUNK,
    Suffix,
    Workloads,
    generated_names,
    is_active,
    is_leaving,
    new_pod,
    told,
    with_status,
)

_OURS = "kubernetes.io/job-controller"
_FOREGROUND: Json = {"propagationPolicy": "Foreground"}


class Jobs:
    """Subjects are Jobs by namespace and name."""

    name = "job-controller"
    follows = (JOB, POD)
    settled: frozenset[Kind] = frozenset()

    def __init__(self, suffix: Suffix) -> None:
        self._suffix, self._index = suffix, Workloads(JOB, POD)

    def learn(self, kind: Kind, key: Key, obj: Json | None, revision: int) -> Iterable[Subject]:
        """The Job itself, or the one that has the Pod."""
        _ = revision
        return self._index.learn(kind, key, obj)

    def reconcile(self, subject: Subject, since_s: float, now_s: float) -> Outcome:
        """Status first, then Pods: what is missing is made, what is too much deleted, a chunk at a time."""
        _ = since_s
        key = (subject[0], subject[1])
        job = self._index.all.get(key)
        if job is None or is_leaving(job) or (job["spec"].get("managedBy") or _OURS) != _OURS:
            return Outcome()
        if has_ended(job):
            return _expiry(job, now_s)
        pods, changes = self._index.claimed(key, POD)
        if changes:
            return Outcome(changes)
        work = _Work(job, pods, now_s)
        status, notices = work.status()
        actions = with_status(JOB, job, status)
        ends = has_ended({"status": status})
        if ends or job["spec"].get("suspend"):
            actions += [Action("delete", POD, pod) for pod in work.active[:CHUNK]]
            return Outcome(actions, notices)
        surplus = work.active[work.wanted :] if len(work.active) > work.wanted else []
        actions += [Action("delete", POD, pod) for pod in surplus[:CHUNK]]
        made = self._made(work)
        messages = [f"Created pod: {action.obj['metadata']['name']}" for action in made]
        notices += told(JOB, job, "SuccessfulCreate", messages)
        return Outcome([*actions, *made], notices, work.overdue_in_s)

    def _made(self, work: _Work) -> list[Action]:
        job, template = work.job, work.job["spec"].get("template") or {}
        missing = min(work.wanted - len(work.active), CHUNK)
        if missing <= 0:
            return []
        taken = self._index.parts[POD].objects
        base = f"{job['metadata']['name']}-"
        if not work.is_indexed:
            names = generated_names(job, missing, self._suffix, taken)
            return [Action("create", POD, new_pod(JOB, job, template, name, base)) for name in names]
        return [
            Action("create", POD, _indexed(new_pod(JOB, job, template, f"{base}{index}-{self._suffix()}"), job, index))
            for index in work.free_indexes(missing)
        ]

    def failed(self, subject: Subject, error: Exception) -> Notice | None:
        """FailedCreate."""
        job = self._index.all.get((subject[0], subject[1]))
        return Notice(JOB, job, "Warning", "FailedCreate", f"Error creating: {error}") if job else None


class _Work:
    """A Job that has not ended, and its Pods at a time."""

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
    def wanted(self) -> int:
        """How many Pods should run now."""
        most, completions = self._spec.get("parallelism") or 0, self._spec.get("completions")
        if completions is None:
            return min(most, len(self.active)) if self.succeeded else int(most)
        return int(max(0, min(most, completions - self.succeeded)))

    def free_indexes(self, number: int) -> list[int]:
        """The lowest indexes that nobody works on or has done."""
        busy = self._done | {index for pod in self.active if (index := index_of(pod)) is not None}
        free = (index for index in range(self._spec.get("completions") or 0) if index not in busy)
        return [index for index, _ in zip(free, range(number), strict=False)]

    def _overdue_in_s(self) -> float | None:
        most_s, started_s = self._spec.get("activeDeadlineSeconds"), seconds_of(self._started)
        return None if most_s is None or started_s is None else max(0.0, started_s + most_s - self._now_s)

    def _end(self) -> tuple[str, tuple[str, str]] | None:
        """Which end the Job has come to, and why."""
        completions = self._spec.get("completions")
        enough = self.succeeded and not self.active if completions is None else self.succeeded >= completions
        if enough:
            return "Complete", REACHED
        if self._failed > (self._spec.get("backoffLimit") or 0):
            return "Failed", EXCEEDED
        return ("Failed", OVERDUE) if self.overdue_in_s == 0 else None

    def status(self) -> tuple[Json, list[Notice]]:
        """The Job's status, and what is new in it."""
        now, rows, notices = timestamp(self._now_s), self._old.get("conditions") or [], list[Notice]()
        if self._spec.get("suspend"):
            rows = with_conditions(rows, ["Suspended"], "True", ("JobSuspended", "Job suspended"), now)
        elif holds(self.job, "Suspended"):
            rows = with_conditions(rows, ["Suspended"], "False", ("JobResumed", "Job resumed"), now)
        active = 0 if self._spec.get("suspend") else len(self.active)
        end = None if self._spec.get("suspend") else self._end()
        if end:
            name, why = end
            before = "SuccessCriteriaMet" if name == "Complete" else "FailureTarget"
            rows = with_conditions(rows, [before, name], "True", why, now)
            active = 0
            if name == "Complete":
                notices.append(Notice(JOB, self.job, "Normal", "Completed", "Job completed"))
            else:
                notices.append(Notice(JOB, self.job, "Warning", *why))
        counts = {"active": active, "succeeded": self.succeeded, "failed": self._failed}
        status: Json = {
            **({"startTime": self._started} if self._started else {}),
            **({"completionTime": now} if end and end[0] == "Complete" else {}),
            **{name: number for name, number in counts.items() if number},
            **({"completedIndexes": indexes_text(self._done)} if self.is_indexed and self._done else {}),
            "terminating": sum(is_leaving(pod) for pod in self._pods),
            "uncountedTerminatedPods": {},
            "ready": 0 if end else sum(is_ready(pod) for pod in self.active),
            **({"conditions": rows} if rows else {}),
        }
        return status, notices


def _indexed(pod: Json, job: Json, index: int) -> Json:
    """The Pod with its index: as an annotation, a label, a variable and in its host name."""
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


def _expiry(job: Json, now_s: float) -> Outcome:
    """A Job that ended goes with its Pods after ttlSecondsAfterFinished."""
    ttl_s = job["spec"].get("ttlSecondsAfterFinished")
    rows = (job.get("status") or {}).get("conditions") or ()
    times = [seconds_of(row.get("lastTransitionTime")) for row in rows if row.get("type") in {"Complete", "Failed"}]
    if ttl_s is None or not times or times[0] is None:
        return Outcome()
    wait_s = times[0] + ttl_s - now_s
    return Outcome(again_s=wait_s) if wait_s > 0 else Outcome((Action("delete", JOB, job, options=_FOREGROUND),))
