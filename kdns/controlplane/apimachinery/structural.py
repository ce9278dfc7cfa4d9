"""Structural schemas: the types of custom resources (apiextensions.k8s.io/v1 JSONSchemaProps)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_NAMES = {
    "preserve_unknown": "x-kubernetes-preserve-unknown-fields",
    "embedded": "x-kubernetes-embedded-resource",
    "int_or_string": "x-kubernetes-int-or-string",
    "list_type": "x-kubernetes-list-type",
    "list_map_keys": "x-kubernetes-list-map-keys",
    "map_type": "x-kubernetes-map-type",
    "negated": "not",
}


def _json_name(name: str) -> str:
    first, *words = name.split("_")
    return _NAMES.get(name) or first + "".join(map(str.capitalize, words))


class Schema(msgspec.Struct, frozen=True, eq=False, rename=_json_name, omit_defaults=True):
    """The schema of one field. Members are named as in JSONSchemaProps, and others are ignored.

    Schemas are compared by identity.
    """

    type: str = ""
    format: str = ""
    description: str = ""
    default: Any = msgspec.UNSET
    nullable: bool = False
    enum: tuple[Any, ...] = ()
    pattern: str = ""
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    required: tuple[str, ...] = ()
    properties: Mapping[str, Schema] = {}
    items: Schema | None = None
    additional_properties: Schema | bool | None = None
    all_of: tuple[Schema, ...] = ()
    any_of: tuple[Schema, ...] = ()
    one_of: tuple[Schema, ...] = ()
    negated: Schema | None = None
    preserve_unknown: bool | None = None
    embedded: bool = False
    int_or_string: bool = False
    list_type: str | None = None
    list_map_keys: tuple[str, ...] = ()
    map_type: str | None = None

    @property
    def has_default(self) -> bool:
        """A null default counts as none."""
        return self.default is not msgspec.UNSET and self.default is not None


def parsed(source: Mapping[str, Any]) -> Schema:
    """Raises msgspec.ValidationError if a member has the wrong type."""
    return msgspec.convert(source, Schema)


def merged(one: Schema, other: Schema) -> Schema:
    """Combines two schemas; where both constrain the same thing, `one` wins."""
    properties = {**other.properties, **one.properties}
    for name in one.properties.keys() & other.properties.keys():
        properties[name] = merged(one.properties[name], other.properties[name])
    items, values = one.items or other.items, one.additional_properties or other.additional_properties
    if one.items and other.items:
        items = merged(one.items, other.items)
    if isinstance(one.additional_properties, Schema) and isinstance(other.additional_properties, Schema):
        values = merged(one.additional_properties, other.additional_properties)
    return msgspec.structs.replace(
        one,
        properties=properties,
        items=items,
        additional_properties=values,
        preserve_unknown=one.preserve_unknown or other.preserve_unknown,
    )
