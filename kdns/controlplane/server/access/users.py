"""Users: facts about the sender of a request, and impersonation (apiserver: filters/impersonation.go)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from kdns.controlplane.meta.errors import StatusError, bad_request
from kdns.controlplane.meta.field_errors import quoted
from kdns.controlplane.meta.kinds import Json

MASTERS: Final = "system:masters"
AUTHENTICATED: Final = "system:authenticated"
ANONYMOUS: Final = "system:anonymous"
UNAUTHENTICATED: Final = "system:unauthenticated"

_ACCOUNT: Final = "system:serviceaccount:"
_HEADER: Final = "impersonate-"
_EXTRA: Final = "extra-"


@dataclass(frozen=True, slots=True)
class User:
    """A user as authentication found it; `extra` has further facts by name."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def info(self) -> Json:
        """The UserInfo of authentication.k8s.io/v1."""
        fields: Json = {"username": self.name, "uid": self.uid, "groups": [*self.groups]}
        fields["extra"] = {key: [*values] for key, values in self.extra.items()}
        return {name: value for name, value in fields.items() if value}


ADMIN: Final = User("kubernetes-admin", (MASTERS, AUTHENTICATED))
"""The user of an API without authentication, or of an unknown token."""

NOBODY: Final = User(ANONYMOUS, (UNAUTHENTICATED,))
"""The user of a request to an open path."""


def authenticated(user: User) -> User:
    """Returns the user as a member of system:authenticated."""
    if {AUTHENTICATED, UNAUTHENTICATED} & set(user.groups):
        return user
    return User(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)


def acting(user: User, headers: Iterable[tuple[str, str]]) -> User:
    """Returns the user of the headers Impersonate-…, or of the request. Raises 403 except for system:masters.

    Differs: kube-apiserver checks with its authorizers whether the user may impersonate.
    """
    sent = [(name.lower().removeprefix(_HEADER), value) for name, value in headers if name.lower().startswith(_HEADER)]
    if not sent:
        return user
    by_name: dict[str, list[str]] = {}
    for name, value in sent:
        by_name.setdefault(name, []).append(value)
    extra: dict[str, tuple[str, ...]] = {
        unquote(name.removeprefix(_EXTRA)): tuple(by_name[name]) for name in by_name if name.startswith(_EXTRA)
    }
    (name, *_), (uid, *_) = by_name.get("user", [""]), by_name.get("uid", [""])
    groups = tuple(by_name.get("group", ()))
    if not name:
        raise bad_request("headers Impersonate-Group, -Uid and -Extra need Impersonate-User")
    if MASTERS not in user.groups:
        why = f'User {quoted(user.name)} cannot impersonate resource "users" in API group "" at the cluster scope'
        details = {"name": name, "kind": "users"}
        raise StatusError(403, "Forbidden", f"users {quoted(name)} is forbidden: {why}", details)
    return authenticated(User(name, groups or _own_groups(name), uid, extra))


def _own_groups(name: str) -> tuple[str, ...]:
    """Returns the groups that follow from a name."""
    if name == ANONYMOUS:
        return (UNAUTHENTICATED,)
    namespace, _, account_name = name.removeprefix(_ACCOUNT).partition(":")
    if not name.startswith(_ACCOUNT) or not (namespace and account_name):
        return ()
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
