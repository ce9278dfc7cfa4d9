"""Sets of field paths, in the form of managedFields (meta/v1 FieldsV1).

A set is a tree of dicts. Its keys are path elements: `f:name` for a field, `k:{"port":80}` for an item of an
associative list, `v:"x"` for an item of a set. An element with an empty dict is a path of the set. An element with
further elements below it is a path only if "." is among them. An empty tree is the empty set.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

FieldSet: TypeAlias = dict[str, Any]
"""A set of paths, or its part below an element."""

SELF = "."
"""Marks an element with further elements below it as a path of the set."""

_INCLUDED: FieldSet = {}


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    if not one or not other:
        return one or other
    result = dict(one)
    for element, below in other.items():
        mine = result.get(element)
        result[element] = below if mine is None else _union_below(mine, below)
    return result


def _union_below(one: FieldSet, other: FieldSet) -> FieldSet:
    if not one or not other:  # a path without anything below it
        below = one or other
        return below if not below or SELF in below else {SELF: _INCLUDED, **below}
    return union(one, other)


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """A path of `other` does not remove the paths below it."""
    if not one or not other:
        return one
    result: FieldSet = {}
    for element, below in one.items():
        if element == SELF:
            continue
        theirs = other.get(element)
        if theirs is None:
            result[element] = below
            continue
        remains = is_path(below) and not is_path(theirs)
        _put(result, element, difference(inner(below), inner(theirs)), is_path=remains)
    return result


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    result: FieldSet = {}
    for element, below in one.items():
        theirs = other.get(element)
        if theirs is None or element == SELF:
            continue
        remains = is_path(below) and is_path(theirs)
        _put(result, element, intersection(inner(below), inner(theirs)), is_path=remains)
    return result


def at_or_below(one: FieldSet, other: FieldSet) -> FieldSet:
    result: FieldSet = {}
    for element, below in one.items():
        theirs = other.get(element)
        if theirs is None or element == SELF:
            continue
        if is_path(theirs):
            result[element] = below
        else:
            _put(result, element, at_or_below(inner(below), theirs), is_path=False)
    return result


def sorted_elements(fields: FieldSet) -> FieldSet:
    """kube-apiserver serializes sets in this order."""
    return {element: sorted_elements(below) if (below := fields[element]) else below for element in sorted(fields)}


def paths(fields: FieldSet) -> Iterator[tuple[str, ...]]:
    """Tuples of path elements; the paths of a level precede those below them."""
    for element in sorted(fields):
        if element != SELF and is_path(fields[element]):
            yield (element,)
    for element in sorted(fields):
        for path in paths(inner(fields[element])):
            yield (element, *path)


def path_text(path: Iterable[str]) -> str:
    """The form of error messages: `.spec.ports[port=80,protocol="TCP"].name`."""
    return "".join(map(_element_text, path))


def _element_text(element: str) -> str:
    kind, _, text = element.partition(":")
    match kind:
        case "f":
            return f".{text}"
        case "k":
            named = [f"{name}={json.dumps(value)}" for name, value in json.loads(text).items()]
            return f"[{','.join(named)}]"
        case "v":
            return f"[={text}]"
        case _:
            return f"[{text}]"


def is_path(below: FieldSet) -> bool:
    return not below or SELF in below


def inner(below: FieldSet) -> FieldSet:
    if SELF not in below:
        return below
    return {element: further for element, further in below.items() if element != SELF}


def _put(result: FieldSet, element: str, below: FieldSet, *, is_path: bool) -> None:
    if is_path:
        result[element] = {SELF: _INCLUDED, **below} if below else _INCLUDED
    elif below:
        result[element] = below


def is_field_set(value: Any) -> bool:
    return isinstance(value, dict) and all(
        below == {} if element == SELF else _is_element(element) and is_field_set(below)
        for element, below in value.items()
    )


def _is_element(element: str) -> bool:
    kind, colon, text = element.partition(":")
    if kind == "f":
        return bool(colon)
    try:
        return kind in {"k", "v"} and isinstance(json.loads(text), dict) == (kind == "k")
    except ValueError:
        return False
