"""Reviews of access and identity: every authenticated user may do everything (kube-apiserver: AlwaysAllow).

A review is answered from its spec and its user; nothing is stored (pkg/registry/authorization, authentication).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from kdns.controlplane.fieldmanager.managed_fields import Writer, entries_of_new
from kdns.controlplane.meta.errors import Cause, bad_request, invalid
from kdns.controlplane.meta.field_errors import invalid_value, required
from kdns.controlplane.meta.kinds import (
    ACCESS_REVIEW,
    LOCAL_ACCESS_REVIEW,
    RULES_REVIEW,
    SELF_ACCESS_REVIEW,
    SELF_REVIEW,
    TOKEN_REVIEW,
    Json,
    Kind,
)
from kdns.controlplane.resources.label_selectors import key_problems, operator_problems
from kdns.controlplane.server.access.users import User
from kdns.controlplane.storage.object_meta import place, typed

_NAMELESS: Final = Kind("authorization.k8s.io", "v1", "", "")
"""Errors about access reviews name no kind."""
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
        if entries := entries_of_new(kind, review, writer):
            review["metadata"]["managedFields"] = entries
        return _ANSWERS[kind](self, review, user, writer)

    def access(self, review: Json, _user: User, _writer: Writer) -> Json:
        """Allows everything."""
        if causes := _access_causes(review):
            raise invalid(_NAMELESS, "", causes)
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


def _access_causes(review: Json) -> list[Cause]:
    """Returns the violated rules of an access review (pkg/apis/authorization/validation)."""
    spec, metadata = review.get("spec") or {}, review["metadata"]
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    shown = {"Path": path.get("path", ""), "Verb": path.get("verb", "")} if path is not None else None
    causes = []
    if resource is not None and path is not None:
        why = "cannot be specified in combination with resourceAttributes"
        causes.append(invalid_value("spec.nonResourceAttributes", shown, why))
    if resource is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        causes.append(invalid_value("spec.resourceAttributes", None, why))
    if review["kind"] != SELF_ACCESS_REVIEW.kind and not (spec.get("user") or spec.get("groups")):
        causes.append(invalid_value("spec.user", "", "at least one of user or group must be specified"))
    for name in ("fieldSelector", "labelSelector"):
        if (selector := (resource or {}).get(name)) is not None:
            causes += _selector_causes(
                f"spec.resourceAttributes.{name}", selector, is_of_labels=name == "labelSelector"
            )
    is_local = review["kind"] == LOCAL_ACCESS_REVIEW.kind
    allowed = {"namespace", "managedFields"} if is_local else {"managedFields"}
    if not metadata.keys() <= allowed:
        why = f"must be empty{' except for namespace' if is_local else ''}"
        causes.append(invalid_value("metadata", metadata, why))
    if is_local and resource is not None and (named := resource.get("namespace", "")) != metadata["namespace"]:
        causes.append(invalid_value("spec.resourceAttributes.namespace", named, "must match metadata.namespace"))
    if is_local and path is not None:
        causes.append(invalid_value("spec.nonResourceAttributes", shown, "disallowed on this kind of request"))
    return causes


def _selector_causes(path: str, selector: Json, *, is_of_labels: bool) -> list[Cause]:
    """Returns the violated rules of selectors.

    Unknown operators are allowed: a newer client may know more operators.
    """
    causes = []
    text, rows = selector.get("rawSelector"), selector.get("requirements") or []
    if text and rows:
        causes.append(invalid_value(f"{path}.rawSelector", text, "may not specified at the same time as requirements"))
    if not text and not rows:
        why = f"when {path} is specified, requirements or rawSelector is required"
        causes.append(required(f"{path}.requirements", why))
    for index, row in enumerate(rows):
        at = f"{path}.requirements[{index}]"
        if is_of_labels:
            causes += [*operator_problems(at, row), *key_problems(at, row)]
        else:
            causes += [] if row.get("key") else [required(f"{at}.key", "must be specified")]
            causes += operator_problems(at, row)
    return causes
