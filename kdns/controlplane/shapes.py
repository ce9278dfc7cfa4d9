"""What field ownership needs to know of a kind's schema: what is one value, what has parts, and what names the parts.

Made once for each type from schema_*.txt (list=, map=): ownership of every write is computed along these.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

from kdns.controlplane import schema
from kdns.controlplane.kinds import Kind
from kdns.controlplane.schema_text import SCALARS, Field, TypeName


class ShapeError(ValueError):
    """A value that does not have the shape that its field has."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One place in an object.

    leaf: owned as a whole. struct: named fields of `type`. map: keys of any name. items: a list whose elements are
    told apart by `keys` (name and default of each). set: a list of different scalars. `part` is the shape of the
    elements of the last three.
    """

    sort: Literal["leaf", "struct", "map", "items", "set"]
    type: TypeName = ""
    part: Shape | None = None
    keys: tuple[tuple[str, Any], ...] = ()

    def child(self, name: str) -> tuple[str, Shape]:
        """Path element and shape of a field; what the schema does not know is one value."""
        if self.sort == "map":
            return f"f:{name}", self.part or LEAF
        return members(self.type).get(name) or (f"f:{name}", LEAF)


LEAF = Shape("leaf")


def shape_of(kind: Kind) -> Shape:
    """The shape of a kind's objects."""
    return Shape("struct", schema.type_of(kind))


@cache
def members(type_name: TypeName) -> Mapping[str, tuple[str, Shape]]:
    """Field name → path element and shape, of all fields of a type."""
    return {name: (f"f:{name}", _shape(field)) for name, field in schema.fields(type_name).items()}


def _shape(field: Field) -> Shape:
    if field.map_of:
        return LEAF if field.map_type == "atomic" else Shape("map", part=_single(field.type))
    if not field.list_of:
        return LEAF if field.map_type == "atomic" else _single(field.type)
    match field.list_type:
        case "map":
            known = schema.fields(field.type)
            keys = tuple((key, known[key].default) for key in sorted(field.list_map_keys))
            return Shape("items", part=_single(field.type), keys=keys)
        case "set":
            return Shape("set", part=LEAF)
        case _:
            return LEAF


def _single(type_name: TypeName) -> Shape:
    if type_name in SCALARS or schema.types()[type_name].atomic or not schema.fields(type_name):
        return LEAF
    return Shape("struct", type_name)


def element_of(shape: Shape, item: Any) -> str:
    """The path element of a list's item; ShapeError for one that cannot be told apart from others."""
    if shape.sort == "set":
        if item is None or isinstance(item, (dict, list)):
            found = "an explicit null" if item is None else "a map type" if isinstance(item, dict) else "a list"
            raise ShapeError(f"associative list without keys has an element that's {found}")
        return f"v:{_text(item)}"
    if not isinstance(item, dict):
        what = "a null element" if item is None else "non-map elements"
        raise ShapeError(f"associative list with keys may not have {what}")
    named = []
    for key, default in shape.keys:
        value = item.get(key, default)
        if value is not None:
            named.append(f'"{key}":{_text(value)}')
    if not named:
        keys = " ".join(json.dumps(key) for key, _ in shape.keys)
        raise ShapeError(
            f"associative list with keys has an element that omits all key fields [{keys}]"
            " (and doesn't have default values for any key fields)"
        )
    return f"k:{{{','.join(named)}}}"


def _text(value: Any) -> str:
    if type(value) is int:
        return str(value)
    if type(value) is str:
        return _quoted(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


@lru_cache(maxsize=1024)
def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def indexed(shape: Shape, items: list[Any]) -> dict[str, list[Any]]:
    """Path element → the items it stands for, in the order of the list; more than one are duplicates."""
    found: dict[str, list[Any]] = {}
    for item in items:
        found.setdefault(element_of(shape, item), []).append(item)
    return found
