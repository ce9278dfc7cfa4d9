"""URL paths of the API: which resource, in which namespace, which object, which subresource."""

from __future__ import annotations

from dataclasses import dataclass

from kdns.controlplane.apimachinery.errors import StatusError
from kdns.controlplane.apimachinery.kinds import NAMESPACE, Kinds
from kdns.controlplane.server.request import Request

_WITH_NAME = 2


def unknown_path() -> StatusError:
    """Returns 404 for an unknown path."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


@dataclass(frozen=True, slots=True)
class Path:
    """A path below /api or /apis: `names` are the plural of a kind, a name, a subresource and what follows it."""

    api_version: str
    namespace: str | None
    names: tuple[str, ...]


def parsed(path: str) -> Path:
    """Returns the parts of a decoded path. Raises 404 for a path that names no resource."""
    match path.strip("/").split("/"):
        case ["api", version, *rest]:
            api_version = version
        case ["apis", group, version, *rest]:
            api_version = f"{group}/{version}"
        case _:
            raise unknown_path()
    in_namespace = rest[:1] == ["namespaces"] and len(rest) > _WITH_NAME and rest[2] not in NAMESPACE.subresources
    namespace, rest = (rest[1], rest[2:]) if in_namespace else (None, rest)
    return Path(api_version, namespace, tuple(rest))


def target(path: Path, kinds: Kinds) -> Request:
    """Returns the resource that a path names. Raises 404 for an unknown one."""
    if "" in {*path.names, path.namespace}:
        raise unknown_path()
    plural, name, subresource, *more = (*path.names, "", "", "")
    kind = kinds.by_plural(path.api_version, plural)
    placed = path.namespace is not None
    if kind is None or any(more) or (placed and not kind.namespaced) or (name and placed != kind.namespaced):
        raise unknown_path()
    if kind.is_review and (name or placed != kind.namespaced):
        raise unknown_path()
    if subresource and subresource not in kind.subresources:
        raise unknown_path()
    served_version = kind if kind.stored_as else None
    return Request(kind.stored_kind, path.namespace, name, subresource, served_version)
