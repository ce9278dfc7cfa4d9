"""Objects against the schema: unknown fields, values of the wrong JSON type, and pruning to known fields.

Error texts are those of kube-apiserver's decoders (Kubernetes documentation, "Field validation"; Go's encoding/json).
Differs: errors of malformed times and quantities name the field, which those of kube-apiserver do not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple

from kdns.controlplane.meta.errors import StatusError, bad_request
from kdns.controlplane.meta.gotext import json_name, kind_name, syntax, unmarshal_error
from kdns.controlplane.meta.kinds import Json, Kind
from kdns.controlplane.meta.quantities import canonical
from kdns.controlplane.schema.schema import META, SCALARS, Field, TypeName, fields, type_at, type_of

_QUANTITY = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=]")
_INT_RANGE = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_ZEROS = {"string": "", "bytes": "", "bool": False, "int32": 0, "int64": 0}
_ELEMENT_ZEROS = {**_ZEROS, "quantity": "0", "intorstr": 0}
_GO_NAMES = {
    "bytes": "[]uint8",
    "fieldsv1": "v1.FieldsV1",
    "rawextension": "runtime.RawExtension",
    "strings": "v1.ExtraValue",
}


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


def _strict(type_name: TypeName, obj: Any) -> Iterator[tuple[str, bool]]:
    """Yields paths below `obj`, each with a leading dot, and whether the field is unknown, or else a duplicate.

    An object without such fields builds no strings.
    """
    type_fields = fields(type_name)
    seen: set[str] = set()
    for name, value in _members(obj):
        field = type_fields.get(name)
        if field is None:
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
    return _pruned(type_of(kind), obj)  # type: ignore[no-any-return]  # of a dict, a dict is returned


def _pruned(type_name: TypeName, obj: Any) -> Any:
    if type_name == "strings" and isinstance(obj, list):
        return [_pruned_element("string", each) for each in obj]
    if not isinstance(obj, dict) or type_name in SCALARS:
        write = _WRITTEN.get(type_name)
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


_WRITTEN: Final[Mapping[str, Callable[[Any], object]]] = {
    "quantity": canonical,
    "time": partial(_time_written, timespec="seconds", characters=len("2006-01-02T15:04:05Z")),
    "microtime": partial(_time_written, timespec="microseconds", characters=len("2006-01-02T15:04:05.000000Z")),
}
"""Type → how its values are written, which may differ from how they were sent."""


def _is_serialized(field: Field, value: Any) -> bool:
    """Returns whether Go serializes a value that is null, empty or zero."""
    zero: object = [] if field.list_of else {} if field.map_of else _ZEROS.get(field.type)
    return value is not None and (field.writes_zero or value != zero)


def _pruned_field(field: Field, value: Any) -> Any:
    if field.list_of and isinstance(value, list):
        return [_pruned_element(field.type, element) for element in value]
    if field.map_of and isinstance(value, dict):
        return {key: _pruned_element(field.type, element) for key, element in value.items()}
    return _pruned(field.type, value)


def _pruned_element(type_name: TypeName, element: Any) -> Any:
    """Returns an element of a list or map. null becomes Go's zero value, such as an empty object."""
    if element is None:
        if type_name == "strings":
            return []
        return _ELEMENT_ZEROS.get(type_name, "") if type_name in SCALARS else {}
    return _pruned(type_name, element)


class TypeMismatch(NamedTuple):
    """A value of the wrong JSON type: the errors of encoding/json and of the converter of merged patches."""

    text: str
    converted: str


def type_mismatches(kind: Kind, obj: Json) -> Iterator[TypeMismatch]:
    """Returns the values of the wrong JSON type, in the order of the object; null matches any type."""
    return (each for _, each in _type_mismatches(type_of(kind), obj, ""))


def mistyped_fields(kind: Kind, obj: Json) -> list[tuple[str, str]]:
    """Returns the decoder's errors, each with the path of its field, such as `spec.ports[0].port`."""
    return [(path.removeprefix("."), each.text) for path, each in _type_mismatches(type_of(kind), obj, "")]


def delete_options_errors(options: Json) -> list[str]:
    """Returns the decoder's errors for values of the wrong JSON type in a DeleteOptions."""
    return [each.text for _, each in _type_mismatches(f"{META}.DeleteOptions", options, "")]


def _type_mismatches(type_name: TypeName, obj: Json, path: str) -> Iterator[tuple[str, TypeMismatch]]:
    """Yields type mismatches with their paths below `obj`, with a leading dot. Paths are built for mismatches only."""
    struct = type_name.rpartition(".")[2]
    type_fields = fields(type_name)
    for name, value in obj.items():
        field = type_fields.get(name)
        if field is None or value is None:
            continue
        where = f"{struct}.{path}{name}"
        container = list if field.list_of else dict if field.map_of else None
        if container and not isinstance(value, container):
            text = _unmarshal_error(json_name(value), where, _go_name(field))
            shape = "slice" if field.list_of else "map"
            yield f".{name}", TypeMismatch(text, f"cannot restore {shape} from {kind_name(value)}")
            continue
        elements = enumerate(value) if field.list_of else value.items() if field.map_of else ((None, value),)
        for key, element in elements:
            if element is None:
                continue
            for below, each in _element_mismatches(field, element, where, f"{path}{name}."):
                yield f".{name}{below}" if key is None else f".{name}[{key}]{below}", each


def _element_mismatches(field: Field, element: Any, where: str, path: str) -> Iterator[tuple[str, TypeMismatch]]:
    if field.type in SCALARS:
        for each in _CHECKS[field.type](element, where, field.type):
            yield "", each
    elif isinstance(element, dict):
        yield from _type_mismatches(field.type, element, path)
    else:
        text = _unmarshal_error(json_name(element), where, _go_element(field.type))
        yield "", TypeMismatch(text, f"cannot restore struct from: {kind_name(element)}")


def _unmarshal_error(value: str, where: str, go_type: str) -> str:
    return f"json: cannot unmarshal {value} into Go struct field {where} of type {go_type}"


def _mismatch(value: Any, where: str, go_type: str, found: str = "") -> TypeMismatch:
    """Returns the mismatch of a scalar.

    In strategic merge patches, a number given for a string, or the reverse, has its own message.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_near = is_number and go_type in {"string", *_INT_RANGE}
    converted = f"cannot convert {kind_name(value)} to {go_type}" if is_near else f"unrecognized type: {go_type}"
    return TypeMismatch(_unmarshal_error(found or json_name(value), where, go_type), converted)


def _decoder_mismatch(value: Any, where: str, go_type: str) -> TypeMismatch:
    """Returns a value of the wrong type for a Go type that decodes itself."""
    return TypeMismatch(
        _unmarshal_error(json_name(value), where, go_type), unmarshal_error(value, f"value of type {go_type}")
    )


def _go_element(type_name: TypeName) -> str:
    return _GO_NAMES.get(type_name, type_name) if type_name in SCALARS else f"v1.{type_name.rpartition('.')[2]}"


def _go_name(field: Field) -> str:
    if field.map_of and field.type == "quantity":
        return "v1.ResourceList"
    element = _go_element(field.type)
    return f"[]{element}" if field.list_of else f"map[string]{element}" if field.map_of else element


def _check_string(value: Any, where: str, type_name: str) -> Iterator[TypeMismatch]:
    if not isinstance(value, str):
        yield _mismatch(value, where, _go_element(type_name))


def _check_bytes(value: Any, where: str, type_name: str) -> Iterator[TypeMismatch]:
    """Checks base64 as Go decodes it: line breaks are skipped; an error has the first illegal offset."""
    yield from _check_string(value, where, type_name)
    text = re.sub(r"[\r\n]", "", value) if isinstance(value, str) else ""
    if not _BASE64.fullmatch(text):
        illegal = _NOT_BASE64.search(text)
        why = f"illegal base64 data at input byte {illegal.start() if illegal else len(text) // 4 * 4}"
        yield TypeMismatch(why, why)


def _check_bool(value: Any, where: str, type_name: str) -> Iterator[TypeMismatch]:
    if not isinstance(value, bool):
        yield _mismatch(value, where, type_name)


def _check_int(value: Any, where: str, type_name: str) -> Iterator[TypeMismatch]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        yield _mismatch(value, where, type_name)
        return
    low, high = _INT_RANGE[type_name]
    if isinstance(value, float) or not low <= value <= high:
        yield _mismatch(value, where, type_name, f"number {value}")


def _check_quantity(value: Any, where: str, _: str) -> Iterator[TypeMismatch]:
    if isinstance(value, bool | list | dict):
        yield _decoder_mismatch(value, where, "resource.Quantity")
    elif not _QUANTITY.fullmatch(str(value)):
        why = (
            f"{where}: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$', "
            f"found {syntax(value)}"
        )
        yield TypeMismatch(why, why)


def _check_int_or_string(value: Any, where: str, _: str) -> Iterator[TypeMismatch]:
    if isinstance(value, bool | list | dict):
        yield _decoder_mismatch(value, where, "int32")
    elif not isinstance(value, str):
        yield from _check_int(value, where, "int32")


def _check_time(value: Any, where: str, _: str) -> Iterator[TypeMismatch]:
    if not isinstance(value, str):
        yield _decoder_mismatch(value, where, "string")
        return
    try:
        valid = "T" in value and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        valid = False
    if value and not valid:
        why = f'{where}: parsing time "{value}" as "2006-01-02T15:04:05Z07:00": not a date and time in that form'
        yield TypeMismatch(why, why)


def _check_strings(value: Any, where: str, _: str) -> Iterator[TypeMismatch]:
    if not isinstance(value, list):
        yield _decoder_mismatch(value, where, "[]string")
        return
    for each in value:
        if each is not None:
            yield from _check_string(each, where, "string")


def _check_json(_value: Any, _where: str, _type_name: str) -> Iterator[TypeMismatch]:
    yield from ()


_CHECKS: Final[Mapping[str, Callable[[Any, str, str], Iterator[TypeMismatch]]]] = {
    "string": _check_string,
    "bytes": _check_bytes,
    "bool": _check_bool,
    "int32": _check_int,
    "int64": _check_int,
    "quantity": _check_quantity,
    "intorstr": _check_int_or_string,
    "time": _check_time,
    "microtime": _check_time,
    "fieldsv1": _check_json,
    "rawextension": _check_json,
    "strings": _check_strings,
}


def cannot_be_handled(kind: Kind, reason: str) -> StatusError:
    """Returns 400: the body is not an object of the kind."""
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {reason}')


_SCHEME: Final = 'scheme "pkg/api/legacyscheme/scheme.go:30"'


def another_type(kind: Kind, obj: Json) -> str:
    """Returns why apiVersion and kind of an object do not match a kind; "" if they match, and if both are absent."""
    api_version, name = obj.get("apiVersion") or kind.api_version, obj.get("kind") or kind.kind
    if (api_version, name) == (kind.api_version, kind.kind):
        return ""
    if not (isinstance(api_version, str) and isinstance(name, str)):
        return ""  # `type_mismatches` names them
    version, group = api_version.rpartition("/")[2], kind.group.partition(".")[0] or "core"
    if type_at(api_version, name.removesuffix("List")):
        why = f"converting ({version}.{name}) to ({group}.{kind.kind}): unknown conversion"
    else:
        why = f'no kind "{name}" is registered for version "{api_version}" in {_SCHEME}'
    return f'{name} in version "{version}" cannot be handled as a {kind.kind}: {why}'
