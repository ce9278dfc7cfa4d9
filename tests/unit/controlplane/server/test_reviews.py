"""Reviews of access and identity, as tables of what is sent and what comes back."""

from typing import Any

import pytest
from object_api import refused
from served_kinds import CATALOGUE, REVIEWS

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.server.access import Reviewer, User, authenticated
from kdns.controlplane.server.discovery import resource_list
from kdns.controlplane.server.io.request import target

ANN = authenticated(User("ann", ("devs",), "7"))
AUDIENCE = "https://kubernetes.default.svc.cluster.local"
REVIEWER = Reviewer({"good": ANN}.get, AUDIENCE)
KINDS = {kind.kind.replace("SubjectAccessReview", "Access"): kind for kind in REVIEWS}
GET: Json = {"verb": "get"}
INFO = {"username": "ann", "uid": "7", "groups": ["devs", "system:authenticated"]}
RULES = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}

ANSWERS: list[tuple[str, Json, Json]] = [
    # kind, spec, status
    ("Access", {"user": "a", "resourceAttributes": GET}, {"allowed": True}),
    ("Access", {"groups": ["g"], "nonResourceAttributes": {"path": "/x"}}, {"allowed": True}),
    (
        "Access",
        {"user": "a", "resourceAttributes": {"labelSelector": {"requirements": [{"key": "a", "operator": "New"}]}}},
        {"allowed": True},
    ),
    ("SelfAccess", {"resourceAttributes": GET}, {"allowed": True}),
    ("SelfAccess", {"resourceAttributes": GET, "nonResourceAttributes": {"path": "/x"}}, {"allowed": True}),
    ("LocalAccess", {"user": "a", "resourceAttributes": {"namespace": "x"}}, {"allowed": True}),
    ("SelfSubjectRulesReview", {"namespace": "x"}, RULES),
    ("SelfSubjectReview", {}, {"userInfo": INFO}),
    ("TokenReview", {"token": "bad"}, {"user": {}, "error": "invalid bearer token"}),
    ("TokenReview", {"token": "good", "audiences": ["b"]}, {"user": {}, "error": "invalid bearer token"}),
    ("TokenReview", {"token": "good"}, {"authenticated": True, "user": INFO, "audiences": [AUDIENCE]}),
    (
        "TokenReview",
        {"token": "good", "audiences": ["b", AUDIENCE]},
        {"authenticated": True, "user": INFO, "audiences": [AUDIENCE]},
    ),
]


def answered(kind: str, spec: Json, **metadata: Any) -> Json:
    review = {"metadata": metadata, **({"spec": spec} if spec else {})}
    namespace = "x" if KINDS[kind].namespaced else ""
    return REVIEWER.answered(KINDS[kind], namespace, review, ANN, 1_767_225_600.0)


@pytest.mark.parametrize(("kind", "spec", "status"), ANSWERS)
def test_answers(kind: str, spec: Json, status: Json) -> None:
    review = answered(kind, spec)
    assert (review["kind"], review["status"]) == (KINDS[kind].kind, status)
    assert "managedFields" not in review["metadata"]
    if kind not in {"SelfSubjectRulesReview", "SelfSubjectReview"}:
        assert review["spec"] == spec


REFUSED: list[tuple[str, Json, Json, str]] = [
    # kind, spec, metadata, message of a 400
    (
        "LocalAccess",
        {"user": "a", "resourceAttributes": GET},
        {"namespace": "y"},
        "the namespace of the provided object does not match the namespace sent on the request",
    ),
    ("SelfSubjectRulesReview", {}, {}, "no namespace on request"),
    ("TokenReview", {}, {}, "token is required for TokenReview in authentication"),
]


@pytest.mark.parametrize(("kind", "spec", "metadata", "why"), REFUSED)
def test_refusals(kind: str, spec: Json, metadata: Json, why: str) -> None:
    refused(400, why, answered, kind, spec, **metadata)


def test_reviews_are_discovered_and_have_one_path() -> None:
    rows = [
        row
        for group in ("authentication", "authorization")
        for row in (resource_list(CATALOGUE, f"{group}.k8s.io", "v1") or {})["resources"]
    ]
    assert {row["kind"]: row["verbs"] for row in rows} == {kind.kind: ["create"] for kind in REVIEWS}
    root = "/apis/authorization.k8s.io/v1"
    assert (
        target(f"{root}/namespaces/x/localsubjectaccessreviews", CATALOGUE, lambda _: None).kind == KINDS["LocalAccess"]
    )
    for path in (
        "localsubjectaccessreviews",
        "subjectaccessreviews/x",
        "namespaces/x/subjectaccessreviews",
        "watch/subjectaccessreviews",
    ):
        with pytest.raises(StatusError, match="could not find"):
            target(f"{root}/{path}", CATALOGUE, lambda _: None)
