"""The OpenAPI v3 documents, an index and one document per group version, with the parts that kubectl reads.

kubectl explain reads descriptions. kubectl's writing commands read merge keys, the patch types of each kind, and
whether it has the query parameters dryRun and fieldValidation.

Differs: a kind has one path, without the operations and types that kubectl does not look up. v2 is empty: kubectl
before 1.29 reads it for each write, later ones for kinds that v3 lacks, and both leave the checks of a missing kind to
the server. `explain --output plaintext-openapiv2` has no text.

A document is built at the first request after a change of its kinds, and shared: it must not be changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.kinds.catalogue import Catalogue
from kdns.controlplane.schema.descriptions import common_description, field_description, type_description
from kdns.controlplane.schema.schema import KUBERNETES_VERSION, type_of
from kdns.controlplane.schema.types import META, SCALARS, Field, Type, TypeName, fields, name_of, type_named
from kdns.controlplane.server.patch import APPLY_PATCH, patch_types

_V2_JSON: Final = b'{"swagger":"2.0","info":{"title":"kdns control plane","version":"v2"},"paths":{}}'
_V2_PROTOBUF: Final = b"\n\x032.0"
"""`openapi.v2.Document` of gnostic's OpenAPIv2.proto with field 1, swagger; clients in Go read only protobuf."""
_V2_PROTOBUF_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_INFO: Final[Json] = {"title": "kdns control plane", "version": f"v{KUBERNETES_VERSION}"}
_OBJECT_META: Final = f"{META}.ObjectMeta"
GVK: Final = "x-kubernetes-group-version-kind"
_UTIL = "io.k8s.apimachinery.pkg"

_PLAIN: Final[Mapping[str, Json]] = {
    "string": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "number": {"type": "number", "format": "double"},
    "strings": {"type": "array", "items": {"type": "string"}},
}
_NAMED: Final[Mapping[str, TypeName]] = {
    "quantity": f"{_UTIL}.api.resource.Quantity",
    "intorstr": f"{_UTIL}.util.intstr.IntOrString",
    "time": f"{META}.Time",
    "microtime": f"{META}.MicroTime",
    "fieldsv1": f"{META}.FieldsV1",
    "rawextension": f"{_UTIL}.runtime.RawExtension",
}
_SCALAR_TEXTS: Final[Mapping[TypeName, str]] = {
    "quantity": (
        "An amount, as a number with an optional suffix: m (thousandth), k, M, G, T, P, E or Ki, Mi, Gi, Ti, Pi, Ei."
    ),
    "intorstr": "A number or a string, such as a port's number or name.",
    "time": "A date and time (RFC 3339).",
    "microtime": "A date and time with microseconds (RFC 3339).",
    "fieldsv1": "A tree of fields.",
    "rawextension": "An object of any kind.",
}
_PATCH_QUERY: Final = ("dryRun", "fieldManager", "fieldValidation", "force", "pretty")


def v2_document(accept: str) -> tuple[bytes, str]:
    """The empty v2 document and its media type; client-go spells that of protobuf with an @ in `accept`."""
    return (_V2_PROTOBUF, _V2_PROTOBUF_TYPE) if "openapi.spec.v2" in accept else (_V2_JSON, "application/json")


@dataclass(frozen=True, slots=True)
class Document:
    """The document of one group version; its ETag `digest` is the hash of its content, equal in every process."""

    content: Json
    encoded: bytes
    digest: str
    changes: int
    """The count of its kinds' changes when it was built."""


@dataclass(slots=True)
class Documents:
    """The documents of one server's kinds."""

    kinds: Catalogue
    _built: dict[str, Document] = field(default_factory=dict)

    def index(self) -> Json:
        """`/openapi/v3`: the documents, each with a URL that changes with its content."""
        keys = dict.fromkeys(map(root, self.kinds))
        return {"paths": {key: {"serverRelativeURL": f"/openapi/v3/{key}?hash={self[key].digest}"} for key in keys}}

    def __getitem__(self, key: str) -> Document:
        """By group version, such as `apis/discovery.k8s.io/v1`. Raises KeyError if it is not served."""
        changes, document = self.kinds.changes[key.partition("/")[2]], self._built.get(key)
        if document is None or document.changes != changes:
            kinds = [kind for kind in self.kinds if root(kind) == key]
            if not kinds:
                raise KeyError(key)
            paths, schemas = dict(map(_path, kinds)), _schemas(kinds)
            content = {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}
            encoded = msgspec.json.encode(content, order="deterministic")
            digest = hashlib.sha256(encoded).hexdigest().upper()
            document = self._built[key] = Document(content, encoded, digest, changes)
        return document


def root(kind: Kind) -> str:
    """The path of the kind's group and version, without a leading slash."""
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"


def _path(kind: Kind) -> tuple[str, Json]:
    """The path of a kind's objects, with the operations by which kubectl detects the kind and its patch types."""
    path = f"/{root(kind)}/{'namespaces/{namespace}/' if kind.namespaced else ''}{kind.plural}"
    if kind.is_review:
        return path, {"post": _operation(kind)}
    query: list[Json] = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in _PATCH_QUERY]
    schema = {"schema": {"type": "object"}}
    content = dict.fromkeys((*patch_types(kind), APPLY_PATCH), schema)
    patch = _operation(kind, *query) | {"requestBody": {"content": content, "required": True}}
    return f"{path}/{{name}}", {"get": _operation(kind), "patch": patch}


def _operation(kind: Kind, *query: Json) -> Json:
    names = [*(() if kind.is_review else ("name",)), *(("namespace",) if kind.namespaced else ())]
    in_path = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    response = {"description": "OK", "content": {"application/json": {"schema": _reference(type_name_of(kind))}}}
    return {GVK: _gvk(kind), "parameters": [*in_path, *query], "responses": {"200": response}}


def _reference(name: TypeName) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _either(first: str, second: str) -> Json:
    return {"oneOf": [{"type": first}, {"type": second}]}


def type_name_of(kind: Kind) -> TypeName:
    if kind.schema:
        return ".".join((*reversed(kind.group.split(".")), kind.version, kind.kind))
    return name_of(type_of(kind))


def _schemas(kinds: Iterable[Kind]) -> Json:
    """The schemas of the kinds and of all types that these refer to, by name."""
    served = tuple(kinds)
    result: Json = {}
    custom = [kind for kind in served if kind.schema]
    for kind in custom:
        schema = ((kind.source or {}).get("schema") or {}).get("openAPIV3Schema") or {}
        properties = {**(schema.get("properties") or {}), **_common()}
        result[type_name_of(kind)] = {**schema, "properties": dict(sorted(properties.items())), GVK: [_gvk(kind)]}
    identities: dict[TypeName, list[Json]] = {}
    for kind in served:
        identities.setdefault(type_name_of(kind), []).append(_gvk(kind))
    released = [type_name_of(kind) for kind in served if not kind.schema]
    for name in _reachable([*released, *([_OBJECT_META] if custom else ())]):
        if name in _NAMED:
            result[_NAMED[name]] = _scalar_schema(name)
        elif name not in SCALARS:
            result[name] = _type_schema(type_named(name), identities.get(name, []))
    return dict(sorted(result.items()))


def _reachable(roots: Iterable[TypeName]) -> set[TypeName]:
    reached: set[TypeName] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += [field.type_name for field in fields(name).values()]
    return reached


def _scalar_schema(scalar: TypeName) -> Json:
    match scalar:
        case "quantity":
            schema = _either("string", "number")
        case "intorstr":
            schema = _either("integer", "string") | {"format": "int-or-string"}
        case "time" | "microtime":
            schema = {"type": "string", "format": "date-time"}
        case _:
            schema = {"type": "object"}
    return schema | {"description": _SCALAR_TEXTS[scalar]}


def _gvk(kind: Kind) -> Json:
    return {"group": kind.group, "kind": kind.kind, "version": kind.version}


def _type_schema(described: Type, identities: list[Json]) -> Json:
    schema: Json = {"type": "object"}
    if description := type_description(described.name):
        schema["description"] = description
    schema["properties"] = {
        name: _property(field, field_description(described.name, name)) for name, field in described.fields.items()
    }
    if required := sorted(name for name, field in described.fields.items() if field.required):
        schema["required"] = required
    if described.atomic:
        schema["x-kubernetes-map-type"] = "atomic"
    if described.unions:
        schema["x-kubernetes-unions"] = list(described.unions)
    if identities:
        schema[GVK] = identities
    return schema


def _common() -> Json:
    types = {"apiVersion": "string", "kind": "string", "metadata": _OBJECT_META}
    return {name: _property(Field(name, type_name), common_description(name)) for name, type_name in types.items()}


def _element(field: Field) -> Json:
    if field.type_name not in _PLAIN:
        return _reference(_NAMED.get(field.type_name, field.type_name))
    return _PLAIN[field.type_name] | ({"enum": list(field.enum)} if field.enum else {})


def _property(field: Field, description: str) -> Json:
    schema = _element(field)
    if field.list_of:
        schema = {"type": "array", "items": schema}
    elif field.map_of:
        schema = {"type": "object", "additionalProperties": schema}
    elif "$ref" in schema:
        schema = {"allOf": [schema]}
    members: Json = {
        "description": description,
        "x-kubernetes-list-type": field.list_type,
        "x-kubernetes-list-map-keys": list(field.list_map_keys),
        "x-kubernetes-map-type": field.map_type,
        "x-kubernetes-patch-strategy": ",".join(field.strategy),
        "x-kubernetes-patch-merge-key": field.merge_key,
    }
    if field.default is not None:
        schema = schema | {"default": field.default}
    return schema | {name: value for name, value in members.items() if value}
