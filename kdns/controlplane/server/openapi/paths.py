"""The operations of each kind as OpenAPI paths. kubectl reads from them which query parameters a server supports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kdns.controlplane.meta.kinds import REVIEWS, Json, Kind
from kdns.controlplane.schema.schema import type_of
from kdns.controlplane.server.openapi.types import DELETE_OPTIONS, GVK, PATCH, STATUS, V2, V3, gvk, list_name
from kdns.controlplane.server.views import kind_at

_JSON = "application/json"
_PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)

_QUERY: Final[Mapping[str, tuple[str, str]]] = {
    "allowWatchBookmarks": ("boolean", "With watch: send BOOKMARK events that carry the current resourceVersion."),
    "continue": ("string", "Token of the next page, from the previous page."),
    "dryRun": ("string", "All: go through every step but store nothing."),
    "fieldManager": ("string", "Name of the manager that makes the change."),
    "fieldSelector": ("string", "Only objects whose fields match, such as metadata.name=web."),
    "fieldValidation": (
        "string",
        "What unknown and duplicate fields mean: Ignore, Warn (default) or Strict: an error.",
    ),
    "force": ("boolean", "With an apply patch: take over fields of other managers."),
    "gracePeriodSeconds": ("integer", "Seconds the object has to end by itself; 0 deletes at once."),
    "labelSelector": ("string", "Only objects whose labels match, such as app=web,tier!=cache."),
    "limit": ("integer", "The maximum number of objects in one page."),
    "orphanDependents": ("boolean", "Deprecated: whether dependents stay. Use propagationPolicy."),
    "pretty": ("string", "True: indent the response."),
    "propagationPolicy": ("string", "What happens to dependents: Orphan, Background or Foreground."),
    "resourceVersion": ("string", "The revision to read at, or to watch from."),
    "resourceVersionMatch": ("string", "How a list applies resourceVersion: Exact or NotOlderThan."),
    "timeoutSeconds": ("integer", "Seconds after which the response ends."),
    "watch": ("boolean", "Send changes as they happen, instead of a list."),
}
_LIST = (
    "allowWatchBookmarks continue fieldSelector labelSelector limit pretty resourceVersion resourceVersionMatch"
    " timeoutSeconds watch"
)
_WRITE = "dryRun fieldManager fieldValidation pretty"
_DELETE = "dryRun gracePeriodSeconds orphanDependents pretty propagationPolicy"
_PATH_PARAMETERS: Final[Mapping[str, str]] = {"name": "Name of the object.", "namespace": "Namespace of the object."}


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: `action` is its name in Kubernetes, `method` in HTTP. An empty `body` means that none is sent."""

    action: str
    method: str
    query: str
    status: int = 200
    body: str = ""
    response: str = "object"
    media_types: tuple[str, ...] = (_JSON,)


_CREATE = Verb("post", "post", _WRITE, status=201, body="object")
_COLLECTION = (
    Verb("list", "get", _LIST, response="list"),
    _CREATE,
    Verb("deletecollection", "delete", f"{_LIST} {_DELETE}", body="options", response="status"),
)
_ITEM = (
    Verb("get", "get", "pretty"),
    Verb("put", "put", _WRITE, body="object"),
    Verb("patch", "patch", f"{_WRITE} force", body="patch", media_types=_PATCH_TYPES),
    Verb("delete", "delete", _DELETE, body="options", response="status"),
)
_POSTED = Verb("post", "post", _WRITE, status=201, body="object", response="status")
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
        """The type for `object`, `list`, `options`, `patch` or `status` in this operation."""
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
                return type_of(self.shown)

    @property
    def shown(self) -> Kind:
        """The kind of the objects in request and response; a subresource may have its own."""
        return kind_at(self.kind, self.subresource)


def root(kind: Kind) -> str:
    """The path of the kind's group and version, without a leading slash."""
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"


def operations(kind: Kind) -> Iterable[Operation]:
    """The operations of a kind."""
    everywhere = f"/{root(kind)}/{kind.plural}"
    collection = f"/{root(kind)}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else everywhere
    if kind in REVIEWS:
        yield Operation(collection, kind, _CREATE)
        return
    if kind.namespaced:
        yield Operation(everywhere, kind, _COLLECTION[0])
    yield from (Operation(collection, kind, verb) for verb in _COLLECTION)
    yield from (Operation(f"{collection}/{{name}}", kind, verb) for verb in _ITEM)
    for name in kind.subresources:
        yield from (
            Operation(f"{collection}/{{name}}/{name}", kind, verb, name) for verb in _SUBRESOURCE.get(name, _ITEM[:3])
        )


def _common(operation: Operation) -> Json:
    kind, verb = operation.kind, operation.verb
    scope = "ForAllNamespaces" if kind.namespaced and "{namespace}" not in operation.path else ""
    group = kind.group.removesuffix(".k8s.io").capitalize() or "Core"
    subject = f"{kind.kind}{operation.subresource.capitalize()}{scope}"
    return {
        "operationId": f"{verb.action}{group}{kind.version.capitalize()}{subject}",
        "description": " ".join(filter(None, (verb.action, kind.plural, operation.subresource))),
        "tags": [f"{group.lower()}_{kind.version}"],
        "x-kubernetes-action": verb.action,
        GVK: gvk(operation.shown),
    }


def _parameters(operation: Operation) -> Iterable[tuple[str, str, str, str]]:
    """Name, place, type and documentation of each parameter."""
    for name, doc in _PATH_PARAMETERS.items():
        if f"{{{name}}}" in operation.path:
            yield name, "path", "string", doc
    for name in sorted(set(operation.verb.query.split())):
        yield (name, "query", *_QUERY[name])


def v3_paths(kinds: Iterable[Kind]) -> Json:
    """The path items of an OpenAPI v3 document."""
    paths: Json = {}
    for operation in (operation for kind in kinds for operation in operations(kind)):
        verb = operation.verb
        item = _common(operation)
        item["parameters"] = [
            {"name": name, "in": place, "description": doc, "schema": {"type": of}}
            | ({"required": True} if place == "path" else {})
            for name, place, of, doc in _parameters(operation)
        ]
        if verb.body:
            schema = V3.ref(operation.type_named(verb.body))
            item["requestBody"] = {
                "content": {media_type: {"schema": schema} for media_type in verb.media_types},
                **({"required": True} if verb.body != "options" else {}),
            }
        response = {"schema": V3.ref(operation.type_named(verb.response))}
        item["responses"] = {str(verb.status): {"description": "OK", "content": {_JSON: response}}}
        paths.setdefault(operation.path, {})[verb.method] = item
    return paths


def v2_paths(kinds: Iterable[Kind]) -> Json:
    """The path items of an OpenAPI v2 (Swagger) document."""
    paths: Json = {}
    for operation in (operation for kind in kinds for operation in operations(kind)):
        verb = operation.verb
        item = _common(operation) | {"consumes": list(verb.media_types), "produces": [_JSON]}
        item["parameters"] = [
            {"name": name, "in": place, "description": doc, "type": of}
            | ({"required": True} if place == "path" else {})
            for name, place, of, doc in _parameters(operation)
        ]
        if verb.body:
            body = {"name": "body", "in": "body", "schema": V2.ref(operation.type_named(verb.body))}
            item["parameters"].append(body | ({"required": True} if verb.body != "options" else {}))
        response = V2.ref(operation.type_named(verb.response))
        item["responses"] = {str(verb.status): {"description": "OK", "schema": response}}
        paths.setdefault(operation.path, {})[verb.method] = item
    return paths
