"""The structure of objects for field ownership: which values are atomic, which have parts, and what identifies a part.

It is derived from the list and map types of the schema once per type, because every write computes ownership along it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from json.encoder import encode_basestring
from typing import Any, Literal

from kdns.controlplane.apimachinery.field_errors import expected
from kdns.controlplane.apimachinery.kinds import Kind
from kdns.controlplane.schema import schema
from kdns.controlplane.schema.types import SCALARS, Field, TypeRef


class StructureError(ValueError):
    """A value that does not have the structure of its field."""


@dataclass(frozen=True, slots=True)
class Structure:
    """The structure of one place in an object.

    atomic: owned as a whole. struct: the fields of `type`. map: keys of any name. list: an associative list, whose
    items are identified by `keys` (name and default of each). set: a list of different scalars. `elements` is the
    structure of the elements of the last three.
    """

    form: Literal["atomic", "struct", "map", "list", "set"]
    type: TypeRef = ""
    elements: Structure | None = None
    keys: tuple[tuple[str, Any], ...] = ()

    def child(self, name: str) -> tuple[str, Structure]:
        """Returns path element and structure of a field; a field that the schema does not have is atomic."""
        if self.form == "map":
            return f"f:{name}", self.elements or ATOMIC
        return field_structures(self.type).get(name) or (f"f:{name}", ATOMIC)


ATOMIC = Structure("atomic")


def structure_of(kind: Kind) -> Structure:
    """Returns the structure of a kind's objects."""
    return Structure("struct", schema.type_of(kind))


@cache
def field_structures(type_name: TypeRef) -> Mapping[str, tuple[str, Structure]]:
    """Returns a map of field name to path element and structure, for all fields of a type."""
    return {name: (f"f:{name}", _field_structure(field)) for name, field in schema.fields(type_name).items()}


def _field_structure(field: Field) -> Structure:
    if field.map_of:
        return ATOMIC if field.map_type == "atomic" else Structure("map", elements=_value_structure(field.type))
    if not field.list_of:
        if field.map_type == "granular":  # overrides the map type of the field's type
            return Structure("struct", field.type)
        return ATOMIC if field.map_type == "atomic" else _value_structure(field.type)
    match field.list_type:
        case "map":
            element_fields = schema.fields(field.type)
            keys = tuple((key, element_fields[key].default) for key in sorted(field.list_map_keys))
            return Structure("list", elements=_value_structure(field.type), keys=keys)
        case "set":
            return Structure("set", elements=ATOMIC)
        case _:
            return ATOMIC


def _value_structure(type_name: TypeRef) -> Structure:
    if type_name in SCALARS or schema.resolved(type_name).atomic or not schema.fields(type_name):
        return ATOMIC
    return Structure("struct", type_name)


def path_element(structure: Structure, item: Any) -> str:
    """Returns the path element of a list's item. Raises StructureError for an item that cannot be identified."""
    if structure.form == "set":
        if item is None or isinstance(item, (dict, list)):
            what = "an explicit null" if item is None else "a map type" if isinstance(item, dict) else "a list"
            raise StructureError(f"associative list without keys has an element that's {what}")
        return f"v:{_text(item)}"
    if not isinstance(item, dict):
        what = "a null element" if item is None else "non-map elements"
        raise StructureError(f"associative list with keys may not have {what}")
    pairs = []
    for key, default in structure.keys:
        value = item.get(key, default)
        if value is not None:
            pairs.append(f'"{key}":{_text(value)}')
    if not pairs:
        keys = " ".join(json.dumps(key) for key, _ in structure.keys)
        raise StructureError(
            f"associative list with keys has an element that omits all key fields [{keys}]"
            " (and doesn't have default values for any key fields)"
        )
    return f"k:{{{','.join(pairs)}}}"


def _text(value: Any) -> str:
    if type(value) is int:
        return str(value)
    if type(value) is str:
        return encode_basestring(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def items_by_path(structure: Structure, items: list[Any]) -> dict[str, list[Any]]:
    """Returns the items of each path element, in the order of the list; several items are duplicates.

    Raises StructureError for a value that is not a list.
    """
    if not isinstance(items, list):
        raise StructureError(expected("a list", items))
    result: dict[str, list[Any]] = {}
    for item in items:
        result.setdefault(path_element(structure, item), []).append(item)
    return result
