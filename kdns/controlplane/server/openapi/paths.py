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
    statuses: tuple[int, ...] = (200,)
    body: str = ""
    response: str = "object"


_CREATED, _CHANGED = (200, 201, 202), (200, 201)
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
    Verb("delete", "delete", _DELETE, (200, 202), body="options", response="status"),
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


def _described(operation: Operation) -> Json:
    """Returns the names and description of an operation, in the words of kube-apiserver."""
    kind, verb, subresource = operation.kind, operation.verb, operation.subresource
    word, text, text_below = _WORDS[verb.action]
    words = (kind.group.removesuffix(".k8s.io") or "core").split(".")
    group = "".join(map(_capitalized, words))
    collection = "Collection" if verb.action == "deletecollection" else ""
    namespaced = "Namespaced" if "{namespace}" in operation.path else ""
    scope = "ForAllNamespaces" if kind.namespaced and not namespaced else ""
    subject = f"{collection}{namespaced}{kind.kind}{_capitalized(subresource)}{scope}"
    is_plural = kind.kind.endswith("s") and not kind.kind.endswith("ss")
    one = kind.kind if is_plural else f"{'an' if kind.kind[0] in 'AEIOU' else 'a'} {kind.kind}"
    return {
        "operationId": f"{word}{group}{_capitalized(kind.version)}{subject}",
        "description": (text_below if subresource else text).format(kind=kind.kind, one=one, subresource=subresource),
        "tags": [f"{words[0]}{''.join(map(_capitalized, words[1:]))}_{kind.version}"],
        "x-kubernetes-action": verb.action,
        GVK: gvk(operation.shown),
    }


_WORDS: Final[Mapping[str, tuple[str, str, str]]] = {
    "get": ("read", "read the specified {kind}", "read {subresource} of the specified {kind}"),
    "put": ("replace", "replace the specified {kind}", "replace {subresource} of the specified {kind}"),
    "patch": (
        "patch",
        "partially update the specified {kind}",
        "partially update {subresource} of the specified {kind}",
    ),
    "post": ("create", "create {one}", "create {subresource} of {one}"),
    "delete": ("delete", "delete {one}", ""),
    "deletecollection": ("delete", "delete collection of {kind}", ""),
    "list": ("list", "list or watch objects of kind {kind}", ""),
}
"""Action → the first word of its operationId, and its texts for an object and for a subresource."""


def _capitalized(word: str) -> str:
    return f"{word[:1].upper()}{word[1:]}"


def _consumed(operation: Operation) -> tuple[str, ...]:
    """Returns the media types of a request's body."""
    return (*patch_types(operation.kind), APPLY_PATCH) if operation.verb.body == "patch" else ("*/*",)


def _produced(verb: Verb) -> list[str]:
    """Returns the media types of a response; those of a watch after those of a list."""
    return [JSON, YAML, *([f"{JSON};stream=watch"] if verb.action == "list" else [])]


def _parameters(operation: Operation) -> Iterable[tuple[str, str, str, str]]:
    """Yields name, place, type and documentation of each parameter."""
    for name, doc in _PATH_PARAMETERS.items():
        if f"{{{name}}}" in operation.path:
            yield name, "path", "string", doc
    for name in sorted(set(operation.verb.query.split())):
        yield (name, "query", *_QUERY[name])


def v3_paths(catalogue: Catalogue, kinds: Iterable[Kind]) -> Json:
    """Returns the path items of an OpenAPI v3 document."""
    paths: Json = {}
    for operation in (operation for kind in kinds for operation in operations(catalogue, kind)):
        verb = operation.verb
        item = _described(operation)
        item["parameters"] = [
            {"name": name, "in": place, "description": doc, "schema": {"type": of}}
            | ({"required": True} if place == "path" else {})
            for name, place, of, doc in _parameters(operation)
        ]
        if verb.body:
            schema = reference(operation.type_named(verb.body))
            item["requestBody"] = {
                "content": {media_type: {"schema": schema} for media_type in _consumed(operation)},
                **({"required": True} if verb.body != "options" else {}),
            }
        response = {"schema": reference(operation.type_named(verb.response))}
        content = dict.fromkeys(_produced(verb), response)
        item["responses"] = _responses(verb, {"content": content})
        paths.setdefault(operation.path, {})[verb.method] = item
    return paths


def _responses(verb: Verb, content: Json) -> Json:
    answers = {str(status): {"description": _STATUSES[status], **content} for status in verb.statuses}
    return {**answers, "401": {"description": "Unauthorized"}}


_STATUSES: Final[Mapping[int, str]] = {200: "OK", 201: "Created", 202: "Accepted"}
