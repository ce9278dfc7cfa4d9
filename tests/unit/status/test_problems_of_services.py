"""Problems on top of a page, by cause, and by Service."""

from kdns.cluster.objects import Key
from kdns.diagnosis.problem import CAUSES, ERROR, NOTE, WARNING, Problem, Severity
from kdns.status.page import Advice, Link
from kdns.status.problems import CAUSES_MAX, diagnosis, of_service
from kdns.status.services import service_link

IDLE, ALIAS, UNSEEN = "endpoints-not-ready", "external-name-missing", "no-effect"


def problem(
    cause: str = IDLE,
    key: Key = ("shop", "web"),
    *,
    severity: Severity = ERROR,
    kind: str = "Service",
    evidence: str = "it is idle",
    remedy: str = "kubectl get pods",
) -> Problem:
    return Problem(cause, severity, kind, key, "", evidence, remedy)


def test_a_single_problem_is_shown_in_full_and_several_by_their_objects() -> None:
    one = problem()
    several = [problem("slice-label", ("shop", f"s{number}"), kind="EndpointSlice") for number in range(2)]
    assert [*diagnosis([one, *several]).top] == [
        Advice(f"{CAUSES[IDLE]}: it is idle", "Try: kubectl get pods", [service_link(one.key)]),
        Advice(f"{CAUSES['slice-label']} (2)", objects=["EndpointSlice shop/s0", "EndpointSlice shop/s1"]),
    ]


def test_of_many_objects_the_first_are_shown_each_once() -> None:
    many = [problem(key=("shop", f"s{number // 2}")) for number in range(40)]
    (shown,) = diagnosis(many, 1).top
    assert shown.text == f"{CAUSES[IDLE]} (40)"
    assert [*shown.objects] == [
        *(service_link(("shop", f"s{number}"), 1) for number in range(5)),
        Link("and 15 more", "/status/services?problems=only&cluster=1"),
    ]


def test_of_many_causes_the_worst_are_shown() -> None:
    every = [problem(cause) for cause in CAUSES]
    *top, more = diagnosis(every).top
    assert [shown.text for shown in top] == [f"{title}: it is idle" for title in [*CAUSES.values()][:CAUSES_MAX]]
    assert more.text == f"and {len(CAUSES) - CAUSES_MAX} more causes"


def test_notes_are_not_problems() -> None:
    problems = [
        problem(),
        problem(severity=WARNING, evidence="it is slow", remedy="wait"),
        problem(UNSEEN, severity=NOTE, evidence="a field has no effect", remedy="leave it out"),
        problem(UNSEEN, ("shop", "db"), severity=NOTE),
        problem("dns-shut", ("shop", "policy"), kind="NetworkPolicy"),
    ]
    diagnosed = diagnosis(problems)
    assert diagnosed.wrong == {("shop", "web"): "it is idle; it is slow"}
    assert len(diagnosed.top) == 2
    top, notes = of_service(diagnosed.by_service["shop", "web"])
    assert top == [Advice("it is idle", "Try: kubectl get pods"), Advice("it is slow", "wait")]
    assert [*notes.rows] == [("a field has no effect", "leave it out")]


def test_what_is_only_not_followed_is_not_missing() -> None:
    problems = [problem(ALIAS), problem()]
    assert [shown.text for shown in diagnosis(problems, is_partial=True).top] == [f"{CAUSES[IDLE]}: it is idle"]
    assert diagnosis([problem(ALIAS)], is_partial=True).by_service == {}
