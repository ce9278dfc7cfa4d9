"""Objects as field managers see them: which parts have owners, where two objects differ, merging and removing parts.

Everything walks along `parts`: the fields of an object, the entries of a map and the items of an associative list.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from json.encoder import encode_basestring
from typing import Any, Final, TypeAlias

from kdns.controlplane.apimachinery.field_errors import expected
from kdns.controlplane.fieldmanager.field_sets import SELF, FieldSet, inner, is_path, path_text
from kdns.controlplane.schema.types import Field

_PATH: Final[FieldSet] = {}
_ATOMIC: Final = Field("", "rawextension")
"""Stands for what the schema lacks, and for items that occur twice."""

Parts: TypeAlias = Mapping[str, tuple[Field, Any]]
"""The schema and the value of each part, by path element."""


class StructureError(ValueError):
    """A value whose structure is not that of its field."""


def parts(field: Field, value: Any) -> Parts:
    """None has no parts. Items with the same path element are one atomic part, the list of them.

    Raises StructureError for a value of the wrong type, and for items that cannot be identified.
    """
    if value is None or field.form == "atomic":
        return {}
    if field.form in {"struct", "map"}:
        if not isinstance(value, dict):
            raise StructureError(expected("an object", value))
        return {f"f:{name}": (_child(field, name), part) for name, part in value.items()}
    by_element: dict[str, list[Any]] = {}
    for element, item in _elements(field, value):
        by_element.setdefault(element, []).append(item)
    of_item = _item(field)
    return {
        element: (of_item, items[0]) if len(items) == 1 else (_ATOMIC, items) for element, items in by_element.items()
    }


def _child(field: Field, name: str) -> Field:
    return field.child(name) or _ATOMIC


def _item(field: Field) -> Field:
    return field.element if field.form == "list" else _ATOMIC


def _elements(field: Field, items: Any) -> Iterable[tuple[str, Any]]:
    if not isinstance(items, list):
        raise StructureError(expected("a list", items))
    return ((path_element(field, item), item) for item in items)


def path_element(field: Field, item: Any) -> str:
    """Identifies an item of an associative list. Raises StructureError if that is impossible."""
    if field.form == "set":
        if item is None or isinstance(item, dict | list):
            raise StructureError(f"a set has {expected('a scalar', item)}")
        return f"v:{_text(item)}"
    if not isinstance(item, dict):
        raise StructureError(f"an item of a list with keys: {expected('an object', item)}")
    pairs = ((key, item.get(key, default)) for key, default in field.key_defaults.items())
    texts = [f'"{key}":{_text(value)}' for key, value in pairs if value is not None]
    if not texts:
        raise StructureError(f"an item has none of the keys {', '.join(field.key_defaults)}")
    return f"k:{{{','.join(texts)}}}"


def _text(value: Any) -> str:
    if type(value) is int:
        return str(value)
    if type(value) is str:
        return encode_basestring(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def configured_paths(field: Field, value: Any) -> FieldSet:
    """The paths that a configuration owns: its atomic and empty values, keys of maps, and items of lists.

    The enclosing objects have no owner.
    """
    result: FieldSet = {}
    for element, (child, part) in parts(field, value).items():
        below = configured_paths(child, part)
        if field.form != "struct":
            result[element] = _path(below)
        elif below or child.form == "atomic" or part in (None, {}):
            result[element] = below
    return result


def check_items(field: Field, value: Any, at: str = "") -> None:
    """Raises StructureError for items of an associative list that occur twice."""
    for element, (child, part) in parts(field, value).items():
        text = path_text((element,))
        if field.form in {"list", "set"} and isinstance(part, list):
            raise StructureError(f"{at}: duplicate entries for key {text}")
        check_items(child, part, at + text)


def all_paths(field: Field, value: Any) -> FieldSet:
    """Every path below a value: its parts, and the objects and lists that contain them."""
    return {element: _path(all_paths(child, part)) for element, (child, part) in parts(field, value).items()}


def compare(field: Field, old: Any, new: Any) -> tuple[FieldSet, FieldSet]:
    """The paths that the new value sets or changes, and those that only the old one has."""
    written: FieldSet = {}
    removed: FieldSet = {}
    before, after = parts(field, old), parts(field, new)
    for element, (child, part) in after.items():
        if element not in before:
            written[element] = _path(all_paths(child, part))
            continue
        old_child, old_part = before[element]
        if part == old_part and child is old_child:
            continue
        if child.form == "atomic" or old_child.form == "atomic" or not (part or old_part):
            written[element] = _PATH
            continue
        for paths, below in zip((written, removed), compare(child, old_part, part), strict=True):
            if below:
                paths[element] = below
    removed |= {
        element: _path(all_paths(child, part)) for element, (child, part) in before.items() if element not in after
    }
    return written, removed


def merge(field: Field, live: Any, config: Any) -> Any:
    """The configuration wins; an empty object or list, or null, removes nothing."""
    if field.form == "atomic" or not (live or config):
        return config
    if field.form in {"list", "set"}:
        return _merge_lists(field, live or [], config or [])
    result = dict(live or {})
    for name, value in (config or {}).items():
        result[name] = merge(_child(field, name), result[name], value) if name in result else value
    return result


def _merge_lists(field: Field, live: list[Any], config: list[Any]) -> list[Any]:
    """The configuration's items in its order, with the other live items in between at their places."""
    present = parts(field, live)
    configured = {
        element: merge(*present[element], item) if element in present else item
        for element, item in _elements(field, config)
    }
    remaining = iter(configured.items())
    common = iter([element for element in configured if element in present])
    expected_next = next(common, None)
    result: list[Any] = []
    for element, item in _elements(field, live):
        if element not in configured:
            result.append(item)
        elif element == expected_next:
            expected_next = next(common, None)
            for name, merged in remaining:
                result.append(merged)
                if name == element:
                    break
    return result + [merged for _, merged in remaining]


def without(field: Field, value: Any, gone: FieldSet, needed: FieldSet) -> Any:
    """Removes the paths of `gone`, except those with paths of `needed` at or below them.

    An object whose fields are gone is removed too, with its fields that nobody owns; so is an emptied list or map.
    """
    if field.form in {"list", "set"}:
        items = [
            part
            for element, item in _elements(field, value)
            if (part := _remaining(_item(field), item, gone.get(element), needed.get(element))) is not None
        ]
        return items or None
    result = {}
    for name, part in value.items():
        element = f"f:{name}"
        if element not in gone:
            result[name] = part
        elif (remaining := _remaining(_child(field, name), part, gone[element], needed.get(element))) is not None:
            result[name] = remaining
    return result or None


def _remaining(field: Field, part: Any, gone: FieldSet | None, needed: FieldSet | None) -> Any:
    """A part without the paths of `gone` below it; None if nothing remains."""
    if gone is None:
        return part
    if needed is None and (is_path(gone) or field.form == "struct"):
        return None
    if field.form == "atomic" or not part:
        return part
    remaining = without(field, part, inner(gone), needed or {})
    return type(part)() if remaining is None and needed is not None else remaining


def _path(below: FieldSet) -> FieldSet:
    return {SELF: _PATH, **below} if below else _PATH
