"""Reviews of access and identity: every authenticated user may do everything (kube-apiserver: AlwaysAllow).

A review is answered from its spec and its user; nothing is stored (pkg/registry/authorization, authentication).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from kdns.controlplane.apimachinery.errors import bad_request
from kdns.controlplane.apimachinery.kinds import (
    ACCESS_REVIEW,
    LOCAL_ACCESS_REVIEW,
    RULES_REVIEW,
    SELF_ACCESS_REVIEW,
    SELF_REVIEW,
    TOKEN_REVIEW,
    Json,
    Kind,
)
from kdns.controlplane.fieldmanager.managed_fields import Writer
from kdns.controlplane.server.access.users import User
from kdns.controlplane.storage.object_meta import place, typed

_ALLOWED: Final[Json] = {"allowed": True}
_RULES: Final[Json] = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}


@dataclass(frozen=True, slots=True)
class Reviewer:
    """Answers reviews. `user_of` knows the tokens; `audience` is the one that they are for."""

    user_of: Callable[[str], User | None]
    audience: str

    def answered(self, kind: Kind, namespace: str, review: Json, user: User, writer: Writer) -> Json:
        """Returns the review with its status for `user`. Raises 400 or 422 for one that cannot be answered."""
        review = typed(kind, review)
        metadata = review["metadata"] = {**review["metadata"]}
        metadata["namespace"] = metadata.get("namespace", "") if kind.namespaced else ""
        place(kind, namespace, review)
        review["metadata"] = {name: value for name, value in metadata.items() if value}
        return _ANSWERS[kind](self, review, user, writer)

    def access(self, review: Json, _user: User, _writer: Writer) -> Json:
        """Allows everything, whatever the review asks."""
        return {**review, "status": _ALLOWED}

    def rules(self, review: Json, _user: User, _writer: Writer) -> Json:
        """Allows everything; the response has neither metadata nor spec."""
        if not (review.get("spec") or {}).get("namespace"):
            raise bad_request("no namespace on request")
        return {**review, "metadata": {}, "spec": {}, "status": _RULES}

    def myself(self, review: Json, user: User, writer: Writer) -> Json:
        """Returns the user who sent the review; the response has no metadata."""
        return {**review, "metadata": {"creationTimestamp": writer.time}, "status": {"userInfo": user.info}}

    def token(self, review: Json, _user: User, _writer: Writer) -> Json:
        """Returns the token's user, if the token is meant for one of the audiences."""
        spec = review.get("spec") or {}
        if not spec.get("token"):
            raise bad_request("token is required for TokenReview in authentication")
        found = self.user_of(spec["token"]) if self.audience in (spec.get("audiences") or [self.audience]) else None
        if found is None:
            return {**review, "status": {"user": {}, "error": "invalid bearer token"}}
        return {**review, "status": {"authenticated": True, "user": found.info, "audiences": [self.audience]}}


_Answer: TypeAlias = Callable[[Reviewer, Json, User, Writer], Json]
_ANSWERS: Final[Mapping[Kind, _Answer]] = {
    ACCESS_REVIEW: Reviewer.access,
    LOCAL_ACCESS_REVIEW: Reviewer.access,
    SELF_ACCESS_REVIEW: Reviewer.access,
    RULES_REVIEW: Reviewer.rules,
    SELF_REVIEW: Reviewer.myself,
    TOKEN_REVIEW: Reviewer.token,
}
