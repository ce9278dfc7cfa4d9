"""Users, and the answers of reviews about users and tokens: every authenticated user may do everything (AlwaysAllow).

A review is answered from its spec and its user; nothing is stored (pkg/registry/authorization, authentication).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kdns.controlplane.apimachinery.errors import bad_request
from kdns.controlplane.apimachinery.kinds import RULES_REVIEW, SELF_REVIEW, TOKEN_REVIEW, Json, Kind
from kdns.controlplane.storage.object_meta import set_namespace, timestamp, typed

AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
_RULES: Final[Json] = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user; `extra` has further attributes by name."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def info(self) -> Json:
        fields: Json = {"username": self.name, "uid": self.uid, "groups": [*self.groups]}
        fields["extra"] = {key: [*values] for key, values in self.extra.items()}
        return {name: value for name, value in fields.items() if value}


ADMIN: Final = User("kubernetes-admin", ("system:masters", AUTHENTICATED))
"""The user of an API without authentication, and of a token without a user."""

NOBODY: Final = User("system:anonymous", (UNAUTHENTICATED,))
"""The user of an unauthenticated request to an open path."""


def authenticated(user: User) -> User:
    if {AUTHENTICATED, UNAUTHENTICATED} & set(user.groups):
        return user
    return User(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)


@dataclass(frozen=True, slots=True)
class Reviewer:
    """Answers reviews. `user_of` looks up tokens; `audience` is the audience of all tokens."""

    user_of: Callable[[str], User | None]
    audience: str

    def answered(self, kind: Kind, namespace: str, review: Json, user: User, now_s: float) -> Json:
        """Raises 400 or 422 for a review that cannot be answered."""
        review = typed(kind, review)
        metadata = review["metadata"] = {**review["metadata"]}
        metadata["namespace"] = metadata.get("namespace", "") if kind.namespaced else ""
        set_namespace(kind, namespace, review)
        review["metadata"] = {name: value for name, value in metadata.items() if value}
        spec = review.get("spec") or {}
        if kind is SELF_REVIEW:
            now = timestamp(now_s)
            return {**review, "metadata": {"creationTimestamp": now}, "status": {"userInfo": user.info}}
        if kind is RULES_REVIEW:
            if not spec.get("namespace"):
                raise bad_request("no namespace on request")
            return {**review, "metadata": {}, "spec": {}, "status": _RULES}
        return {**review, "status": self._token(spec) if kind is TOKEN_REVIEW else {"allowed": True}}

    def _token(self, spec: Json) -> Json:
        """Authenticated if the token is known and meant for one of the audiences."""
        if not spec.get("token"):
            raise bad_request("token is required for TokenReview in authentication")
        user = self.user_of(spec["token"]) if self.audience in (spec.get("audiences") or [self.audience]) else None
        if user is None:
            return {"user": {}, "error": "invalid bearer token"}
        return {"authenticated": True, "user": user.info, "audiences": [self.audience]}
