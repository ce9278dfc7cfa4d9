"""The rules of structural schemas (Kubernetes documentation, "Specifying a structural schema").

Everywhere outside of allOf, anyOf, oneOf and not a schema has a type; inside of these it only restricts values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.field_errors import forbidden, invalid_value, required, unsupported
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.apimachinery.structural import Schema, parsed
from kdns.controlplane.schema.custom.patterns import compiled
from kdns.controlplane.schema.custom.types import RESOURCE_FIELDS, pruned
from kdns.controlplane.schema.custom.validation import Validator

DEPTH_MAX: Final = 150
"""How deep the JSON of a schema may be; every walk along a schema has a few Python frames for each level."""
_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED: Final = ("$ref", "additionalItems", "definitions", "dependencies", "id", "patternProperties")
_JUNCTORS: Final = ("allOf", "anyOf", "oneOf")
_NOT_IN_JUNCTORS: Final = (
    *("additionalProperties", "default", "description", "nullable", "title", "type"),
    *("x-kubernetes-embedded-resource", "x-kubernetes-int-or-string", "x-kubernetes-list-map-keys"),
    *("x-kubernetes-list-type", "x-kubernetes-map-type", "x-kubernetes-preserve-unknown-fields"),
)
_NO_TYPE: Final = {
    "root": "must not be empty at the root",
    "field": "must not be empty for specified object fields",
    "item": "must not be empty for specified array items",
}
_IMPLICIT: Final = "must not specify anything other than name and generateName, but metadata is implicitly specified"
_EMBEDDED: Final = (
    "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
)
_QUADRATIC: Final = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]


def violations(source: Json, path: str) -> list[Cause]:
    """Returns the causes why an openAPIV3Schema is not structural, or otherwise invalid; `path` is its own."""
    if _is_deeper(source, DEPTH_MAX):
        return [invalid_value(path, "", f"must not be nested more than {DEPTH_MAX} levels deep")]
    try:
        schema = parsed(source)
    except msgspec.ValidationError as error:
        where = str(error).partition(" - at `$")[2].rstrip("`")
        if array := _items_array(source, path):
            return [array]
        return [Cause(f"{path}{where}", "Invalid value", str(error).partition(" - at ")[0])]
    found = list(_schema(source, path, "root"))
    if schema.type and schema.type != "object":
        found.append(invalid_value(f"{path}.type", schema.type, "must be object at the root"))
    if schema.nullable:
        found.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    if schema.additional_properties is not None:
        found.append(forbidden(f"{path}.additionalProperties", "must not be used at the root"))
    return found or list(_defaults(schema, path))


def _is_deeper(value: Any, depth: int) -> bool:
    """Returns whether objects and lists are nested deeper than so many levels."""
    level = [value]
    for _ in range(depth):
        below = [each.values() if isinstance(each, Mapping) else each for each in level]
        level = [each for values in below for each in values if isinstance(each, Mapping | list)]
    return bool(level)


def _items_array(source: Any, path: str) -> Cause | None:
    """Returns the cause of the first `items` that is a list of schemas."""
    if isinstance(source, Mapping):
        if isinstance(source.get("items"), list):
            return forbidden(f"{path}.items", "items must be a schema object and not an array")
        for name, below in source.items():
            inner = below.items() if name == "properties" and isinstance(below, Mapping) else ((None, below),)
            for key, each in inner:
                if cause := _items_array(each, f"{path}.{name}" if key is None else f"{path}.{name}[{key}]"):
                    return cause
    return None


def _schema(source: Json, path: str, place: str) -> Iterator[Cause]:
    """Yields what is wrong with a schema outside of junctors, and with those below it."""
    yield from _words(source, path)
    kind = source.get("type") or ""
    int_or_string, preserves = (
        bool(source.get(f"x-kubernetes-{name}")) for name in ("int-or-string", "preserve-unknown-fields")
    )
    if int_or_string and kind:
        yield invalid_value(f"{path}.type", kind, "must be empty if x-kubernetes-int-or-string is true")
    elif not kind and not int_or_string and (place == "root" or not preserves):
        yield required(f"{path}.type", _NO_TYPE[place])
    if source.get("x-kubernetes-embedded-resource") and kind != "object":
        yield invalid_value(f"{path}.type", kind, "must be object if x-kubernetes-embedded-resource is true")
    elif source.get("x-kubernetes-embedded-resource") and not source.get("properties") and not preserves:
        yield required(f"{path}.properties", _EMBEDDED)
    if source.get("x-kubernetes-preserve-unknown-fields") is False:
        yield invalid_value(
            f"{path}.x-kubernetes-preserve-unknown-fields", value=False, detail="must be true or undefined"
        )
    yield from _list_words(source, path)
    if place == "root" or source.get("x-kubernetes-embedded-resource"):
        yield from _metadata(source, path)
    for name, below, where in _below(source, path):
        is_metadata = place == "root" and name == "metadata"
        below_place = "item" if where == f"{path}.items" else "field"
        yield from _schema({"type": "object", **below} if is_metadata else below, where, below_place)
    for below, where in _junctors(source, path):
        is_pair = below.get("anyOf") == _INT_OR_STRING
        is_of_pair = below in _INT_OR_STRING and source.get("anyOf") == _INT_OR_STRING
        if not (int_or_string and (is_pair or is_of_pair)):  # the alternatives of int-or-string have types
            yield from _restriction(below, source, where)


def _below(source: Json, path: str) -> Iterator[tuple[str, Json, str]]:
    """Yields the schemas of fields by name, and those of values and items as "", with their paths."""
    for name, field in (source.get("properties") or {}).items():
        yield name, field, f"{path}.properties[{name}]"
    for word in ("additionalProperties", "items"):
        if isinstance(below := source.get(word), dict):
            yield "", below, f"{path}.{word}"


def _junctors(source: Json, path: str) -> Iterator[tuple[Json, str]]:
    for name in _JUNCTORS:
        for index, alternative in enumerate(source.get(name) or ()):
            yield alternative, f"{path}.{name}[{index}]"
    if below := source.get("not"):
        yield below, f"{path}.not"


def _restriction(source: Json, outside: Json, path: str) -> Iterator[Cause]:
    """Yields what is wrong with a schema in a junctor: it may restrict only what is defined `outside` of it."""
    for name in _NOT_IN_JUNCTORS:
        if source.get(name) not in (None, "", False, []) or (name == "default" and name in source):
            yield forbidden(f"{path}.{name}", "must be empty to be structural")
    yield from _words(source, path)
    known = outside.get("properties") or {}
    for name, each in (source.get("properties") or {}).items():
        if name not in known and not isinstance(outside.get("additionalProperties"), dict):
            where = path.partition(".anyOf")[0].partition(".allOf")[0].partition(".oneOf")[0].partition(".not")[0]
            yield required(f"{where}.properties[{name}]", f"because it is defined in {path}.properties[{name}]")
        yield from _restriction(each, known.get(name) or {}, f"{path}.properties[{name}]")
    if isinstance(items := source.get("items"), dict):
        yield from _restriction(items, outside.get("items") or {}, f"{path}.items")
    for below, where in _junctors(source, path):
        yield from _restriction(below, outside, where)


def _words(source: Json, path: str) -> Iterator[Cause]:
    for name in _UNSUPPORTED:
        if source.get(name) not in (None, "", {}):
            yield forbidden(f"{path}.{name}", f"{name} is not supported")
    if source.get("uniqueItems"):
        yield forbidden(f"{path}.uniqueItems", _QUADRATIC)
    kind = source.get("type") or ""
    if kind == "null":
        yield forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    elif kind and kind not in _TYPES:
        yield unsupported(f"{path}.type", kind, _TYPES)
    if source.get("additionalProperties") is False:
        yield forbidden(f"{path}.additionalProperties", "additionalProperties cannot be set to false")
    elif source.get("additionalProperties") is not None and source.get("properties"):
        yield forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
    if pattern := source.get("pattern"):
        try:
            compiled(pattern)
        except ValueError as error:
            why = f"must be a valid regular expression, but isn't: {error}"
            yield invalid_value(f"{path}.pattern", pattern, why)


def _list_words(source: Json, path: str) -> Iterator[Cause]:
    """Yields what is wrong with the type of a list or a map."""
    kind, list_type = source.get("type") or "", source.get("x-kubernetes-list-type")
    where, keys = f"{path}.x-kubernetes-list-type", source.get("x-kubernetes-list-map-keys") or []
    if kind == "array" and not isinstance(source.get("items"), dict):
        yield required(f"{path}.items", "must be specified")
    if list_type is not None and list_type not in {"atomic", "map", "set"}:
        yield unsupported(where, list_type, ("atomic", "map", "set"))
    if list_type is not None and kind != "array":
        yield invalid_value(f"{path}.type", kind, "must be array if x-kubernetes-list-type is specified")
    if (map_type := source.get("x-kubernetes-map-type")) not in {None, "atomic", "granular"}:
        yield unsupported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular"))
    if map_type is not None and kind != "object":
        yield invalid_value(f"{path}.type", kind, "must be object if x-kubernetes-map-type is specified")
    if keys and list_type != "map":
        yield invalid_value(where, list_type or "", "must be map if x-kubernetes-list-map-keys is non-empty")
    items = source.get("items") or {}
    if list_type in {"map", "set"} and items.get("nullable"):
        yield forbidden(f"{path}.items.nullable", f"cannot be nullable when x-kubernetes-list-type is {list_type}")
    if list_type == "set":
        yield from _set_items(items, f"{path}.items")
    if list_type == "map":
        yield from _map_items(items, keys, path)


def _map_items(items: Json, keys: list[str], path: str) -> Iterator[Cause]:
    where = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        yield required(where, "must not be empty if x-kubernetes-list-type is map")
    if items and items.get("type") != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid_value(f"{path}.items.type", items.get("type") or "", why)
    if len(set(keys)) < len(keys):
        yield invalid_value(where, keys, "must not contain duplicate entries")
    properties = items.get("properties") or {}
    for index, key in enumerate(keys):
        field, place = properties.get(key), f"{path}.items.properties[{key}]"
        if field is None:
            yield invalid_value(f"{where}[{index}]", key, "entries must all be names of item properties")
        elif field.get("type") in {"array", "object"}:
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid_value(f"{place}.type", field["type"], why)
        elif field.get("nullable"):
            why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
            yield forbidden(f"{place}.nullable", why)
        elif key not in (items.get("required") or ()) and "default" not in field:
            why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            yield required(f"{place}.default", why)


def _set_items(items: Json, path: str) -> Iterator[Cause]:
    word = {"array": "x-kubernetes-list-type", "object": "x-kubernetes-map-type"}.get(items.get("type") or "", "")
    default = "atomic" if items.get("type") == "array" else ""
    if word and items.get(word, default) != "atomic":
        why = "must be atomic as item of a list with x-kubernetes-list-type=set"
        yield invalid_value(f"{path}.{word}", items.get(word) or "", why)


def _metadata(source: Json, path: str) -> Iterator[Cause]:
    """Yields what is wrong with the schema of metadata, whose fields are those of every object."""
    metadata = (source.get("properties") or {}).get("metadata") or {}
    others = metadata.keys() - {"description", "properties", "type"}
    if others or (metadata.get("properties") or {}).keys() - {"generateName", "name"}:
        yield forbidden(f"{path}.properties[metadata]", _IMPLICIT)
    for name, each in (metadata.get("properties") or {}).items():
        if "default" in each:
            yield forbidden(f"{path}.properties[metadata].properties[{name}].default", "must not be set in metadata")
    for name in ("apiVersion", "kind"):
        kind = ((source.get("properties") or {}).get(name) or {}).get("type") or "string"
        if kind != "string":
            yield invalid_value(f"{path}.properties[{name}].type", kind, "must be string")


def _defaults(schema: Schema, path: str) -> Iterator[Cause]:
    if schema.has_default:
        if pruned(schema, schema.default, is_resource=schema.embedded) != schema.default:
            yield invalid_value(f"{path}.default", schema.default, "must not have unknown fields")
        for cause in Validator(schema).causes(schema.default, f"{path}.default"):
            yield invalid_value(f"{path}.default", schema.default, cause.detail or cause.message)
    for name, field in schema.properties.items():
        if name not in RESOURCE_FIELDS:
            yield from _defaults(field, f"{path}.properties[{name}]")
    for word, below in (("additionalProperties", schema.additional_properties), ("items", schema.items)):
        if isinstance(below, Schema):
            yield from _defaults(below, f"{path}.{word}")


def rule_paths(source: Json, path: str = "") -> Iterator[str]:
    """Yields the places of a valid openAPIV3Schema that have rules in CEL, such as `spec.ports[*]`; "" for the root."""
    if source.get("x-kubernetes-validations"):
        yield path
    prefix = f"{path}." if path else ""
    for name, each in (source.get("properties") or {}).items():
        yield from rule_paths(each, f"{prefix}{name}")
    if isinstance(values := source.get("additionalProperties"), dict):
        yield from rule_paths(values, f"{prefix}*")
    if items := source.get("items"):
        yield from rule_paths(items, f"{path}[*]")
