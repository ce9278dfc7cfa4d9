"""Objects against the schema: unknown fields, values of the wrong JSON type, and pruning to known fields.

Kubernetes documentation, "Field validation".
Differs: each error has the path of its field, where kube-apiserver names the type of a Go struct or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from kdns.controlplane.apimachinery.errors import StatusError, bad_request
from kdns.controlplane.apimachinery.field_errors import expected
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.apimachinery.quantities import canonical
from kdns.controlplane.schema.custom.pruning import pruned as custom_pruned
from kdns.controlplane.schema.schema import fields, resolved, type_of
from kdns.controlplane.schema.types import META, SCALARS, Field, TypeName, TypeRef, name_of

_QUANTITY = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")
BASE64: Final = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_ZEROS = {"string": "", "bytes": "", "bool": False, "int32": 0, "int64": 0, "number": 0}
_ELEMENT_ZEROS = {**_ZEROS, "quantity": "0", "intorstr": 0, "rawextension": None}


class Pairs(list[tuple[str, Any]]):
    """The names and values of a JSON object in the order of the text, duplicates included."""


def unknown_fields(kind: Kind, obj: Json) -> list[str]:
    """Returns paths such as `spec.ports[0].foo` of fields that the kind does not have, in the object's order."""
    return [path.removeprefix(".") for path, is_unknown in _strict(type_of(kind), obj) if is_unknown]


def unknown_field_errors(kind: Kind, obj: Json) -> list[tuple[str, str]]:
    """Returns the same paths, each with its error."""
    return [(path, "unknown field") for path in unknown_fields(kind, obj)]


def strict_errors(kind: Kind, tree: Any) -> list[str]:
    """Returns the errors of strict decoding in the order of the text: unknown fields, and fields that occur twice.

    `tree` is the object, or its `Pairs`. Fields below an unknown field are not checked.
    """
    found = dict.fromkeys(_strict(type_of(kind), tree))
    return [
        f'{"unknown" if is_unknown else "duplicate"} field "{path.removeprefix(".")}"' for path, is_unknown in found
    ]


def _strict(type_name: TypeRef, obj: Any) -> Iterator[tuple[str, bool]]:
    """Yields paths below `obj`, each with a leading dot, and whether the field is unknown, or else a duplicate.

    An object without such fields builds no strings.
    """
    type_fields = fields(type_name)
    seen: set[str] = set()
    for name, value in _members(obj):
        field = type_fields.get(name)
        if field is None:
            if not resolved(type_name).is_open:
                yield f".{name}", True
            continue
        if name in seen:
            yield f".{name}", False
        seen.add(name)
        if value and (field.map_of or field.type not in SCALARS):
            for path, is_unknown in _strict_in(field, value):
                yield f".{name}{path}", is_unknown


def _strict_in(field: Field, value: Any) -> Iterator[tuple[str, bool]]:
    if field.list_of:
        for index, element in enumerate(value if isinstance(value, list) else ()):
            for path, is_unknown in _strict(field.type, element):
                yield f"[{index}]{path}", is_unknown
    elif field.map_of:
        seen: set[str] = set()
        for key, element in _members(value):
            if key in seen:
                yield f".{key}", False
            seen.add(key)
            for path, is_unknown in _strict(field.type, element) if field.type not in SCALARS else ():
                yield f".{key}{path}", is_unknown
    else:
        yield from _strict(field.type, value)


def _members(obj: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(obj, dict):
        return obj.items()
    return obj if isinstance(obj, Pairs) else ()


def prune(kind: Kind, obj: Json) -> Json:
    """Returns the object in its stored form: quantities and times are written as in Kubernetes, so `1000m` is 1.

    It has no unknown fields, no nulls, and none of the empty lists and maps, false, 0 and "" that omitempty drops.
    """
    if kind.schema:
        metadata = _pruned(f"{META}.ObjectMeta", obj["metadata"]) if isinstance(obj.get("metadata"), dict) else {}
        custom: Json = custom_pruned(kind.schema, {**obj, "metadata": metadata}, is_resource=True)
        return custom
    return _pruned(type_of(kind), obj)  # type: ignore[no-any-return]  # of a dict, a dict is returned


def _pruned(type_name: TypeRef, obj: Any) -> Any:
    if type_name == "strings" and isinstance(obj, list):
        return [_pruned_element("string", each) for each in obj]
    if not isinstance(obj, dict) or type_name in SCALARS:
        write = WRITTEN.get(name_of(type_name))
        return write(obj) if write and obj is not None else obj
    type_fields = fields(type_name)
    return {
        name: _pruned_field(type_fields[name], value)
        for name, value in obj.items()
        if name in type_fields and (value or _is_serialized(type_fields[name], value))
    }


def _time_written(value: object, timespec: str, characters: int) -> object:
    """Returns a time as Kubernetes writes it: in UTC, with seconds or microseconds.

    Other values are returned unchanged.
    """
    if not isinstance(value, str) or (len(value) == characters and value.endswith("Z")):
        return value
    try:
        utc = datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        return value
    return f"{utc.replace(tzinfo=None).isoformat(timespec=timespec)}Z"


WRITTEN: Final[Mapping[str, Callable[[Any], object]]] = {
    "quantity": canonical,
    "time": partial(_time_written, timespec="seconds", characters=len("2006-01-02T15:04:05Z")),
    "microtime": partial(_time_written, timespec="microseconds", characters=len("2006-01-02T15:04:05.000000Z")),
}
"""Type → how its values are written, which may differ from how they were sent."""


def _is_serialized(field: Field, value: Any) -> bool:
    """Returns whether Go serializes a value that is null, empty or zero."""
    if field.list_of or field.map_of:
        return field.pointer and value is not None
    return value is not None and (field.writes_zero or value != _ZEROS.get(field.type_name))


def _pruned_field(field: Field, value: Any) -> Any:
    if field.list_of and isinstance(value, list):
        return [_pruned_element(field.type, element) for element in value]
    if field.map_of and isinstance(value, dict):
        return {key: _pruned_element(field.type, element) for key, element in value.items()}
    return _pruned(field.type, value)


def _pruned_element(type_name: TypeRef, element: Any) -> Any:
    """Returns an element of a list or map. null becomes Go's zero value, such as an empty object."""
    if element is None:
        if type_name == "strings":
            return []
        return _ELEMENT_ZEROS.get(name_of(type_name), "") if type_name in SCALARS else {}
    return _pruned(type_name, element)


def _typed_part(kind: Kind, obj: Json) -> Json:
    """Returns the part of an object whose types are checked here: of a custom one the metadata."""
    return {"metadata": obj.get("metadata")} if kind.schema else obj


def mistyped_fields(kind: Kind, obj: Json) -> list[tuple[str, str]]:
    """Returns the values of the wrong type, in the order of the object; null matches any type.

    Each is the path of its field, such as `spec.ports[0].port`, and its error.
    """
    return list(_mistyped(type_of(kind), _typed_part(kind, obj)))


def first_mistyped(kind: Kind, obj: Json) -> str:
    """Returns path and error of the first value of the wrong type, or ""."""
    return next((f"{path}: {why}" for path, why in _mistyped(type_of(kind), _typed_part(kind, obj))), "")


def mistyped_delete_options(options: Json) -> list[tuple[str, str]]:
    return list(_mistyped(f"{META}.DeleteOptions", options))


def _mistyped(type_name: TypeRef, obj: Json) -> Iterator[tuple[str, str]]:
    return ((path.removeprefix("."), why) for path, why in _mismatches(type_name, obj))


def _mismatches(type_name: TypeRef, obj: Json) -> Iterator[tuple[str, str]]:
    """Yields paths below `obj`, each with a leading dot, and their errors. Paths are built for mismatches only."""
    type_fields = fields(type_name)
    for name, value in obj.items():
        field = type_fields.get(name)
        if field is None or value is None:
            continue
        container = list if field.list_of else dict if field.map_of else None
        if container and not isinstance(value, container):
            yield f".{name}", expected("a list" if field.list_of else "an object", value)
            continue
        elements = enumerate(value) if field.list_of else value.items() if field.map_of else ((None, value),)
        for key, element in elements:
            if element is not None:
                for below, why in _element_mismatches(field.type, element):
                    yield f".{name}{below}" if key is None else f".{name}[{key}]{below}", why


def _element_mismatches(type_name: TypeRef, element: Any) -> Iterator[tuple[str, str]]:
    if type_name in SCALARS:
        what, matches = VALUES[name_of(type_name)]
        if not matches(element):
            yield "", expected(what, element, is_shown=type_name not in _CONCEALED)
    elif isinstance(element, dict):
        yield from _mismatches(type_name, element)
    else:
        yield "", expected("an object", element)


def _is_base64(value: Any) -> bool:
    """Returns whether Go decodes the text, which skips line breaks."""
    return isinstance(value, str) and re.fullmatch(BASE64, re.sub(r"[\r\n]", "", value)) is not None


def _is_integer(value: Any, bits: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits - 1) <= value < 1 << bits - 1


def _is_quantity(value: Any) -> bool:
    return not isinstance(value, bool | list | dict) and _QUANTITY.fullmatch(str(value)) is not None


def _is_time(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return not value or ("T" in value and datetime.fromisoformat(value).tzinfo is not None)
    except ValueError:
        return False


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str | None) for each in value)


def _is_any(_value: Any) -> bool:
    return True


_is_int32, _is_int64 = partial(_is_integer, bits=32), partial(_is_integer, bits=64)
_TIME: Final = ("a time such as 2006-01-02T15:04:05Z", _is_time)
VALUES: Final[Mapping[TypeName, tuple[str, Callable[[Any], bool]]]] = {
    "string": ("a string", lambda value: isinstance(value, str)),
    "bytes": ("base64", _is_base64),
    "bool": ("a boolean", lambda value: isinstance(value, bool)),
    "int32": ("an integer of 32 bits", _is_int32),
    "int64": ("an integer of 64 bits", _is_int64),
    "number": ("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
    "quantity": ("a quantity such as 500m or 1Gi", _is_quantity),
    "intorstr": ("a string or an integer of 32 bits", lambda value: isinstance(value, str) or _is_int32(value)),
    "time": _TIME,
    "microtime": _TIME,
    "fieldsv1": ("", _is_any),
    "rawextension": ("", _is_any),
    "strings": ("a list of strings", _is_strings),
}
"""Type of a scalar → its name in errors, and whether a value has it."""

_CONCEALED: Final = frozenset({"string", "bytes", "strings"})
"""Types whose values may be secret; errors do not show them."""


def cannot_be_handled(kind: Kind, reason: str) -> StatusError:
    """Returns 400: the body is not an object of the kind."""
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {reason}')


def another_type(kind: Kind, obj: Json) -> str:
    """Returns why apiVersion and kind of an object do not match a kind; "" if they match, and if both are absent."""
    api_version, name = obj.get("apiVersion") or kind.api_version, obj.get("kind") or kind.kind
    if (api_version, name) == (kind.api_version, kind.kind) or not (
        isinstance(api_version, str) and isinstance(name, str)  # `mistyped_fields` names others
    ):
        return ""
    return f"expected kind {kind.kind} of {kind.api_version}, got kind {name} of {api_version}"
