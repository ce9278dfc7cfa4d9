"""Structural schemas as types, by which fields have owners and unknown fields are detected; pruning and defaulting.

What a type cannot express, such as a list of lists, is one value of any kind. Values of another type than the schema's
are left alone: validation refuses them.
"""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from typing import Any, Final

from kdns.controlplane.apimachinery.structural import Schema
from kdns.controlplane.schema.types import META, Field, Type, TypeRef

_SCALARS: Final = {"string": "string", "integer": "int64", "number": "number", "boolean": "bool"}
_ANY: Final = "rawextension"
_RESOURCE: Final = {
    "apiVersion": Field("apiVersion", "string"),
    "kind": Field("kind", "string"),
    "metadata": Field("metadata", f"{META}.ObjectMeta"),
}


@lru_cache(maxsize=1024)
def custom_type(schema: Schema) -> Type:
    """Cached, since further caches have the type as their key."""
    return _object(schema, "CustomResource", is_resource=True)


def _object(schema: Schema, name: str, *, is_resource: bool = False) -> Type:
    fields = {field_name: _field(field_name, child) for field_name, child in schema.properties.items()}
    return Type(
        name,
        fields | _RESOURCE if is_resource or schema.embedded else fields,
        atomic=schema.map_type == "atomic",
        is_open=bool(schema.preserve_unknown) or schema.additional_properties is True,
    )


def _field(name: str, schema: Schema) -> Field:
    """A pointer as in Go: every value that is sent is kept."""
    default = schema.default if schema.has_default else None
    if schema.type == "array" and schema.items:
        is_plain_set = schema.items.type in _SCALARS and not schema.items.nullable
        return Field(
            name,
            _element(name, schema.items),
            list_of=True,
            pointer=True,
            list_type="atomic" if schema.list_type == "set" and not is_plain_set else schema.list_type or "atomic",
            list_map_keys=schema.list_map_keys,
            default=default,
        )
    if schema.type == "object" and not schema.properties and not schema.embedded:
        values = schema.additional_properties
        if isinstance(values, Schema) or values or schema.preserve_unknown:
            element = _element(name, values) if isinstance(values, Schema) else _ANY
            return Field(name, element, map_of=True, pointer=True, map_type=schema.map_type or "", default=default)
    return Field(name, _element(name, schema), pointer=True, map_type=schema.map_type or "", default=default)


def _element(name: str, schema: Schema) -> TypeRef:
    if schema.int_or_string:
        return "intorstr"
    if schema.type == "object" and not isinstance(schema.additional_properties, Schema):
        return _object(schema, name)
    return _SCALARS.get(schema.type, _ANY)


RESOURCE_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})
"""Fields of every object, and of embedded resources."""


def child_of(schema: Schema, name: str) -> Schema | None:
    """The schema of a property, else that of additional properties; None without both."""
    own = schema.properties.get(name)
    if own is None and isinstance(schema.additional_properties, Schema):
        return schema.additional_properties
    return own


def pruned(schema: Schema, value: Any, *, is_resource: bool = False) -> Any:
    """Drops the fields that the schema does not have; `is_resource`: the value has metadata."""
    if isinstance(value, list) and schema.items:
        return [pruned(schema.items, item, is_resource=schema.items.embedded) for item in value]
    if not isinstance(value, dict):
        return value
    keeps_all = bool(schema.preserve_unknown) or schema.additional_properties is True
    result = {}
    for name, inner in value.items():
        if is_resource and name in RESOURCE_FIELDS:
            result[name] = inner
        elif child := child_of(schema, name):
            result[name] = pruned(child, inner, is_resource=child.embedded)
        elif keeps_all:
            result[name] = inner
    return result


def defaulted(schema: Schema, value: Any) -> Any:
    """Sets the defaults of absent fields, and drops nulls where the schema is not nullable.

    A null in a list or a map of values with a default becomes the default.
    """
    if isinstance(value, list) and (items := schema.items):
        return [defaulted(items, _default(items) if _needs_default(items, item) else item) for item in value]
    if not isinstance(value, dict):
        return value
    filled = {}
    for name, inner in value.items():
        child = child_of(schema, name)
        if child is None:
            filled[name] = inner
        elif _needs_default(child, inner):
            filled[name] = defaulted(child, _default(child))
        elif inner is not None or child.nullable:
            filled[name] = defaulted(child, inner)
    for name, child in schema.properties.items():
        if child.has_default and name not in filled:
            filled[name] = defaulted(child, _default(child))
    return filled


def _needs_default(schema: Schema, value: Any) -> bool:
    return value is None and not schema.nullable and schema.has_default


def _default(schema: Schema) -> Any:
    return deepcopy(schema.default)
