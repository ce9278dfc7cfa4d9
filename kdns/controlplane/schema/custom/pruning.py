"""Pruning and defaulting of custom resources (Kubernetes documentation, "Custom Resource Definitions").

Values of another type than the schema's are left alone: validation refuses them.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from kdns.controlplane.apimachinery.structural import Schema

RESOURCE_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})
"""The fields that every object has, and embedded resources too."""


def child_of(schema: Schema, name: str) -> Schema | None:
    """Returns the schema of a field of an object; None if it has none of its own."""
    found = schema.properties.get(name)
    if found is None and isinstance(schema.additional_properties, Schema):
        return schema.additional_properties
    return found


def pruned(schema: Schema, value: Any, *, is_resource: bool = False) -> Any:
    """Returns the value without the fields that the schema does not have; `is_resource`: it has metadata."""
    if isinstance(value, list) and schema.items:
        return [pruned(schema.items, each, is_resource=schema.items.embedded) for each in value]
    if not isinstance(value, dict):
        return value
    keeps_all = bool(schema.preserve_unknown) or schema.additional_properties is True
    kept = {}
    for name, inner in value.items():
        if is_resource and name in RESOURCE_FIELDS:
            kept[name] = inner
        elif child := child_of(schema, name):
            kept[name] = pruned(child, inner, is_resource=child.embedded)
        elif keeps_all:
            kept[name] = inner
    return kept


def defaulted(schema: Schema, value: Any) -> Any:
    """Returns the value with the defaults of absent fields, and without nulls where the schema is not nullable.

    A null in a list or a map of values with a default becomes the default.
    """
    if isinstance(value, list) and (items := schema.items):
        return [defaulted(items, _default(items) if _needs_default(items, each) else each) for each in value]
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
