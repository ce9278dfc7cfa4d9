"""URL paths of the API: which resource, in which namespace, which object, which subresource."""

from __future__ import annotations

from dataclasses import dataclass

from kdns.controlplane.meta.errors import StatusError
from kdns.controlplane.meta.kinds import NAMESPACE, Kind, Kinds

_WITH_NAME, _WITH_SUBRESOURCE = 2, 3


@dataclass(frozen=True, slots=True)
class Target:
    """The resource of a path: a collection if `name` is "". namespace None means all, or a cluster-scoped kind.

    `watch` is set by the deprecated paths that begin with watch/. Objects are converted to the kind `served_version`.
    """

    kind: Kind
    namespace: str | None = None
    name: str = ""
    subresource: str = ""
    watch: bool = False
    served_version: Kind | None = None

    @property
    def space(self) -> str:
        """The namespace as a key has it: "" for cluster-scoped objects."""
        return self.namespace or ""


def unknown_path() -> StatusError:
    """Returns 404 for an unknown path."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def target(path: str, kinds: Kinds) -> Target:
    """Returns the resource that a decoded path below /api or /apis names. Raises 404 for an unknown one."""
    match path.strip("/").split("/"):
        case ["api", version, *rest]:
            api_version = version
        case ["apis", group, version, *rest]:
            api_version = f"{group}/{version}"
        case _:
            raise unknown_path()
    watch = rest[:1] == ["watch"]
    if watch:
        rest = rest[1:]
    if not rest or "" in rest:
        raise unknown_path()
    in_namespace = rest[0] == "namespaces" and len(rest) > _WITH_NAME and rest[2] not in NAMESPACE.subresources
    namespace, rest = (rest[1], rest[2:]) if in_namespace else (None, rest)
    kind = kinds.by_plural(api_version, rest[0])
    if kind is None or len(rest) > _WITH_SUBRESOURCE:
        raise unknown_path()
    name = rest[1] if len(rest) >= _WITH_NAME else ""
    subresource = rest[2] if len(rest) == _WITH_SUBRESOURCE else ""
    placed = namespace is not None
    if (placed and not kind.namespaced) or (name and placed != kind.namespaced):
        raise unknown_path()
    if kind.is_review and (name or watch or placed != kind.namespaced):
        raise unknown_path()
    if subresource and subresource not in kind.subresources:
        raise unknown_path()
    return Target(kind.stored_kind, namespace, name, subresource, watch, kind if kind.stored_as else None)
