"""The schema's types as OpenAPI v3 schema objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.schema.descriptions import common_description, field_description, type_description
from kdns.controlplane.schema.schema import type_of
from kdns.controlplane.schema.types import META, SCALARS, Field, Type, TypeName, fields, name_of, type_named
from kdns.controlplane.server.conversions import kind_at

LIST_META: Final = f"{META}.ListMeta"
STATUS: Final = f"{META}.Status"
OBJECT_META: Final = f"{META}.ObjectMeta"
DELETE_OPTIONS: Final = f"{META}.DeleteOptions"
PATCH: Final = f"{META}.Patch"

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
_PATCH_TEXT = "A change to an object, in the form that the content type names."
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
_LIST_META_TEXT = "Revision of the list and the token for its next page."
_KIND_OF: Final[Mapping[TypeName, str]] = {STATUS: "Status", DELETE_OPTIONS: "DeleteOptions"}


def reference(name: TypeName) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _either(first: str, second: str) -> Json:
    return {"oneOf": [{"type": first}, {"type": second}]}


def type_name_of(kind: Kind) -> TypeName:
    if kind.schema:
        return ".".join((*reversed(kind.group.split(".")), kind.version, kind.kind))
    return name_of(type_of(kind))


def list_name(kind: Kind) -> TypeName:
    return f"{type_name_of(kind)}List"


def definitions(kinds: Iterable[Kind]) -> Json:
    """Returns schemas by name: kinds, their lists, Status, DeleteOptions, Patch, and all types that these refer to."""
    served = tuple(kinds)
    result = {list_name(kind): _list_schema(kind) for kind in served if not kind.is_review}
    result[PATCH] = {"type": "object", "description": _PATCH_TEXT}
    shown = {kind_at(kind, name) for kind in served for name in kind.subresources} - {*served}
    custom = [kind for kind in served if kind.schema]
    for kind in custom:
        schema = ((kind.source or {}).get("schema") or {}).get("openAPIV3Schema") or {}
        properties = {**(schema.get("properties") or {}), **_common()}
        result[type_name_of(kind)] = {**schema, "properties": dict(sorted(properties.items())), GVK: [gvk(kind)]}
    released = [kind for kind in (*served, *shown) if not kind.schema]
    identities = _identities(released)
    roots = [*map(type_name_of, released), *([OBJECT_META] if custom else ())]
    for name in _reachable([*roots, LIST_META, STATUS, DELETE_OPTIONS]):
        if name in _NAMED:
            result[_NAMED[name]] = _scalar_schema(name)
        elif name not in SCALARS:
            result[name] = _type_schema(type_named(name), identities.get(name, []))
    return dict(sorted(result.items()))


def _reachable(roots: Iterable[TypeName]) -> set[TypeName]:
    """Returns the types and scalars that the roots consist of, the roots included."""
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


def gvk(kind: Kind, name: str = "") -> Json:
    """Returns group, version and kind as OpenAPI extensions spell them; `name` is another kind of the same version."""
    return {"group": kind.group, "kind": name or kind.kind, "version": kind.version}


def _identities(kinds: Iterable[Kind]) -> dict[TypeName, list[Json]]:
    found = {name: [{"group": "", "kind": kind, "version": "v1"}] for name, kind in _KIND_OF.items()}
    for kind in kinds:
        found.setdefault(type_name_of(kind), []).append(gvk(kind))
    return found


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


def _list_schema(kind: Kind) -> Json:
    """Returns a list's schema: its items and the fields that every object has, with a list's metadata."""
    properties = _common()
    properties["items"] = _property(Field("items", type_name_of(kind), list_of=True), "The objects.")
    properties["metadata"] = _property(Field("metadata", LIST_META), _LIST_META_TEXT)
    return {
        "type": "object",
        "description": f"A list of {kind.plural}.",
        "properties": properties,
        "required": ["items"],
        GVK: [gvk(kind, kind.list_kind)],
    }


def _common() -> Json:
    """Returns the properties that every object has."""
    types = {"apiVersion": "string", "kind": "string", "metadata": OBJECT_META}
    return {name: _property(Field(name, each), common_description(name)) for name, each in types.items()}


def _element(field: Field) -> Json:
    if field.type_name not in _PLAIN:
        return reference(_NAMED.get(field.type_name, field.type_name))
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
