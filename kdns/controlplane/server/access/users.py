"""Users: facts about the sender of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kdns.controlplane.apimachinery.kinds import Json

MASTERS: Final = "system:masters"
AUTHENTICATED: Final = "system:authenticated"
ANONYMOUS: Final = "system:anonymous"
UNAUTHENTICATED: Final = "system:unauthenticated"


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
    if {AUTHENTICATED, UNAUTHENTICATED} & set(user.groups):
        return user
    return User(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)
