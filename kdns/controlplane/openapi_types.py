"""The schema's types as OpenAPI schema objects, in the two dialects that kubectl reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kdns.controlplane.kinds import SERVED, Json, Kind
from kdns.controlplane.schema import META, type_of, types
from kdns.controlplane.schema_text import SCALARS, Field, Type, TypeName
from kdns.controlplane.views import BINDING, EVICTION, SCALE, kind_at

LIST_META: Final = f"{META}.ListMeta"
STATUS: Final = f"{META}.Status"
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
}
_NAMED: Final[Mapping[str, TypeName]] = {
    "quantity": f"{_UTIL}.api.resource.Quantity",
    "intorstr": f"{_UTIL}.util.intstr.IntOrString",
    "time": f"{META}.Time",
    "microtime": f"{META}.MicroTime",
    "json": f"{META}.FieldsV1",
}
_QUANTITY_DOC = (
    "An amount, as a number with an optional suffix: m (thousandth), k, M, G, T, P, E or Ki, Mi, Gi, Ti, Pi, Ei."
)
_NUMBER_OR_TEXT_DOC = "A number or a string, such as a port's number or name."
_NAMED_SCHEMAS: Final[Mapping[TypeName, Json]] = {
    _NAMED["time"]: {"type": "string", "format": "date-time", "description": "A date and time (RFC 3339)."},
    _NAMED["microtime"]: {
        "type": "string",
        "format": "date-time",
        "description": "A date and time with microseconds (RFC 3339).",
    },
    _NAMED["json"]: {"type": "object", "description": "A tree of fields."},
    PATCH: {"type": "object", "description": "A change to an object, in the form that the content type names."},
}
_KIND_OF: Final[Mapping[TypeName, str]] = {STATUS: "Status", DELETE_OPTIONS: "DeleteOptions"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one version of OpenAPI says it: the place of schemas, words beside a reference, values of either type."""

    prefix: str
    siblings: bool
    one_of: bool

    def ref(self, name: TypeName) -> Json:
        """A reference to a schema of this document."""
        return {"$ref": f"{self.prefix}{name}"}

    def either(self, first: str, second: str) -> Json:
        """The type of a value that is one of two; Swagger has no word for it and calls it a string."""
        return {"oneOf": [{"type": first}, {"type": second}]} if self.one_of else {"type": "string"}


V2: Final = Dialect("#/definitions/", siblings=True, one_of=False)
V3: Final = Dialect("#/components/schemas/", siblings=False, one_of=True)


def list_name(kind: Kind) -> TypeName:
    """The type of a list of a kind's objects."""
    return f"{type_of(kind)}List"


def definitions(kinds: Iterable[Kind], dialect: Dialect) -> Json:
    """Schemas by name: of the kinds, their lists, what requests carry beside them, and all that these refer to."""
    served = tuple(kinds)
    result: Json = {name: {**schema} for name, schema in _NAMED_SCHEMAS.items()}
    result[_NAMED["quantity"]] = {**dialect.either("string", "number"), "description": _QUANTITY_DOC}
    result[_NAMED["intorstr"]] = {
        **dialect.either("integer", "string"),
        "format": "int-or-string",
        "description": _NUMBER_OR_TEXT_DOC,
    }
    result |= {list_name(kind): _list_schema(kind, dialect) for kind in served}
    shown = {kind_at(kind, name) for kind in served for name in kind.subresources} - {*served}
    for name in _reachable([*map(type_of, (*served, *shown)), LIST_META, STATUS, DELETE_OPTIONS]):
        result[name] = _type_schema(types()[name], dialect)
    return dict(sorted(result.items()))


def _reachable(roots: Iterable[TypeName]) -> set[TypeName]:
    found: set[TypeName] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in found and name not in SCALARS:
            found.add(name)
            waiting += [field.type for field in types()[name].fields.values()]
    return found


def gvk(kind: Kind, name: str = "") -> Json:
    """Group, version and kind as OpenAPI extensions spell them; `name` for another kind of the same version."""
    return {"group": kind.group, "kind": name or kind.kind, "version": kind.version}


def _identities(name: TypeName) -> list[Json]:
    """What a type is in API terms; nothing for a type that is only a part."""
    if name in _KIND_OF:
        return [{"group": "", "kind": _KIND_OF[name], "version": "v1"}]
    return [gvk(kind) for kind in (*SERVED, SCALE, EVICTION, BINDING) if type_of(kind) == name]


def _type_schema(described: Type, dialect: Dialect) -> Json:
    schema: Json = {"type": "object", "description": described.doc}
    if described.fields:
        schema["properties"] = {name: _property(field, dialect) for name, field in described.fields.items()}
    if required := sorted(name for name, field in described.fields.items() if field.required):
        schema["required"] = required
    if described.atomic:
        schema["x-kubernetes-map-type"] = "atomic"
    if identities := _identities(described.name):
        schema[GVK] = identities
    return schema


def _list_schema(kind: Kind, dialect: Dialect) -> Json:
    """A list's schema: its items and the fields that every object has, with a list's metadata."""
    common = {name: _property(field, dialect) for name, field in types()[f"{META}.Object"].fields.items()}
    metadata = Field("metadata", LIST_META, "Revision of the list and the token for its next page.")
    items = Field("items", type_of(kind), "The objects.", list_of=True)
    return {
        "type": "object",
        "description": f"A list of {kind.plural}.",
        "properties": common | {"items": _property(items, dialect), "metadata": _property(metadata, dialect)},
        "required": ["items"],
        GVK: [gvk(kind, kind.list_kind)],
    }


def _element(field: Field, dialect: Dialect) -> Json:
    if field.type not in _PLAIN:
        return dialect.ref(_NAMED.get(field.type, field.type))
    return _PLAIN[field.type] | ({"enum": list(field.enum)} if field.enum else {})


def _property(field: Field, dialect: Dialect) -> Json:
    schema = _element(field, dialect)
    if field.list_of:
        schema = {"type": "array", "items": schema}
    elif field.map_of:
        schema = {"type": "object", "additionalProperties": schema}
    elif "$ref" in schema and not dialect.siblings:
        schema = {"allOf": [schema]}
    words: Json = {
        "description": field.doc,
        "default": field.default,
        "x-kubernetes-list-type": field.list_type,
        "x-kubernetes-list-map-keys": list(field.list_map_keys),
        "x-kubernetes-map-type": field.map_type,
        "x-kubernetes-patch-strategy": ",".join(field.patch_strategy),
        "x-kubernetes-patch-merge-key": field.merge_key,
    }
    return schema | {word: value for word, value in words.items() if value or (word == "default" and value is not None)}
