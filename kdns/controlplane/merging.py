"""Server-side apply on objects: a configuration merged into an object, and paths taken out of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kdns.controlplane import gotext, schema
from kdns.controlplane.fieldsets import SELF, Fields, path_text
from kdns.controlplane.kinds import Json
from kdns.controlplane.schema_text import SCALARS, Field
from kdns.controlplane.shapes import Shape, ShapeError, element_of, indexed, members


def merged(shape: Shape, live: Any, config: Any) -> Any:
    """The object with what the configuration says; an empty object or list, or null, takes nothing away."""
    if shape.sort == "leaf" or not (live or config):
        return config
    if shape.sort in {"struct", "map"}:
        result: Json = dict(live or {})
        for name, value in (config or {}).items():
            result[name] = merged(shape.child(name)[1], result[name], value) if name in result else value
        return result
    return _merged_list(shape, live or [], config or [])


def _merged_list(shape: Shape, live: list[Any], config: list[Any]) -> list[Any]:
    """Items of both lists: the configuration's in its order, the others where they were among them."""
    part = shape.part or shape
    wanted = {element_of(shape, item): item for item in config}
    present = indexed(shape, live)

    def taken(element: str) -> Any:
        same = present.get(element, [])
        return merged(part, same[0], wanted[element]) if len(same) == 1 else wanted[element]

    result: list[Any] = []
    rest = iter(wanted)
    shared = [element for element in wanted if element in present]
    following = 0
    for item in live:
        element = element_of(shape, item)
        if element not in wanted:
            result.append(item)
        elif following < len(shared) and element == shared[following]:
            following += 1
            for named in rest:
                result.append(taken(named))
                if named == element:
                    break
    return result + [taken(element) for element in rest]


def without(shape: Shape, value: Any, fields: Fields) -> Any:
    """The object or list without the paths of a set; None when nothing is left of it."""
    if not fields or not value or shape.sort == "leaf":
        return None if shape.sort == "leaf" and fields else value
    if shape.sort in {"struct", "map"}:
        kept: Json = {}
        for name, inner in value.items():
            element, child = shape.child(name)
            below = fields.get(element)
            if below is None:
                kept[name] = inner
            elif below and SELF not in below and (left := without(child, inner, below)) is not None:
                kept[name] = left
        return kept or None
    part, left_over = shape.part or shape, []
    for item in value:
        below = fields.get(element_of(shape, item))
        if below is None:
            left_over.append(item)
        elif below and SELF not in below and (left := without(part, item, below)) is not None:
            left_over.append(left)
    return left_over or None


def with_parents(shape: Shape, fields: Fields) -> Fields:
    """The set with every named field that has paths below it; keys of maps and items of lists are not added."""
    result: Fields = {}
    known = members(shape.type) if shape.sort == "struct" else {}
    for element, below in fields.items():
        if element == SELF:
            result[SELF] = below
            continue
        child = shape.child(element[2:])[1] if element.startswith("f:") else shape.part
        inner = with_parents(child, below) if child and below else below
        if inner and SELF not in inner and element[2:] in known and element.startswith("f:"):
            inner = {SELF: {}, **inner}
        result[element] = inner
    return result


def mistakes(shape: Shape, config: Json) -> list[str]:
    """What keeps a configuration from being applied: unknown fields, values of the wrong type, keys given twice."""
    return [f"{path_text(path)}: {why}" for path, why in _mistakes(shape.type, config, shape)]


def _mistakes(type_name: str, value: Json, shape: Shape) -> Iterator[tuple[tuple[str, ...], str]]:
    known = schema.fields(type_name)
    for name, inner in value.items():
        field, element = known.get(name), f"f:{name}"
        if field is None:
            yield (element,), "field not declared in schema"
        elif inner is not None:
            for path, why in _field_mistakes(field, inner, shape.child(name)[1]):
                yield (element, *path), why


def _field_mistakes(field: Field, value: Any, shape: Shape) -> Iterator[tuple[tuple[str, ...], str]]:
    if field.map_of:
        if not isinstance(value, dict):
            yield (), f"expected map, got &{{{gotext.plain(value)}}}"
            return
        for name, inner in value.items():
            yield from (((f"f:{name}", *path), why) for path, why in _value_mistakes(field.type, inner))
    elif field.list_of:
        if not isinstance(value, list):
            yield (), f"expected list, got &{{{gotext.plain(value)}}}"
            return
        yield from _list_mistakes(field, value, shape)
    else:
        yield from _value_mistakes(field.type, value)


def _list_mistakes(field: Field, value: list[Any], shape: Shape) -> Iterator[tuple[tuple[str, ...], str]]:
    seen: set[str] = set()
    for index, item in enumerate(value):
        element = f"i:{index}"
        if shape.sort != "leaf":
            try:
                element = element_of(shape, item)
            except ShapeError as error:
                yield (), f"element {index}: {error}"
                return
            if element in seen:
                yield (), f"duplicate entries for key {path_text((element,))}"
            seen.add(element)
        yield from (((element, *path), why) for path, why in _value_mistakes(field.type, item))


def _value_mistakes(type_name: str, value: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    if value is None:
        return
    if type_name not in SCALARS:
        if isinstance(value, dict):
            yield from _mistakes(type_name, value, Shape("struct", type_name))
        else:
            yield (), f"expected map, got &{{{gotext.plain(value)}}}"
        return
    wanted, fits = _SCALARS.get(type_name, ("any scalar", (str, int, float, bool)))
    is_bool = isinstance(value, bool)
    if type_name != "json" and (not isinstance(value, fits) or (is_bool and bool not in fits)):
        yield (), f"expected {wanted}, got {_found(wanted, value)}"


def _found(wanted: str, value: Any) -> str:
    """The value as the message for what was wanted shows it: its type, its Go syntax, or as it is."""
    if wanted == _NUMERIC:
        return gotext.type_name(value)
    return (
        f"&value.valueUnstructured{{Value:{gotext.syntax(value)}}}"
        if wanted == "string"
        else f"&{{{gotext.plain(value)}}}"
    )


_NUMERIC = "numeric (int or float)"
_SCALARS: dict[str, tuple[str, tuple[type, ...]]] = {
    "string": ("string", (str,)),
    "bytes": ("string", (str,)),
    "time": ("string", (str,)),
    "microtime": ("string", (str,)),
    "bool": ("boolean", (bool,)),
    "int32": (_NUMERIC, (int, float)),
    "int64": (_NUMERIC, (int, float)),
}
"""Word of the schema → how a message names it, and what fits; others take any scalar."""
