"""Reviews of access and identity: every client that reaches the API is allowed everything.

Differs: kube-apiserver asks its authorizers. Here is one user without rules; access is by a token or open.
"""

from __future__ import annotations

from collections.abc import Callable

from kdns.controlplane.meta.kinds import Json

AUTHORIZATION, AUTHENTICATION = "authorization.k8s.io/v1", "authentication.k8s.io/v1"
USER: Json = {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]}
"""The only user."""


def _allowed() -> Json:
    return {
        "allowed": True,
        "reason": "there is no authorization: every client of this API is allowed everything",
    }


def _rules() -> Json:
    return {
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "incomplete": False,
    }


def _user() -> Json:
    return {"userInfo": USER}


_REVIEWS: dict[tuple[str, str], tuple[str, bool, Callable[[], Json]]] = {
    (AUTHORIZATION, "selfsubjectaccessreviews"): ("SelfSubjectAccessReview", False, _allowed),
    (AUTHORIZATION, "subjectaccessreviews"): ("SubjectAccessReview", False, _allowed),
    (AUTHORIZATION, "localsubjectaccessreviews"): ("LocalSubjectAccessReview", True, _allowed),
    (AUTHORIZATION, "selfsubjectrulesreviews"): ("SelfSubjectRulesReview", False, _rules),
    (AUTHENTICATION, "selfsubjectreviews"): ("SelfSubjectReview", False, _user),
}
"""(group and version, plural) → kind, whether it has a namespace, and the answer."""


def review_at(path: str) -> tuple[str, str] | None:
    """The review that a POST to the path requests; None for other paths."""
    match path.strip("/").split("/"):
        case ["apis", group, version, plural]:
            namespaced = False
        case ["apis", group, version, "namespaces", _, plural]:
            namespaced = True
        case _:
            return None
    key = f"{group}/{version}", plural
    return key if key in _REVIEWS and _REVIEWS[key][1] is namespaced else None


def reviewed(review: tuple[str, str], asked: Json) -> Json:
    """The review with its spec and the answer as its status."""
    kind, _, answer = _REVIEWS[review]
    spec = {"spec": asked["spec"]} if "spec" in asked else {}
    return {"kind": kind, "apiVersion": review[0], "metadata": {}, **spec, "status": answer()}
