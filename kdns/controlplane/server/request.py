"""A request on a resource: what its path names, and the options of a write (meta/v1 CreateOptions and others)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from kdns.cluster.objects import Key
from kdns.controlplane.apimachinery.errors import Cause, StatusError, invalid
from kdns.controlplane.apimachinery.field_errors import forbidden, invalid_value, required, unsupported
from kdns.controlplane.apimachinery.kinds import NAMESPACE, Kind, Kinds
from kdns.controlplane.schema.field_validation import Policy

MANAGER_BYTES_MAX = 128
POLICIES = ("", "Ignore", "Strict", "Warn")

_KINDS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}
_UNKNOWN_AGENT = "unknown"
_WITH_NAME = 2


@dataclass(frozen=True, slots=True)
class Request:
    """The resource, and the options of a write. It is a collection if `name` is "".

    `namespace` None means all, or a cluster-scoped kind. Objects are read and written as the kind `served_version`.
    A write without a `manager` adds no managedFields.
    """

    kind: Kind
    namespace: str | None = None
    name: str = ""
    subresource: str = ""
    served_version: Kind | None = None
    manager: str = ""
    dry_run: bool = False
    force: bool = False
    policy: Policy = "Warn"

    @property
    def key(self) -> Key:
        """Namespace, "" for cluster-scoped objects, and name."""
        return ((self.namespace or "") if self.kind.namespaced else "", self.name)


def unknown_path() -> StatusError:
    """Returns 404 for an unknown path."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def target(path: str, kinds: Kinds, refuse: Callable[[Request], object]) -> Request:
    """Returns the resource that a decoded path below /api or /apis names. Raises 404 for an unknown one.

    `refuse` gets a resource with a subresource that its kind does not have, and may raise another error.
    """
    match path.strip("/").split("/"):
        case ["api", version, *rest]:
            api_version = version
        case ["apis", group, version, *rest]:
            api_version = f"{group}/{version}"
        case _:
            raise unknown_path()
    namespace = None
    if rest[:1] == ["namespaces"] and len(rest) > _WITH_NAME and rest[2] not in NAMESPACE.subresources:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *more = (*rest, "", "", "")
    kind, is_placed = kinds.by_plural.get((api_version, plural)), namespace is not None
    if kind is None or "" in rest or namespace == "" or (is_placed and not kind.namespaced):
        raise unknown_path()
    if (name and is_placed != kind.namespaced) or (kind.is_review and (name or is_placed != kind.namespaced)):
        raise unknown_path()
    request = Request(kind.stored_as or kind, namespace, name, subresource, kind if kind.stored_as else None)
    if subresource and subresource not in kind.subresources:
        refuse(request)
        raise unknown_path()
    if any(more):
        raise unknown_path()
    return request


def with_write_options(
    request: Request,
    method: str,
    *,
    manager: str,
    user_agent: str,
    dry_run: Sequence[str],
    policy: str,
    force: bool | None = None,
    applies: bool = False,
) -> Request:
    """Returns a request with the options of a POST, PUT or PATCH. Raises 422 for invalid values."""
    causes = []
    if force is not None and method == "PATCH" and not applies:
        causes.append(forbidden("force", "may not be specified for non-apply patch"))
    if applies and not manager:
        causes.append(required("fieldManager", "is required for apply patch"))
    if not (manager.isascii() and manager.isprintable() and len(manager) <= MANAGER_BYTES_MAX):
        causes += _manager_causes(manager)
    if dry_run:
        causes += _dry_run_causes(dry_run)
    if policy not in POLICIES:
        causes.append(unsupported("fieldValidation", policy, POLICIES))
    if causes:
        raise _invalid(method, causes)
    chosen = cast("Policy", policy or "Warn")
    return replace(
        request, manager=manager or manager_of(user_agent), dry_run=bool(dry_run), policy=chosen, force=bool(force)
    )


def checked_dry_run(method: str, values: Sequence[str]) -> bool:
    """Returns whether dryRun is All. Raises 422 for any other value."""
    if causes := _dry_run_causes(values):
        raise _invalid(method, causes)
    return bool(values)


def manager_of(user_agent: str) -> str:
    """Returns the manager of a client that names none: the printable part of its User-Agent up to the first slash.

    Differs: kube-apiserver gives a client without User-Agent an entry without a name.
    """
    shown = "".join(filter(str.isprintable, user_agent.partition("/")[0]))
    return shown.encode()[:MANAGER_BYTES_MAX].decode(errors="ignore") or _UNKNOWN_AGENT


def _manager_causes(manager: str) -> list[Cause]:
    causes = []
    if len(manager.encode()) > MANAGER_BYTES_MAX:
        causes.append(Cause("fieldManager", "Too long", f"may not be more than {MANAGER_BYTES_MAX} bytes"))
    position = 0
    for letter in manager:
        if not letter.isprintable():
            why = f"invalid character U+{ord(letter):04X} (at position {position})"
            causes.append(invalid_value("fieldManager", manager, why))
        position += len(letter.encode())
    return causes


def _dry_run_causes(values: Sequence[str]) -> list[Cause]:
    return [] if all(value == "All" for value in values) else [unsupported("dryRun", list(values), ("All",))]


def _invalid(method: str, causes: list[Cause]) -> StatusError:
    return invalid(Kind("meta.k8s.io", "v1", _KINDS[method], ""), "", causes)
