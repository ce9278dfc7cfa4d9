"""Server-side apply on objects: merging a configuration, removing paths, and checking a configuration's structure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kdns.controlplane.apimachinery.field_errors import expected
from kdns.controlplane.apimachinery.kinds import Json
from kdns.controlplane.fieldmanager.field_sets import SELF, FieldSet, path_text
from kdns.controlplane.fieldmanager.structure import (
    Structure,
    StructureError,
    field_structures,
    items_by_path,
    path_element,
)
from kdns.controlplane.schema import schema
from kdns.controlplane.schema.types import SCALARS, Field, TypeRef, name_of


def merge(structure: Structure, live: Any, config: Any) -> Any:
    """Returns the live object with the values of a configuration; an empty object or list, or null, removes nothing."""
    if structure.form == "atomic" or not (live or config):
        return config
    if structure.form in {"struct", "map"}:
        result: Json = dict(live or {})
        for name, value in (config or {}).items():
            result[name] = merge(structure.child(name)[1], result[name], value) if name in result else value
        return result
    return _merge_lists(structure, live or [], config or [])


def _merge_lists(structure: Structure, live: list[Any], config: list[Any]) -> list[Any]:
    """Returns the items of both lists: the configuration's in its order, the others at their places among them."""
    elements = structure.elements or structure
    configured = {path_element(structure, item): item for item in config}
    present = items_by_path(structure, live)

    def merged_item(element: str) -> Any:
        items = present.get(element, [])
        return merge(elements, items[0], configured[element]) if len(items) == 1 else configured[element]

    result: list[Any] = []
    remaining = iter(configured)
    common = [element for element in configured if element in present]
    position = 0
    for item in live:
        element = path_element(structure, item)
        if element not in configured:
            result.append(item)
        elif position < len(common) and element == common[position]:
            position += 1
            for each in remaining:
                result.append(merged_item(each))
                if each == element:
                    break
    return result + [merged_item(element) for element in remaining]


def without(structure: Structure, value: Any, fields: FieldSet) -> Any:
    """Returns the object or list without the paths of a set; None if nothing remains."""
    if not fields or not value or structure.form == "atomic":
        return None if structure.form == "atomic" and fields else value
    if structure.form in {"struct", "map"}:
        result: Json = {}
        for name, inner in value.items():
            element, child = structure.child(name)
            below = fields.get(element)
            if below is None:
                result[name] = inner
            elif below and SELF not in below and (rest := without(child, inner, below)) is not None:
                result[name] = rest
        return result or None
    elements, items = structure.elements or structure, []
    for item in value:
        below = fields.get(path_element(structure, item))
        if below is None:
            items.append(item)
        elif below and SELF not in below and (rest := without(elements, item, below)) is not None:
            items.append(rest)
    return items or None


def with_named_parents(structure: Structure, fields: FieldSet) -> FieldSet:
    """Returns the set with every struct field that has paths below it.

    Keys of maps and items of lists are not added.
    """
    result: FieldSet = {}
    struct_fields = field_structures(structure.type) if structure.form == "struct" else {}
    for element, below in fields.items():
        if element == SELF:
            result[SELF] = below
            continue
        child = structure.child(element[2:])[1] if element.startswith("f:") else structure.elements
        inner = with_named_parents(child, below) if child and below else below
        if inner and SELF not in inner and element[2:] in struct_fields and element.startswith("f:"):
            inner = {SELF: {}, **inner}
        result[element] = inner
    return result


def structure_errors(structure: Structure, config: Json) -> list[str]:
    """Returns the errors of a configuration: unknown fields, values of the wrong type, duplicate keys of lists."""
    return [f"{path_text(path)}: {why}" for path, why in _object_errors(structure.type, config, structure)]


def _object_errors(type_name: TypeRef, value: Json, structure: Structure) -> Iterator[tuple[tuple[str, ...], str]]:
    known, is_open = schema.fields(type_name), schema.resolved(type_name).is_open
    for name, inner in value.items():
        field, element = known.get(name), f"f:{name}"
        if field is None:
            if not is_open:
                yield (element,), "field not declared in schema"
        elif inner is not None:
            for path, why in _field_errors(field, inner, structure.child(name)[1]):
                yield (element, *path), why


def _field_errors(field: Field, value: Any, structure: Structure) -> Iterator[tuple[tuple[str, ...], str]]:
    if field.map_of:
        if not isinstance(value, dict):
            yield (), expected("an object", value)
            return
        for name, inner in value.items():
            yield from (((f"f:{name}", *path), why) for path, why in _value_errors(field.type, inner))
    elif field.list_of:
        if not isinstance(value, list):
            yield (), expected("a list", value)
            return
        yield from _list_errors(field, value, structure)
    else:
        yield from _value_errors(field.type, value)


def _list_errors(field: Field, value: list[Any], structure: Structure) -> Iterator[tuple[tuple[str, ...], str]]:
    seen: set[str] = set()
    for index, item in enumerate(value):
        element = f"i:{index}"
        if structure.form != "atomic":
            try:
                element = path_element(structure, item)
            except StructureError as error:
                yield (), f"element {index}: {error}"
                return
            if element in seen:
                yield (), f"duplicate entries for key {path_text((element,))}"
            seen.add(element)
        yield from (((element, *path), why) for path, why in _value_errors(field.type, item))


def _value_errors(type_name: TypeRef, value: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    if value is None:
        return
    if type_name not in SCALARS:
        if isinstance(value, dict):
            yield from _object_errors(type_name, value, Structure("struct", type_name))
        else:
            yield (), expected("an object", value)
        return
    what, accepted = _SCALARS.get(name_of(type_name), ("a scalar", (str, int, float, bool)))
    is_bool = isinstance(value, bool)
    if type_name in {"fieldsv1", "rawextension", "strings"}:
        return
    if not isinstance(value, accepted) or (is_bool and bool not in accepted):
        yield (), expected(what, value, is_shown=what != "a string")


_SCALARS: dict[str, tuple[str, tuple[type, ...]]] = {
    "string": ("a string", (str,)),
    "bytes": ("a string", (str,)),
    "time": ("a string", (str,)),
    "microtime": ("a string", (str,)),
    "bool": ("a boolean", (bool,)),
    "int32": ("a number", (int, float)),
    "int64": ("a number", (int, float)),
    "number": ("a number", (int, float)),
}
"""Scalar → its name in messages and the Python types it accepts. All other scalars accept any scalar."""
