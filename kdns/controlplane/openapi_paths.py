"""What can be asked of each kind, as OpenAPI paths: kubectl learns from them which query parameters a server knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kdns.controlplane.kinds import Json, Kind
from kdns.controlplane.openapi_types import DELETE_OPTIONS, GVK, PATCH, STATUS, V2, V3, gvk, list_name
from kdns.controlplane.schema import type_of
from kdns.controlplane.views import kind_at

_JSON = "application/json"
_PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)

_QUERY: Final[Mapping[str, tuple[str, str]]] = {
    "allowWatchBookmarks": ("boolean", "With watch: send BOOKMARK events that tell the current resourceVersion."),
    "continue": ("string", "Token of the next page, from the page before."),
    "dryRun": ("string", "All: go through every step but store nothing."),
    "fieldManager": ("string", "Name of who makes the change."),
    "fieldSelector": ("string", "Only objects whose fields match, such as metadata.name=web."),
    "fieldValidation": (
        "string",
        "What unknown and duplicate fields mean: Ignore, Warn (default) or Strict: an error.",
    ),
    "force": ("boolean", "With an apply patch: take over fields that others manage."),
    "gracePeriodSeconds": ("integer", "Seconds the object has to end by itself; 0 deletes at once."),
    "labelSelector": ("string", "Only objects whose labels match, such as app=web,tier!=cache."),
    "limit": ("integer", "At most so many objects in one page."),
    "orphanDependents": ("boolean", "Formerly: whether dependents stay. Use propagationPolicy."),
    "pretty": ("string", "True: indent the answer."),
    "propagationPolicy": ("string", "What happens to dependents: Orphan, Background or Foreground."),
    "resourceVersion": ("string", "The revision to read at, or to watch from."),
    "resourceVersionMatch": ("string", "How resourceVersion is meant for a list: Exact or NotOlderThan."),
    "timeoutSeconds": ("integer", "Seconds after which the answer ends."),
    "watch": ("boolean", "Send changes as they happen, instead of a list."),
}
_LIST = (
    "allowWatchBookmarks continue fieldSelector labelSelector limit pretty resourceVersion resourceVersionMatch"
    " timeoutSeconds watch"
)
_WRITE = "dryRun fieldManager fieldValidation pretty"
_DELETE = "dryRun gracePeriodSeconds orphanDependents pretty propagationPolicy"
_PLACE: Final[Mapping[str, str]] = {"name": "Name of the object.", "namespace": "Namespace of the object."}


@dataclass(frozen=True, slots=True)
class Verb:
    """One thing that can be asked: `action` is Kubernetes' word, `method` HTTP's; "" for body: none is sent."""

    action: str
    method: str
    query: str
    status: int = 200
    body: str = ""
    answer: str = "object"
    media_types: tuple[str, ...] = (_JSON,)


_COLLECTION = (
    Verb("list", "get", _LIST, answer="list"),
    Verb("post", "post", _WRITE, status=201, body="object"),
    Verb("deletecollection", "delete", f"{_LIST} {_DELETE}", body="options", answer="status"),
)
_ITEM = (
    Verb("get", "get", "pretty"),
    Verb("put", "put", _WRITE, body="object"),
    Verb("patch", "patch", f"{_WRITE} force", body="patch", media_types=_PATCH_TYPES),
    Verb("delete", "delete", _DELETE, body="options", answer="status"),
)
_POSTED = Verb("post", "post", _WRITE, status=201, body="object", answer="status")
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
        """The type that `object`, `list`, `options`, `patch` and `status` stand for here."""
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
        """The kind that goes in and out, which a subresource may change."""
        return kind_at(self.kind, self.subresource)


def root(kind: Kind) -> str:
    """The path all resources of the kind's group and version are below, without a leading slash."""
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"


def operations(kind: Kind) -> Iterable[Operation]:
    """All that can be asked of a kind."""
    everywhere = f"/{root(kind)}/{kind.plural}"
    collection = f"/{root(kind)}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else everywhere
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
    for name, doc in _PLACE.items():
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
        answer = {"schema": V3.ref(operation.type_named(verb.answer))}
        item["responses"] = {str(verb.status): {"description": "OK", "content": {_JSON: answer}}}
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
        answer = V2.ref(operation.type_named(verb.answer))
        item["responses"] = {str(verb.status): {"description": "OK", "schema": answer}}
        paths.setdefault(operation.path, {})[verb.method] = item
    return paths
