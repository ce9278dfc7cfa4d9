"""The rules of structural schemas (Kubernetes documentation, "Specifying a structural schema").

Everywhere outside of allOf, anyOf, oneOf and not a schema has a type; inside of these it only restricts values.
Differs: of these rules those are kept without which values could not be checked, pruned or merged. Words that are not
evaluated, such as uniqueItems, are ignored.
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


def violations(source: Json, path: str) -> list[Cause]:
    if _is_deeper(source, DEPTH_MAX):
        return [invalid_value(path, "", f"must not be nested more than {DEPTH_MAX} levels deep")]
    try:
        schema = parsed(source)
    except msgspec.ValidationError as error:
        why, _, where = str(error).partition(" - at `$")
        return [Cause(path + where.rstrip("`"), "Invalid value", why)]
    if schema.type != "object":
        return [invalid_value(f"{path}.type", schema.type, "must be object at the root")]
    return list(_schema(schema, path, is_root=True)) or list(_defaults(schema, path))


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        below = [each.values() if isinstance(each, Mapping) else each for each in level]
        level = [each for values in below for each in values if isinstance(each, Mapping | list)]
    return bool(level)


def _schema(schema: Schema, path: str, *, is_restriction: bool = False, is_root: bool = False) -> Iterator[Cause]:
    """Yields what is wrong with a schema and with those below it; a restriction need not say a type."""
    yield from _type(schema, path, is_restriction=is_restriction)
    if schema.list_type == "map":
        yield from _map_keys(schema, path)
    if schema.pattern:
        try:
            compiled(schema.pattern)
        except ValueError as error:
            why = f"must be a valid regular expression, but isn't: {error}"
            yield invalid_value(f"{path}.pattern", schema.pattern, why)
    for name, field in schema.properties.items():
        is_metadata = is_root and name == "metadata"
        yield from _schema(field, f"{path}.properties[{name}]", is_restriction=is_restriction or is_metadata)
    for word, below in (("additionalProperties", schema.additional_properties), ("items", schema.items)):
        if isinstance(below, Schema):
            yield from _schema(below, f"{path}.{word}", is_restriction=is_restriction)
    for word, alternative in _junctors(schema):
        yield from _schema(alternative, f"{path}.{word}", is_restriction=True)


def _type(schema: Schema, path: str, *, is_restriction: bool) -> Iterator[Cause]:
    if schema.type and schema.type not in _TYPES:
        yield unsupported(f"{path}.type", schema.type, _TYPES)
    elif not (schema.type or is_restriction or schema.int_or_string or schema.preserve_unknown):
        yield required(f"{path}.type", "must not be empty")
    if schema.type == "array" and not (schema.items or is_restriction):
        yield required(f"{path}.items", "must be specified")
    if schema.additional_properties is not None and schema.properties:
        yield forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")


def _junctors(schema: Schema) -> Iterator[tuple[str, Schema]]:
    for word, alternatives in (("allOf", schema.all_of), ("anyOf", schema.any_of), ("oneOf", schema.one_of)):
        yield from ((f"{word}[{index}]", alternative) for index, alternative in enumerate(alternatives))
    if schema.negated:
        yield "not", schema.negated


def _map_keys(schema: Schema, path: str) -> Iterator[Cause]:
    where, items = f"{path}.x-kubernetes-list-map-keys", schema.items or Schema()
    properties = items.properties
    if not schema.list_map_keys:
        yield required(where, "must not be empty if x-kubernetes-list-type is map")
    for index, key in enumerate(schema.list_map_keys):
        if key not in properties:
            yield invalid_value(f"{where}[{index}]", key, "entries must all be names of item properties")
        elif properties[key].type in {"array", "object"}:
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid_value(f"{path}.items.properties[{key}].type", properties[key].type, why)
        elif key not in items.required and not properties[key].has_default:
            why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            yield required(f"{path}.items.properties[{key}].default", why)


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
