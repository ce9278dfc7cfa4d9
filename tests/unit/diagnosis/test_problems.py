"""Each cause by objects that have it: which problem, of which object, with which words."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kdns.diagnosis.problem import CAUSES, Problem
from kdns.diagnosis.rules import problems
from kdns.diagnosis.view import DECODED, KINDS, ClusterView

TABLE = yaml.safe_load((Path(__file__).parent / "problems.yaml").read_text())
HEALTHY: list[dict[str, Any]] = TABLE["healthy"]
CASES: dict[str, dict[str, Any]] = TABLE["cases"]

OF_OTHERS = {"corefile", "proxy-config", "running"}
"""Causes that are found outside of this room."""


def view_of(objects: list[dict[str, Any]], **facts: Any) -> ClusterView:
    decoded = []
    for obj in objects:
        meta = {"namespace": "shop", **obj["metadata"]} if obj["kind"] not in {"Node", "Namespace"} else obj["metadata"]
        decoded.append(msgspec.convert({**obj, "metadata": meta}, DECODED[obj["kind"]]))
    return ClusterView.holding(decoded, KINDS, **facts)


def key_of(obj: dict[str, Any]) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace", "shop"), obj["metadata"]["name"]


def line(problem: Problem) -> str:
    return f"{problem.severity} {problem.cause} {problem.kind} {problem.place}"


def test_healthy_cluster_has_no_problem() -> None:
    view = view_of(HEALTHY, kubelet_dns=("10.96.0.10",))
    assert [*map(line, problems(view))] == []


@pytest.mark.parametrize("name", CASES)
def test_problems(name: str) -> None:
    case = CASES[name]
    names = {key_of(obj) for obj in case["objects"]}
    others = [obj for obj in HEALTHY if obj["metadata"]["name"] not in case.get("without", ())]
    objects = [obj for obj in others if key_of(obj) not in names] + case["objects"]
    found = problems(view_of(objects, **case.get("facts", {})))
    expected = case["problems"]
    assert [*map(line, found)] == [*expected]
    for problem, words in zip(found, expected.values(), strict=True):
        text = f"{problem.field}: {problem.evidence} [{problem.remedy}]"
        missing = [word for word in words or () if word not in text]
        assert not missing, text


def test_every_cause_has_a_case() -> None:
    tested = {text.split()[1] for case in CASES.values() for text in case["problems"]}
    assert tested == CAUSES.keys() - OF_OTHERS


def test_rule_about_unknown_kinds_says_nothing() -> None:
    for case in CASES.values():
        view = view_of(case["objects"])
        assert problems(ClusterView.holding(view.state.services.values(), ())) == []
