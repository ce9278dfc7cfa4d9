"""Each cause by objects that have it: which problem, of which object, with which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kdns.diagnosis import ClusterView, Problem, problems
from kdns.diagnosis.view import DECODED, KINDS

TABLE = yaml.safe_load((Path(__file__).parent / "problems.yaml").read_text())
HEALTHY: list[dict[str, Any]] = TABLE["healthy"]
CASES: dict[str, dict[str, Any]] = TABLE["cases"]


def view_of(objects: list[dict[str, Any]], **facts: Any) -> ClusterView:
    decoded = []
    for obj in objects:
        meta = {"namespace": "shop", **obj["metadata"]} if obj["kind"] not in {"Node", "Namespace"} else obj["metadata"]
        decoded.append(msgspec.convert({**obj, "metadata": meta}, DECODED[obj["kind"]]))
    return ClusterView.holding(decoded, KINDS, **facts)


def line(problem: Problem) -> str:
    return f"{problem.severity} {problem.cause} {problem.kind} {problem.place}"


def test_healthy_cluster_has_no_problem() -> None:
    view = view_of(HEALTHY, kubelet_dns=("10.96.0.10",))
    assert [*map(line, problems(view))] == []


@pytest.mark.parametrize("name", CASES)
def test_problems(name: str) -> None:
    case = CASES[name]
    names = {(obj["kind"], obj["metadata"]["name"]) for obj in case["objects"]}
    objects = [obj for obj in HEALTHY if (obj["kind"], obj["metadata"]["name"]) not in names] + case["objects"]
    found = problems(view_of(objects, **case.get("facts", {})))
    expected = case["problems"]
    assert [*map(line, found)] == [*expected]
    for problem, words in zip(found, expected.values(), strict=True):
        text = f"{problem.field}: {problem.evidence} [{problem.remedy}]"
        missing = [word for word in words or () if word not in text]
        assert not missing, text


def test_rule_about_unknown_kinds_says_nothing() -> None:
    for case in CASES.values():
        view = view_of(case["objects"])
        assert problems(ClusterView.holding(view.state.services.values(), ())) == []
