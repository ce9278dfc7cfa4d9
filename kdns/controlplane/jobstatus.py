"""What is said of a Job: indexes as text, counts of its Pods, conditions (batch/v1 JobStatus)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from kdns.controlplane.kinds import Json

INDEX = "batch.kubernetes.io/job-completion-index"
REACHED = ("CompletionsReached", "Reached expected number of succeeded pods")
EXCEEDED = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
OVERDUE = ("DeadlineExceeded", "Job was active longer than specified deadline")
_RUN = re.compile(r"(?P<low>[0-9]{1,10})(-(?P<high>[0-9]{1,10}))?")
_ENDS = frozenset({"Complete", "Failed"})


def index_of(pod: Json) -> int | None:
    """Which index of the Job the Pod works on."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isdigit() else None


def indexes_text(indexes: Collection[int]) -> str:
    """The indexes as Jobs tell them: `1,3-5`; two that follow each other stay two."""
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
    """The indexes of such a text, below `completions`; what somebody else wrote there instead counts for nothing."""
    found: set[int] = set()
    for part in text.split(","):
        if run := _RUN.fullmatch(part):
            found |= set(range(int(run["low"]), min(int(run["high"] or run["low"]) + 1, completions)))
    return found


def holds(job: Json, name: str) -> bool:
    """Whether a condition of the Job is True."""
    rows = (job.get("status") or {}).get("conditions") or ()
    return any(row.get("type") == name and row.get("status") == "True" for row in rows)


def has_ended(job: Json) -> bool:
    """Whether the Job is complete or failed."""
    return any(holds(job, name) for name in _ENDS)


def with_conditions(
    rows: Iterable[Json], names: Iterable[str], status: str, why: tuple[str, str], now: str
) -> list[Json]:
    """The conditions with some of them as given; what says so already keeps its times."""
    listed = list(rows)
    for name in names:
        found = next((row for row in listed if row.get("type") == name), None)
        row = {"type": name, "status": status, "lastProbeTime": now, "lastTransitionTime": now}
        row |= {"reason": why[0], "message": why[1]}
        if found is None:
            listed.append(row)
        elif (found.get("status"), found.get("reason")) != (status, why[0]):
            listed[listed.index(found)] = row
    return listed
