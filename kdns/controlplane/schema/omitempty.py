"""The values that Go serializes for absent fields: null, {}, false, 0 and "".

encoding/json writes a field without omitempty whatever its value is, and a struct even with omitempty, unless it is a
pointer: `ports: null` of an EndpointSlice, `status: {"loadBalancer": {}}` of a Service, `resources: {}` of a container.
Objects that are sent and stored have such fields (`filled`); those in memory lack null and {} (`lean`), so that
nothing depends on whether a client wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from operator import is_
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kdns.controlplane.meta.kinds import Json, Kind
from kdns.controlplane.schema.schema import SCALARS, Field, TypeName, fields, type_of

_STRUCTS: Final[Mapping[TypeName, Any]] = MappingProxyType(
    {"time": None, "microtime": None, "rawextension": None, "quantity": "0", "intorstr": 0}
)
"""Scalars that are structs in Go → their zero value in JSON."""
_PLAIN: Final[Mapping[TypeName, Any]] = MappingProxyType(
    {"string": "", "bool": False, "int32": 0, "int64": 0, "bytes": None, "fieldsv1": None}
)


EMPTY: Final[Json] = {}


class _Shape(NamedTuple):
    """The rules for a type's objects: zeros of absent fields, zeros that equal empty values, and fields with rules."""

    zeros: Mapping[str, Any]
    emptied: frozenset[str]
    inner: tuple[Field, ...]


def filled(kind: Kind, obj: Json) -> Json:
    """Returns the object as Go serializes it, kind and apiVersion first. Unchanged parts are shared with `obj`."""
    return {"kind": kind.kind, "apiVersion": kind.api_version, **_filled(type_of(kind), obj)}


def filled_differences(kind: Kind, one: Json, other: Json) -> tuple[Json, Json]:
    """Returns both objects as Go serializes them, without their types and equal top-level fields."""
    differing = {name for name in {*one, *other} if one.get(name) != other.get(name)}
    first, second = ({name: obj[name] for name in differing if name in obj} for obj in (one, other))
    return _filled(type_of(kind), first), _filled(type_of(kind), second)


def lean(kind: Kind, obj: Json, known: Json = EMPTY) -> Json:
    """Returns the object without the nulls and {} that `filled` adds. Unchanged parts are shared with `obj`.

    The parts of the whole object, such as an empty status, stay. Top-level fields that are equal to those of `known`, a
    lean object, are shared with it and need no look.
    """
    if not known:
        return _lean(type_of(kind), obj, is_whole=True)
    same = {name: known[name] for name, value in obj.items() if name in known and known[name] == value}
    rest = _lean(type_of(kind), {name: value for name, value in obj.items() if name not in same}, is_whole=True)
    return {name: same[name] if name in same else rest[name] for name in obj if name in same or name in rest}


@cache
def zero(type_name: TypeName) -> Json:
    """Returns the serialized zero value of a Go type. The result is shared, so it must not be changed."""
    return {field.name: value for field in fields(type_name).values() for value in _zeros(field)}


def _zeros(field: Field) -> tuple[Any, ...]:
    """Returns the value of a field that is not set, in a tuple; an empty tuple if nothing is written."""
    if field.pointer or field.list_of or field.map_of:
        return (None,) if field.always else ()
    if field.type in _PLAIN:
        return (_PLAIN[field.type],) if field.always else ()
    if field.omitzero:
        return ()
    return (_STRUCTS[field.type],) if field.type in SCALARS else (zero(field.type),)


@cache
def _shape(type_name: TypeName) -> _Shape:
    zeros = zero(type_name)
    inner = (each for each in fields(type_name).values() if _needs(each.type, frozenset()))
    known = fields(type_name)
    emptied = frozenset(
        name for name, value in zeros.items() if isinstance(value, dict) or known[name].list_of or known[name].map_of
    )
    return _Shape(zeros, emptied, tuple(inner))


@cache
def _needs(type_name: TypeName, above: frozenset[TypeName]) -> bool:
    """Returns whether objects of a type, or objects in them, have fields that are written without a value."""
    if type_name in SCALARS or type_name in above:
        return False
    below = above | {type_name}
    return bool(zero(type_name)) or any(_needs(field.type, below) for field in fields(type_name).values())


def _filled(type_name: TypeName, obj: Json) -> Json:
    shape = _shape(type_name)
    changes: Json = {}
    for name, value in shape.zeros.items():
        present = obj.get(name)
        if present is None or (not present and isinstance(value, dict)):
            changes[name] = value
    for field in shape.inner:
        if value := obj.get(field.name):
            changes[field.name] = _each(_filled, field, value)
    return {**obj, **changes} if changes else obj


def _lean(type_name: TypeName, obj: Json, *, is_whole: bool = False) -> Json:
    shape = _shape(type_name)
    changes: Json = {}
    for field in shape.inner:
        if value := obj.get(field.name):
            new = _each(_lean, field, value)
            if new is not value:
                changes[field.name] = new
    whole = {**obj, **changes} if changes else obj
    dropped = [
        name
        for name, value in shape.zeros.items()
        if name in whole
        and not (is_whole and isinstance(value, dict))
        and (whole[name] is None or (not whole[name] and name in shape.emptied))
    ]
    return {name: value for name, value in whole.items() if name not in dropped} if dropped else whole


def _each(change: Callable[[TypeName, Json], Json], field: Field, value: Any) -> Any:
    """Returns a field's value with each object in it changed; the value itself if nothing changes."""
    if isinstance(value, list):
        new = [change(field.type, each) if isinstance(each, dict) else each for each in value]
        return value if all(map(is_, new, value)) else new
    if not isinstance(value, dict):
        return value
    if field.map_of:
        return {key: change(field.type, each) for key, each in value.items()}
    return change(field.type, value)
