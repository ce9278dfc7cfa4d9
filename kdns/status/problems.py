"""Problems of a cluster as parts of a page: by cause, worst first, and by Service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kdns.cluster.objects import Key
from kdns.diagnosis.problem import CAUSES, NOTE, Problem
from kdns.status.page import Advice, Cell, Link, Table
from kdns.status.services import Search, service_link

CAUSES_MAX: Final = 10
OBJECTS_MAX: Final = 5
OF_WHOLE_CLUSTERS: Final = frozenset({"dns-missing", "external-name-missing", "local-policy", "slice-label"})
"""Causes that are found by what is missing; where only some objects are followed, these may exist all the same."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is on top of a page, the problems and notes of each Service, and in words what is wrong with which."""

    top: Sequence[Advice] = ()
    by_service: Mapping[Key, Sequence[Problem]] = field(default_factory=dict)
    wrong: Mapping[Key, str] = field(default_factory=dict)


def diagnosis(problems: Sequence[Problem], cluster: int = 0, *, is_partial: bool = False) -> Diagnosis:
    """Of problems worst first; `is_partial`: only some objects of each kind are followed."""
    by_cause: dict[str, list[Problem]] = {}
    by_service: dict[Key, list[Problem]] = {}
    for problem in problems:
        if is_partial and problem.cause in OF_WHOLE_CLUSTERS:
            continue
        if problem.severity < NOTE:
            by_cause.setdefault(problem.cause, []).append(problem)
        if problem.kind == "Service":
            by_service.setdefault(problem.key, []).append(problem)
    top = [_of_cause(cause, of_cause, cluster) for cause, of_cause in [*by_cause.items()][:CAUSES_MAX]]
    if (more := len(by_cause) - len(top)) > 0:
        top.append(Advice(f"and {more} more causes", objects=(_all_wrong(cluster, "Services with problems"),)))
    texts = {
        key: "; ".join(problem.evidence for problem in of_key if problem.severity < NOTE)
        for key, of_key in by_service.items()
    }
    return Diagnosis(top, by_service, {key: text for key, text in texts.items() if text})


def _of_cause(cause: str, problems: Sequence[Problem], cluster: int) -> Advice:
    """A single problem in full, or how many there are, with the first objects."""
    objects = dict.fromkeys(_object(problem, cluster) for problem in problems)
    shown = [*objects][:OBJECTS_MAX]
    if (more := len(objects) - len(shown)) > 0:
        shown.append(_all_wrong(cluster, f"and {more} more"))
    if len(problems) == 1:
        return Advice(f"{CAUSES[cause]}: {problems[0].evidence}", _remedy(problems[0]), shown)
    return Advice(f"{CAUSES[cause]} ({len(problems):,})", objects=shown)


def _object(problem: Problem, cluster: int) -> Cell:
    if problem.kind == "Service":
        return service_link(problem.key, cluster)
    return f"{problem.kind} {problem.place}"


def _all_wrong(cluster: int, text: str) -> Link:
    return Link(text, Search(is_wrong=True, cluster=cluster).path())


def of_service(problems: Sequence[Problem]) -> tuple[list[Advice], Table]:
    """Returns a Service's problems, and a table of its notes."""
    top = [Advice(problem.evidence, _remedy(problem)) for problem in problems if problem.severity < NOTE]
    rows = [(problem.evidence, problem.remedy) for problem in problems if problem.severity is NOTE]
    return top, Table("What may surprise", ("What", "What to do"), rows)


def _remedy(problem: Problem) -> str:
    return f"Try: {problem.remedy}" if problem.remedy.startswith("kubectl") else problem.remedy
