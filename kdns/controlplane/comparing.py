"""Objects as sets of field paths: all that one says, and how two of them differ (shapes.py says what is one value)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kdns.controlplane.fieldsets import SELF, Fields, outside, union
from kdns.controlplane.schema_text import TypeName
from kdns.controlplane.shapes import Shape, indexed

_PATH: Fields = {}


@dataclass(slots=True)
class Changes:
    """The paths that only one of two objects has, and those at which both have different values."""

    removed: Fields = field(default_factory=dict)
    modified: Fields = field(default_factory=dict)
    added: Fields = field(default_factory=dict)

    @property
    def written(self) -> Fields:
        """What is new or different."""
        return union(self.modified, self.added)

    def outside(self, ignored: Fields) -> Changes:
        """The changes at paths that are neither ignored nor below such a one."""
        if not ignored:
            return self
        return Changes(*(outside(each, ignored) for each in (self.removed, self.modified, self.added)))


def applied_paths(shape: Shape, value: Any) -> Fields:
    """What a configuration speaks of: its values and the items of its lists, but not the objects and lists around."""
    result: Fields = {}
    if not value:
        return result
    if shape.sort in {"struct", "map"}:
        for name, inner in value.items():
            element, child = shape.child(name)
            below = applied_paths(child, inner)
            if child.sort == "leaf" or inner is None or inner == {} or shape.sort == "map":
                result[element] = _path(below)
            elif below:
                result[element] = below
    elif shape.part:
        for element, items in indexed(shape, value).items():
            result[element] = _path(applied_paths(shape.part, items[0]) if len(items) == 1 else {})
    return result


def all_paths(shape: Shape, value: Any) -> Fields:
    """Every path below a value: its parts, and the objects and lists that these are in."""
    if not value or shape.sort == "leaf":
        return {}
    if shape.sort in {"struct", "map"}:
        if shape.sort == "struct" and (known := _flat(shape.type, tuple(value))) is not None:
            return known
        result: Fields = {}
        for name, inner in value.items():
            element, child = shape.child(name)
            result[element] = _PATH if child.sort == "leaf" else _path(all_paths(child, inner))
        return result
    part = shape.part or shape
    return {
        element: _path(all_paths(part, items[0]) if len(items) == 1 else {})
        for element, items in indexed(shape, value).items()
    }


@lru_cache(maxsize=1024)
def _flat(type_name: TypeName, names: tuple[str, ...]) -> Fields | None:
    """The paths of an object with these fields, such as a port, if each of them is one value; it is shared."""
    found = dict(map(Shape("struct", type_name).child, names))
    return None if any(child.sort != "leaf" for child in found.values()) else dict.fromkeys(sorted(found), _PATH)


def changes(shape: Shape, old: Any, new: Any) -> Changes:
    """How two objects, or two lists of one field, differ; None counts as empty."""
    found = Changes()
    if shape.sort in {"struct", "map"}:
        _compare_objects(shape, old or {}, new or {}, found)
    else:
        _compare_lists(shape, old or [], new or [], found)
    return found


def _compare_objects(shape: Shape, old: dict[str, Any], new: dict[str, Any], found: Changes) -> None:
    for name, value in new.items():
        if name in old:
            before = old[name]
            if before != value:
                element, child = shape.child(name)
                _compare(element, child, before, value, found)
        else:
            element, child = shape.child(name)
            found.added[element] = _path(all_paths(child, value))
    for name, value in old.items():
        if name not in new:
            element, child = shape.child(name)
            found.removed[element] = _path(all_paths(child, value))


def _compare_lists(shape: Shape, old: list[Any], new: list[Any], found: Changes) -> None:
    part, before, after = shape.part or shape, indexed(shape, old), indexed(shape, new)
    for element, items in after.items():
        was = before.get(element, [])
        if was == items:
            continue
        if len(was) == len(items) == 1:
            _compare(element, part, was[0], items[0], found)
        elif len(was) > 1 and len(items) > 1:
            found.modified[element] = _PATH
        elif len(items) > 1 or not was:
            found.added[element] = _path(all_paths(part, items[0]) if len(items) == 1 else {})
            if was:
                found.removed[element] = all_paths(part, was[0])
        else:
            found.added[element] = all_paths(part, items[0])
            found.removed[element] = _PATH
    for element, items in before.items():
        if element not in after:
            found.removed[element] = _path(all_paths(part, items[0]) if len(items) == 1 else {})


def _compare(element: str, shape: Shape, old: Any, new: Any, found: Changes) -> None:
    if shape.sort == "leaf" or not (old or new):
        found.modified[element] = _PATH
        return
    inner = changes(shape, old, new)
    for mine, below in (
        (found.removed, inner.removed),
        (found.modified, inner.modified),
        (found.added, inner.added),
    ):
        if below:
            mine[element] = below


def _path(below: Fields) -> Fields:
    return {SELF: _PATH, **below} if below else _PATH
