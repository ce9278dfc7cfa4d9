"""The columns of Jobs."""

from __future__ import annotations

from typing import Any, Final

from kdns.controlplane.apimachinery.human_duration import human_duration, seconds_of
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.kinds.apps.columns import CONTAINERS, IMAGES, SELECTOR, containers_and_selector
from kdns.controlplane.kinds.columns import AGE, NAME, Column, Printer, age, name

_JOB_ENDS = {"Complete": "Complete", "Failed": "Failed"}
_JOB_STATES = {"Suspended": "Suspended", "FailureTarget": "FailureTarget", "SuccessCriteriaMet": "SuccessCriteriaMet"}


def job_cells(obj: Json, now_s: float) -> list[Any]:
    """Returns the cells: name, state, completions, duration, age; containers, images, selector."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    succeeded, most = status.get("succeeded") or 0, spec.get("parallelism") or 0
    if spec.get("completions") is not None:
        completions = f"{succeeded}/{spec['completions']}"
    else:
        completions = f"{succeeded}/1 of {most}" if most > 1 else f"{succeeded}/1"
    started, ended = seconds_of(status.get("startTime")), seconds_of(status.get("completionTime"))
    duration = "" if started is None else human_duration((now_s if ended is None else ended) - started)
    return [name(obj), _job_state(obj), completions, duration, age(obj, now_s), *containers_and_selector(spec)]


def _job_state(obj: Json) -> str:
    rows = (obj.get("status") or {}).get("conditions") or ()
    held = {row.get("type") for row in rows if row.get("status") == "True"}
    found = [shown for kind, shown in _JOB_ENDS.items() if kind in held]
    if not found and obj.get("metadata", {}).get("deletionTimestamp"):
        return "Terminating"
    found += [shown for kind, shown in _JOB_STATES.items() if kind in held]
    return found[0] if found else "Running"


JOBS: Final = Printer(
    (
        NAME,
        Column("Status", "What the Job is doing, in one word."),
        Column("Completions", "Pods that succeeded, of all that must."),
        Column("Duration", "How long the Job ran, or has been running."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ),
    job_cells,
)
