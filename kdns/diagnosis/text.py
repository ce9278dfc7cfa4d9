"""Problems in words, grouped by cause, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from kdns.diagnosis.problem import CAUSES, Problem, Severity


def as_text(problems: Sequence[Problem], most: int) -> str:
    """Groups by cause, worst first, each with at most `most` objects: its evidence, and what to do."""
    return "\n".join(_lines(problems, most))


def _lines(problems: Sequence[Problem], most: int) -> Iterator[str]:
    for (severity, cause), group in groupby(problems, key=lambda problem: (problem.severity, problem.cause)):
        found = [*group]
        yield f"{severity}: {CAUSES[cause]} ({len(found)})"
        for problem in found[:most]:
            yield f"  {problem.kind} {problem.place}: {problem.evidence}"
            if problem.remedy:
                yield f"    do: {problem.remedy}"
        if more := len(found) - most if len(found) > most else 0:
            yield f"  and {more} more; -o json lists all"


def as_json(problems: Sequence[Problem], looked_at: Mapping[str, int], not_looked_at: Sequence[str]) -> str:
    rows = [
        {
            "cause": problem.cause,
            "severity": str(problem.severity),
            "kind": problem.kind,
            "namespace": problem.key[0],
            "name": problem.key[1],
            "field": problem.field,
            "evidence": problem.evidence,
            "remedy": problem.remedy,
        }
        for problem in problems
    ]
    fields = {"lookedAt": looked_at, "notLookedAt": not_looked_at, "problems": rows}
    return json.dumps(fields, indent=2, ensure_ascii=False)


def counted(problems: Sequence[Problem]) -> str:
    """Returns how many problems of each severity there are, "" for none."""
    numbers = {severity: sum(problem.severity is severity for problem in problems) for severity in Severity}
    return ", ".join(f"{number} {severity}{'s' * (number != 1)}" for severity, number in numbers.items() if number)
