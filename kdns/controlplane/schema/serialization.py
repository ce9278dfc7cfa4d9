"""Objects as Go serializes them, by a msgspec type compiled for each type of the schema.

encoding/json drops the empty values of fields with omitempty. It always writes a field without omitempty, and a struct
even with omitempty, unless it is a pointer: `ports: null` of an EndpointSlice, `status: {"loadBalancer": {}}` of a
Service, `resources: {}` of a container.

In a compiled type, a field that Go drops when it is empty has a plain default, which msgspec omits. A field that Go
always writes has a default from a factory, which msgspec writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Annotated, Any, Final

import msgspec

from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.schema import check
from kdns.controlplane.schema.schema import type_of
from kdns.controlplane.schema.types import META, SCALARS, Field, TypeName, TypeRef, fields, name_of


class _Written:
    """A value that can be written in several ways, such as a quantity."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


def _integer(bits: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(1 << bits - 1), le=(1 << bits - 1) - 1)]


_WRITTEN: Final[Mapping[str, type[_Written]]] = {
    name: type(name, (_Written,), {"__slots__": ()}) for name in check.WRITTEN
}
_TYPES: Final[Mapping[TypeName, Any]] = {
    "string": str,
    "bytes": Annotated[str, msgspec.Meta(pattern=rf"^{check.BASE64}\Z")],
    "bool": bool,
    "int32": _integer(32),
    "int64": _integer(64),
    "number": float,
    "intorstr": _integer(32) | str,
    "fieldsv1": Any,
    "rawextension": Any,
    "strings": list[str],
    **_WRITTEN,
}
_ZEROS: Final[Mapping[TypeName, Any]] = {"string": "", "bool": False, "int32": 0, "int64": 0, "number": 0.0}
"""The empty values of scalars; those of bytes and of JSON are null."""

_STRUCTS: Final[Mapping[TypeName, Any]] = {
    "time": None,
    "microtime": None,
    "rawextension": None,
    "quantity": _WRITTEN["quantity"]("0"),
    "intorstr": 0,
}
"""The empty values of scalars that are structs in Go."""


class Serialized(dict[str, Any]):
    """An object of a request as Go serializes it; nobody else refers to it."""


def serialized(kind: Kind, obj: Json) -> Json:
    """A new value, without unknown fields, with kind and apiVersion first.

    Values of the wrong type stay as they are.
    """
    whole = typed(kind, obj)
    if kind.schema:
        return _custom(kind, whole)
    if (exact := matching(kind, whole)) is not None:
        return exact
    pruned = check.prune(kind, whole)
    exact = matching(kind, pruned)
    return pruned if exact is None else exact


def encoded(kind: Kind, obj: Json) -> bytes:
    """The JSON of `serialized`, usually without the object in between."""
    if is_compiled(kind) and (struct := _struct(type_of(kind), typed(kind, obj))) is not None:
        return _encode(struct)
    return _encode(serialized(kind, obj))


def typed(kind: Kind, obj: Json) -> Json:
    return {**obj, "kind": kind.kind, "apiVersion": kind.api_version}


def matching(kind: Kind, obj: Json) -> Json | None:
    """`serialized` for most objects; None if a value needs the slow path.

    Those are an unknown field, a value of the wrong type, null instead of an empty value, or an empty list instead of
    null.
    """
    return _exact(type_of(kind), obj) if is_compiled(kind) else None


def read(kind: Kind, text: bytes) -> Json | None:
    """Fast path: the object of a compact JSON text as Go serializes it. None for text that needs the slow path.

    No field of the text is unknown, occurs twice, or has a value of the wrong type.
    """
    if not is_compiled(kind):
        return None
    try:
        struct = _decoder(type_of(kind)).decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    exact: Json = msgspec.to_builtins(struct, enc_hook=_written_value)
    if (exact.get("kind"), exact.get("apiVersion")) != (kind.kind, kind.api_version):
        return None
    text = text.rstrip()
    is_whole = _encode(struct) == text or _encode(msgspec.json.decode(text)) == text
    return exact if is_whole else None  # a field that occurs twice is not written again


@cache
def _decoder(type_ref: TypeRef) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_compiled(type_ref), dec_hook=_decoded)


@cache
def is_compiled(kind: Kind) -> bool:
    return not kind.schema and not _contains_itself(type_of(kind))


@cache
def _contains_itself(type_ref: TypeRef) -> bool:
    """A type below the type contains itself, as schemas do; no such type is compiled."""

    def is_cyclic(outer: TypeRef, above: frozenset[TypeRef]) -> bool:
        path = above | {outer}
        inner_types = {field.type for field in fields(outer).values() if field.type not in SCALARS}
        return bool(inner_types & path) or any(is_cyclic(inner, path) for inner in inner_types)

    return is_cyclic(type_ref, frozenset())


def _struct(type_ref: TypeRef, obj: Json) -> Any:
    try:
        return msgspec.convert(obj, _compiled(type_ref), dec_hook=_decoded)
    except msgspec.ValidationError:
        return None


def _exact(type_ref: TypeRef, obj: Json) -> Json | None:
    struct = _struct(type_ref, obj)
    exact: Json | None = None if struct is None else msgspec.to_builtins(struct, enc_hook=_written_value)
    return exact


def _custom(kind: Kind, whole: Json) -> Json:
    """An object of a custom kind: its metadata as Go serializes them, and the fields that its schema has."""
    pruned = check.prune(kind, whole)
    metadata = _exact(f"{META}.ObjectMeta", pruned["metadata"])
    fields = {name: value for name, value in pruned.items() if name not in {"kind", "apiVersion", "metadata"}}
    return {
        "kind": kind.kind,
        "apiVersion": kind.api_version,
        "metadata": pruned["metadata"] if metadata is None else metadata,
        **fields,
    }


def _decoded(written: type[Any], value: object) -> object:
    return written(_text(written.__name__, value))


@lru_cache(maxsize=4096)
def _text(name: str, value: Any) -> object:
    """A scalar in its canonical form. Raises ValueError for a value of the wrong type."""
    is_valid = check.VALUES[name][1]
    if not is_valid(value):
        raise ValueError(name)
    return check.WRITTEN[name](value)


def _written_value(written: _Written) -> object:
    return written.value


_encode: Final = msgspec.json.Encoder(enc_hook=_written_value).encode


@cache
def _compiled(type_ref: TypeRef) -> Any:
    known = sorted(fields(type_ref).values(), key=_order)
    names = {f"f{index}": field.name for index, field in enumerate(known)}
    rows = [(name, *_field(field)) for name, field in zip(names, known, strict=True)]
    return msgspec.defstruct(
        name_of(type_ref), rows, rename=names, omit_defaults=True, forbid_unknown_fields=True, gc=False
    )


def _order(field: Field) -> tuple[tuple[int, ...], bool]:
    """The sort key of a field: its number, mostly as in Go's struct. `kind` has no number and is first."""
    return field.number, field.name != "kind"


def _field(field: Field) -> tuple[Any, Any]:
    value: Any = _TYPES[field.type_name] if field.type in SCALARS else _compiled(field.type)
    container: Any = list[value] if field.list_of else dict[str, value]
    if field.list_of or field.map_of:
        if not field.writes_zero:
            return container, msgspec.field(default_factory=list if field.list_of else dict)
        if not field.pointer:  # an empty one is null
            container = Annotated[container, msgspec.Meta(min_length=1)]
        return container | None, _written(None) if field.always else None
    if field.pointer:
        return value | None, _written(None) if field.always else None
    if field.type not in SCALARS:
        return (value | None, None) if field.omitzero else (value, msgspec.field(default_factory=value))
    if field.type in _STRUCTS:
        return value | None, None if field.omitzero else _written(_STRUCTS[field.type_name])
    zero = _ZEROS.get(field.type_name)
    optional = value | None if zero is None else value
    return optional, _written(zero) if field.always else zero


def _written(zero: object) -> Any:
    return msgspec.field(default_factory=lambda: zero)
