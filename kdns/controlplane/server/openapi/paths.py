"""The operations of each kind as OpenAPI paths. kubectl reads from them which query parameters a server supports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.kinds.catalogue import Catalogue
from kdns.controlplane.server.conversions import kind_at
from kdns.controlplane.server.discovery import verbs_of
from kdns.controlplane.server.openapi.types import (
    DELETE_OPTIONS,
    GVK,
    PATCH,
    STATUS,
    gvk,
    list_name,
    reference,
    type_name_of,
)
from kdns.controlplane.server.patch import APPLY_PATCH, patch_types
from kdns.controlplane.server.representation import JSON, YAML

_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("allowWatchBookmarks", "force", "orphanDependents", "watch"), "boolean"),
    **dict.fromkeys(("gracePeriodSeconds", "limit", "timeoutSeconds"), "integer"),
}
"""Query parameter → its type, if that is not a string."""

_LIST = (
    "allowWatchBookmarks continue fieldSelector labelSelector limit pretty resourceVersion resourceVersionMatch"
    " timeoutSeconds watch"
)
_WRITE = "dryRun fieldManager fieldValidation pretty"
_DELETE = "dryRun gracePeriodSeconds orphanDependents pretty propagationPolicy"


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: `action` is its name in Kubernetes, `method` in HTTP. An empty `body` means that none is sent."""

    action: str
    method: str
    query: str
    statuses: tuple[tuple[int, str], ...] = ((200, "OK"),)
    body: str = ""
    response: str = "object"


_OK, _NEW, _ACCEPTED = (200, "OK"), (201, "Created"), (202, "Accepted")
_CREATED, _CHANGED = (_OK, _NEW, _ACCEPTED), (_OK, _NEW)
_CREATE = Verb("post", "post", _WRITE, statuses=_CREATED, body="object")
_COLLECTION = (
    Verb("list", "get", _LIST, response="list"),
    _CREATE,
    Verb("deletecollection", "delete", f"{_LIST} {_DELETE}", body="options", response="status"),
)
_ITEM = (
    Verb("get", "get", "pretty"),
    Verb("put", "put", _WRITE, _CHANGED, body="object"),
    Verb("patch", "patch", f"{_WRITE} force", _CHANGED, body="patch"),
    Verb("delete", "delete", _DELETE, (_OK, _ACCEPTED), body="options", response="status"),
)
_POSTED = Verb("post", "post", _WRITE, statuses=_CREATED, body="object", response="status")
_SUBRESOURCE: Final[Mapping[str, tuple[Verb, ...]]] = {
    "status": _ITEM[:3],
    "finalize": _ITEM[1:2],
    "eviction": (_POSTED,),
    "binding": (_POSTED,),
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One verb on one path of a kind."""

    path: str
    kind: Kind
    verb: Verb
    subresource: str = ""

    def type_named(self, word: str) -> str:
        """Returns the type for `object`, `list`, `options`, `patch` or `status` in this operation."""
        match word:
            case "list":
                return list_name(self.kind)
            case "options":
                return DELETE_OPTIONS
            case "patch":
                return PATCH
            case "status":
                return STATUS
            case _:
                return type_name_of(self.shown)

    @property
    def shown(self) -> Kind:
        """The kind of the objects in request and response; a subresource may have its own."""
        return kind_at(self.kind, self.subresource)


def root(kind: Kind) -> str:
    """Returns the path of the kind's group and version, without a leading slash."""
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"


def operations(catalogue: Catalogue, kind: Kind) -> Iterable[Operation]:
    everywhere = f"/{root(kind)}/{kind.plural}"
    collection = f"/{root(kind)}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else everywhere
    if kind.is_review:
        yield Operation(collection, kind, _CREATE)
        return
    if kind.namespaced:
        yield Operation(everywhere, kind, _COLLECTION[0])
    verbs = verbs_of(catalogue, kind)
    yield from (Operation(collection, kind, verb) for verb in _COLLECTION if verb.action in {"post", *verbs})
    yield from (Operation(f"{collection}/{{name}}", kind, verb) for verb in _ITEM)
    for name in kind.subresources:
        yield from (
            Operation(f"{collection}/{{name}}/{name}", kind, verb, name) for verb in _SUBRESOURCE.get(name, _ITEM[:3])
        )


def _consumed(operation: Operation) -> tuple[str, ...]:
    """Returns the media types of a request's body."""
    return (*patch_types(operation.kind), APPLY_PATCH) if operation.verb.body == "patch" else ("*/*",)


def _produced(verb: Verb) -> list[str]:
    """Returns the media types of a response; those of a watch after those of a list."""
    return [JSON, YAML, *([f"{JSON};stream=watch"] if verb.action == "list" else [])]


def _parameters(operation: Operation) -> list[Json]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in ("name", "namespace")
        if f"{{{name}}}" in operation.path
    ]
    in_query = [
        {"name": name, "in": "query", "schema": {"type": _TYPES.get(name, "string")}}
        for name in sorted({*operation.verb.query.split()})
    ]
    return in_path + in_query


def v3_paths(catalogue: Catalogue, kinds: Iterable[Kind]) -> Json:
    """Returns the path items of an OpenAPI v3 document."""
    paths: Json = {}
    for operation in (operation for kind in kinds for operation in operations(catalogue, kind)):
        verb = operation.verb
        response = {"schema": reference(operation.type_named(verb.response))}
        content = dict.fromkeys(_produced(verb), response)
        item: Json = {
            "x-kubernetes-action": verb.action,
            GVK: gvk(operation.shown),
            "parameters": _parameters(operation),
            "responses": {str(status): {"description": text, "content": content} for status, text in verb.statuses},
        }
        if verb.body:
            schema = reference(operation.type_named(verb.body))
            item["requestBody"] = {
                "content": {media_type: {"schema": schema} for media_type in _consumed(operation)},
                **({"required": True} if verb.body != "options" else {}),
            }
        paths.setdefault(operation.path, {})[verb.method] = item
    return paths
