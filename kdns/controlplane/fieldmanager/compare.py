"""Field sets of objects: the paths that an object has, and the paths at which two objects differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kdns.controlplane.apimachinery.field_errors import expected
from kdns.controlplane.fieldmanager.field_sets import SELF, FieldSet, recursive_difference, union
from kdns.controlplane.fieldmanager.structure import Structure, StructureError, field_structures, items_by_path
from kdns.controlplane.schema.types import TypeRef

_PATH: FieldSet = {}


@dataclass(slots=True)
class Comparison:
    """Two objects: the paths that only the old one has, those with different values, those that only the new one has.

    A comparison is filled while `compare` runs.
    """

    removed: FieldSet = field(default_factory=dict)
    modified: FieldSet = field(default_factory=dict)
    added: FieldSet = field(default_factory=dict)

    @property
    def written(self) -> FieldSet:
        """The paths that the new object sets to other values or adds."""
        return union(self.modified, self.added)

    def excluding(self, ignored: FieldSet) -> Comparison:
        """Returns the comparison without the paths of a set and the paths below them."""
        if not ignored:
            return self
        return Comparison(*(recursive_difference(each, ignored) for each in (self.removed, self.modified, self.added)))


def configured_paths(structure: Structure, value: Any) -> FieldSet:
    """Returns the paths that a configuration owns: its atomic values and the items of its lists, not the enclosing
    objects.

    An empty object or list is owned too.
    """
    result: FieldSet = {}
    if not value:
        return result
    if structure.form in {"struct", "map"}:
        for name, inner in value.items():
            element, child = structure.child(name)
            below = configured_paths(child, inner)
            if child.form == "atomic" or inner is None or inner == {} or structure.form == "map":
                result[element] = _path(below)
            elif below:
                result[element] = below
    elif structure.elements:
        for element, items in items_by_path(structure, value).items():
            result[element] = _path(configured_paths(structure.elements, items[0]) if len(items) == 1 else {})
    return result


def all_paths(structure: Structure, value: Any) -> FieldSet:
    """Returns every path below a value: its parts, and the objects and lists that contain them.

    Raises StructureError for a value of the wrong type.
    """
    if not value or structure.form == "atomic":
        return {}
    if structure.form in {"struct", "map"}:
        _check_object(value)
        if structure.form == "struct" and value.keys() <= field_structures(structure.type).keys():
            paths = _atomic_fields(structure.type, tuple(value))
            if paths is not None:
                return paths
        result: FieldSet = {}
        for name, inner in value.items():
            element, child = structure.child(name)
            result[element] = _PATH if child.form == "atomic" else _path(all_paths(child, inner))
        return result
    elements = structure.elements or structure
    return {
        element: _path(all_paths(elements, items[0]) if len(items) == 1 else {})
        for element, items in items_by_path(structure, value).items()
    }


def _check_object(value: Any) -> Any:
    if not isinstance(value, dict):
        raise StructureError(expected("an object", value))
    return value


@lru_cache(maxsize=1024)
def _atomic_fields(type_name: TypeRef, names: tuple[str, ...]) -> FieldSet | None:
    """Returns the paths of an object with these fields if all of them are atomic, as those of a port.

    The set is shared.
    """
    children = dict(map(Structure("struct", type_name).child, names))
    if any(child.form != "atomic" for child in children.values()):
        return None
    return dict.fromkeys(sorted(children), _PATH)


def compare(structure: Structure, old: Any, new: Any) -> Comparison:
    """Returns how two objects, or two lists of one field, differ; None is treated as empty.

    Raises StructureError for values of the wrong type.
    """
    result = Comparison()
    if structure.form in {"struct", "map"}:
        _compare_objects(structure, _check_object(old or {}), _check_object(new or {}), result)
    else:
        _compare_lists(structure, old or [], new or [], result)
    return result


def _compare_objects(structure: Structure, old: dict[str, Any], new: dict[str, Any], result: Comparison) -> None:
    for name, value in new.items():
        if name in old:
            before = old[name]
            if before != value:
                element, child = structure.child(name)
                _compare_values(element, child, before, value, result)
        else:
            element, child = structure.child(name)
            result.added[element] = _path(all_paths(child, value))
    for name, value in old.items():
        if name not in new:
            element, child = structure.child(name)
            result.removed[element] = _path(all_paths(child, value))


def _compare_lists(structure: Structure, old: list[Any], new: list[Any], result: Comparison) -> None:
    """Compares items by path element; several items of one path element are compared as a whole."""
    elements = structure.elements or structure
    before, after = items_by_path(structure, old), items_by_path(structure, new)
    for element, items in after.items():
        previous = before.get(element, [])
        if previous == items:
            continue
        if len(previous) == len(items) == 1:
            _compare_values(element, elements, previous[0], items[0], result)
        elif len(previous) > 1 and len(items) > 1:
            result.modified[element] = _PATH
        elif len(items) > 1 or not previous:
            result.added[element] = _path(all_paths(elements, items[0]) if len(items) == 1 else {})
            if previous:
                result.removed[element] = all_paths(elements, previous[0])
        else:
            result.added[element] = all_paths(elements, items[0])
            result.removed[element] = _PATH
    for element, items in before.items():
        if element not in after:
            result.removed[element] = _path(all_paths(elements, items[0]) if len(items) == 1 else {})


def _compare_values(element: str, structure: Structure, old: Any, new: Any, result: Comparison) -> None:
    if structure.form == "atomic" or not (old or new):
        result.modified[element] = _PATH
        return
    inner = compare(structure, old, new)
    for paths, below in (
        (result.removed, inner.removed),
        (result.modified, inner.modified),
        (result.added, inner.added),
    ):
        if below:
            paths[element] = below


def _path(below: FieldSet) -> FieldSet:
    return {SELF: _PATH, **below} if below else _PATH
