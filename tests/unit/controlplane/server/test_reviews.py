"""Reviews of access and identity, and impersonation, as tables of what is sent and what comes back."""

from __future__ import annotations

from typing import Any

import pytest
from served_kinds import CATALOGUE, REVIEWS

from kdns.controlplane.fieldmanager.managed_fields import Writer
from kdns.controlplane.meta.errors import StatusError
from kdns.controlplane.meta.kinds import Json
from kdns.controlplane.server.access.reviews import Reviewer
from kdns.controlplane.server.access.users import ADMIN, User, acting, authenticated
from kdns.controlplane.server.discovery import resource_list
from kdns.controlplane.server.routes import parsed, target

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
    return REVIEWER.answered(KINDS[kind], namespace, review, ANN, Writer("curl", time="2026-01-01T00:00:00Z"))


@pytest.mark.parametrize(("kind", "spec", "status"), ANSWERS)
def test_answers(kind: str, spec: Json, status: Json) -> None:
    review = answered(kind, spec)
    assert (review["kind"], review["status"]) == (KINDS[kind].kind, status)
    if kind in {"SelfSubjectRulesReview", "SelfSubjectReview"}:
        assert "managedFields" not in review["metadata"]
    else:
        assert review["spec"] == spec
        assert [each["manager"] for each in review["metadata"]["managedFields"]] == ["curl"]


BOTH = {"resourceAttributes": GET, "nonResourceAttributes": {"path": "/x", "verb": "get"}}
SHOWN = '{"Path":"/x","Verb":"get"}'
AT = "spec.resourceAttributes"
NEEDED = "when spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required"
ONE_OF = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
REFUSED: list[tuple[str, Json, Json, list[str] | str]] = [
    # kind, spec, metadata, causes of a 422 or the message of a 400
    (
        "Access",
        {},
        {},
        [
            f"{AT}: Invalid value: null: {ONE_OF}",
            'spec.user: Invalid value: "": at least one of user or group must be specified',
        ],
    ),
    ("SelfAccess", {}, {}, [f"{AT}: Invalid value: null: {ONE_OF}"]),
    (
        "SelfAccess",
        BOTH,
        {},
        [
            (
                f"spec.nonResourceAttributes: Invalid value: {SHOWN}: cannot be specified in combination "
                "with resourceAttributes"
            )
        ],
    ),
    (
        "SelfAccess",
        {"resourceAttributes": {"labelSelector": {}}},
        {},
        [f"{AT}.labelSelector.requirements: Required value: {NEEDED}"],
    ),
    (
        "SelfAccess",
        {"resourceAttributes": {"fieldSelector": {"rawSelector": "a", "requirements": [{"operator": "In"}]}}},
        {},
        [
            f'{AT}.fieldSelector.rawSelector: Invalid value: "a": may not specified at the same time as requirements',
            f"{AT}.fieldSelector.requirements[0].key: Required value: must be specified",
            (
                f"{AT}.fieldSelector.requirements[0].values: "
                "Required value: must be specified when `operator` is 'In' or 'NotIn'"
            ),
        ],
    ),
    (
        "LocalAccess",
        {"user": "a", "resourceAttributes": {"namespace": "y"}},
        {},
        [f'{AT}.namespace: Invalid value: "y": must match metadata.namespace'],
    ),
    (
        "LocalAccess",
        {"user": "a", "nonResourceAttributes": {"path": "/x", "verb": "get"}},
        {},
        [f"spec.nonResourceAttributes: Invalid value: {SHOWN}: disallowed on this kind of request"],
    ),
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
def test_refusals(kind: str, spec: Json, metadata: Json, why: list[str] | str) -> None:
    with pytest.raises(StatusError) as caught:
        answered(kind, spec, **metadata)
    error = caught.value
    if isinstance(why, str):
        assert (error.code, error.message) == (400, why)
    else:
        details = error.details or {}
        assert (error.code, details["group"], "kind" in details) == (422, "authorization.k8s.io", False)
        assert [f"{each['field']}: {each['message']}" for each in details["causes"]] == why


def test_metadata_of_an_access_review_is_empty() -> None:
    with pytest.raises(StatusError, match=r'metadata: Invalid value: \{"name":"n".*: must be empty$'):
        answered("SelfAccess", {"resourceAttributes": GET}, name="n")
    answered("SelfAccess", {"resourceAttributes": GET}, namespace="of no importance")


IMPERSONATED: list[tuple[list[tuple[str, str]], User]] = [
    ([], ADMIN),
    ([("Impersonate-User", "bob")], User("bob", ("system:authenticated",))),
    (
        [
            ("impersonate-user", "bob"),
            ("Impersonate-Group", "g1"),
            ("Impersonate-Group", "g2"),
            ("Impersonate-Uid", "u"),
            ("Impersonate-Extra-Foo%2Fbar", "v"),
        ],
        User("bob", ("g1", "g2", "system:authenticated"), "u", {"foo/bar": ("v",)}),
    ),
    (
        [("Impersonate-User", "bob"), ("Impersonate-Group", "system:unauthenticated")],
        User("bob", ("system:unauthenticated",)),
    ),
    ([("Impersonate-User", "system:anonymous")], User("system:anonymous", ("system:unauthenticated",))),
    (
        [("Impersonate-User", "system:serviceaccount:a:b")],
        User(
            "system:serviceaccount:a:b",
            ("system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"),
        ),
    ),
]


@pytest.mark.parametrize(("headers", "user"), IMPERSONATED)
def test_impersonation(headers: list[tuple[str, str]], user: User) -> None:
    assert acting(ADMIN, headers) == user


def test_who_may_not_impersonate() -> None:
    with pytest.raises(
        StatusError, match=r'^users "bob" is forbidden: User "ann" cannot impersonate resource'
    ) as caught:
        acting(ANN, [("Impersonate-User", "bob")])
    assert caught.value.code == 403
    with pytest.raises(StatusError) as caught:
        acting(ADMIN, [("Impersonate-Group", "g"), ("Impersonate-Extra-A", "b")])
    assert (caught.value.code, caught.value.message) == (
        400,
        "headers Impersonate-Group, -Uid and -Extra need Impersonate-User",
    )


def test_reviews_are_discovered_and_have_one_path() -> None:
    rows = [
        row
        for group in ("authentication", "authorization")
        for row in (resource_list(CATALOGUE, f"{group}.k8s.io", "v1") or {})["resources"]
    ]
    assert {row["kind"]: row["verbs"] for row in rows} == {kind.kind: ["create"] for kind in REVIEWS}
    root = "/apis/authorization.k8s.io/v1"
    assert target(parsed(f"{root}/namespaces/x/localsubjectaccessreviews"), CATALOGUE).kind == KINDS["LocalAccess"]
    for path in (
        "localsubjectaccessreviews",
        "subjectaccessreviews/x",
        "namespaces/x/subjectaccessreviews",
        "watch/subjectaccessreviews",
    ):
        with pytest.raises(StatusError, match="could not find"):
            target(parsed(f"{root}/{path}"), CATALOGUE)
