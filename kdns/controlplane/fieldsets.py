"""Sets of field paths, in the very form in which managedFields carries them (meta/v1 FieldsV1).

A set is a tree of dicts. Its keys are path elements: `f:name` for a field, `k:{"port":80}` for an item of a keyed list,
`v:"x"` for an item of a list that is a set. An element with an empty dict below it is a path of the set; one with a
dict of further elements is so only if "." is among them. An empty tree is the empty set.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

Fields: TypeAlias = dict[str, Any]
"""A set of paths, or the part of one below an element."""

SELF = "."
"""Among the elements below another one: that one is a path of the set itself."""

_INCLUDED: Fields = {}


def union(one: Fields, other: Fields) -> Fields:
    """The paths of either set."""
    if not one or not other:
        return one or other
    result = dict(one)
    for element, below in other.items():
        mine = result.get(element)
        result[element] = below if mine is None else _both(mine, below)
    return result


def _both(one: Fields, other: Fields) -> Fields:
    if not one or not other:  # one is a path without anything below it
        below = one or other
        return below if not below or SELF in below else {SELF: _INCLUDED, **below}
    return union(one, other)


def difference(one: Fields, other: Fields) -> Fields:
    """The paths of `one` that `other` has not; a path takes nothing below it along."""
    if not one or not other:
        return one
    result: Fields = {}
    for element, below in one.items():
        if element == SELF:
            continue
        taken = other.get(element)
        if taken is None:
            result[element] = below
            continue
        is_path = _is_path(below) and not _is_path(taken)
        _put(result, element, difference(_inner(below), _inner(taken)), is_path=is_path)
    return result


def intersection(one: Fields, other: Fields) -> Fields:
    """The paths of both sets."""
    result: Fields = {}
    for element, below in one.items():
        same = other.get(element)
        if same is None or element == SELF:
            continue
        is_path = _is_path(below) and _is_path(same)
        _put(result, element, intersection(_inner(below), _inner(same)), is_path=is_path)
    return result


def outside(one: Fields, other: Fields) -> Fields:
    """The paths of `one` that are neither in `other` nor below a path of it."""
    result: Fields = {}
    for element, below in one.items():
        taken = other.get(element)
        if taken is None:
            result[element] = below
        elif not _is_path(taken):
            _put(result, element, outside(_inner(below), taken), is_path=_is_path(below))
    return result


def including(*paths: tuple[str, ...]) -> Fields:
    """The set of paths given by field names."""
    result: Fields = {}
    for path in paths:
        one: Fields = {}
        for name in reversed(path):
            one = {f"f:{name}": one}
        result = union(result, one)
    return result


def in_order(fields: Fields) -> Fields:
    """The same set with its elements in the order in which the API shows them: fields, keys, values, each by name."""
    return {element: in_order(below) if (below := fields[element]) else below for element in sorted(fields)}


def paths(fields: Fields) -> Iterator[tuple[str, ...]]:
    """Every path as its elements; those of a level come before what is below them."""
    for element in sorted(fields):
        if element != SELF and _is_path(fields[element]):
            yield (element,)
    for element in sorted(fields):
        for path in paths(_inner(fields[element])):
            yield (element, *path)


def path_text(path: Iterable[str]) -> str:
    """A path as people read it: `.spec.ports[port=80,protocol="TCP"].name`."""
    return "".join(map(_element_text, path))


def _element_text(element: str) -> str:
    kind, _, rest = element.partition(":")
    match kind:
        case "f":
            return f".{rest}"
        case "k":
            named = [f"{name}={json.dumps(value)}" for name, value in json.loads(rest).items()]
            return f"[{','.join(named)}]"
        case "v":
            return f"[={rest}]"
        case _:
            return f"[{rest}]"


def is_fields(value: Any) -> bool:
    """Whether a value from outside is such a tree."""
    if not isinstance(value, dict):
        return False
    for element, below in value.items():
        if element == SELF:
            if below != {}:
                return False
        elif not (_is_element(element) and is_fields(below)):
            return False
    return True


def _is_element(element: str) -> bool:
    kind, colon, rest = element.partition(":")
    if not colon:
        return False
    try:
        match kind:
            case "f":
                return True
            case "k":
                return isinstance(json.loads(rest), dict)
            case "v":
                json.loads(rest)
                return True
            case _:
                return kind == "i" and rest.isdigit()
    except ValueError:
        return False


def _is_path(below: Fields) -> bool:
    return not below or SELF in below


def _inner(below: Fields) -> Fields:
    if SELF not in below:
        return below
    return {element: further for element, further in below.items() if element != SELF}


def _put(result: Fields, element: str, below: Fields, *, is_path: bool) -> None:
    if is_path:
        result[element] = {SELF: _INCLUDED, **below} if below else _INCLUDED
    elif below:
        result[element] = below
