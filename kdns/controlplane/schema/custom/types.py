"""Structural schemas as types, along which fields have owners and are found unknown.

What a type cannot express, such as a list of lists, is one value of any kind.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

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
    """Returns the type of a custom kind's objects. Equal types are one, so that others can be cached by it."""
    return _object(schema, "CustomResource", is_resource=True)


def _object(schema: Schema, name: str, *, is_resource: bool = False) -> Type:
    fields = {each: _field(each, child) for each, child in schema.properties.items()}
    return Type(
        name,
        fields | _RESOURCE if is_resource or schema.embedded else fields,
        atomic=schema.map_type == "atomic",
        is_open=bool(schema.preserve_unknown) or schema.additional_properties is True,
    )


def _field(name: str, schema: Schema) -> Field:
    """Returns a field of an object; a value that is sent is kept, whatever it is, as that of a pointer in Go."""
    default = schema.default if schema.has_default else None
    if schema.type == "array" and schema.items:
        keys = schema.list_map_keys
        element = _element(name, schema.items)
        list_type = schema.list_type or "atomic"
        return Field(
            name, element, list_of=True, pointer=True, list_type=list_type, list_map_keys=keys, default=default
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
