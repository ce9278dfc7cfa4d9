"""Objects against the schema: unknown fields, values of the wrong JSON type, and pruning to known fields.

Kubernetes documentation, "Field validation". Differs: each error has the path of its field, where kube-apiserver names
the type of a Go struct or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple

from kdns.controlplane.apimachinery.errors import StatusError, bad_request
from kdns.controlplane.apimachinery.field_errors import expected
from kdns.controlplane.apimachinery.kinds import Json, Kind
from kdns.controlplane.apimachinery.quantities import canonical
from kdns.controlplane.schema.custom.types import pruned as custom_pruned
from kdns.controlplane.schema.schema import object_of
from kdns.controlplane.schema.types import META, SCALARS, Field, TypeName, resolved

_QUANTITY = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")
BASE64: Final = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_ZEROS = {"string": "", "bytes": "", "bool": False, "int32": 0, "int64": 0, "number": 0}
_ELEMENT_ZEROS = {**_ZEROS, "quantity": "0", "intorstr": 0, "rawextension": None, "strings": []}


class Pairs(list[tuple[str, Any]]):
    """The members of a JSON object in the order of the text, duplicates included."""


class Mistake(NamedTuple):
    """A field that does not match the schema: its path, such as `spec.ports[0].port`, and its error."""

    path: str
    why: str


UNKNOWN: Final = "unknown field"
DUPLICATE: Final = "duplicate field"


def mistakes(kind: Kind, tree: Any) -> Iterator[Mistake]:
    """Unknown fields, values of the wrong type, and fields that occur twice, in the order of the text.

    `tree` is the object, or its `Pairs`. null matches any type, and nothing is checked below an unknown field. Of a
    custom kind only the metadata's types are checked here; its own schema has the rest.
    """
    for mistake in _mistakes(object_of(kind), tree):
        if mistake.why in _STRICT or not kind.schema or mistake.path.startswith("metadata"):
            yield mistake


_STRICT: Final = (UNKNOWN, DUPLICATE)


def unknown_fields(kind: Kind, obj: Json) -> list[Mistake]:
    return [mistake for mistake in mistakes(kind, obj) if mistake.why == UNKNOWN]


def mistyped_fields(kind: Kind, obj: Json) -> list[Mistake]:
    return [mistake for mistake in mistakes(kind, obj) if mistake.why not in _STRICT]


def mistyped_delete_options(options: Json) -> list[Mistake]:
    of_options = _mistakes(Field("", f"{META}.DeleteOptions"), options)
    return [mistake for mistake in of_options if mistake.why not in _STRICT]


def prune(kind: Kind, obj: Json) -> Json:
    """The object in its stored form: quantities and times are written as in Kubernetes, so `1000m` is 1.

    It has no unknown fields, no nulls, and none of the empty lists and maps, false, 0 and "" that omitempty drops.
    """
    if kind.schema:
        metadata = _walk(Field("", f"{META}.ObjectMeta"), obj.get("metadata"), "", [])
        metadata = metadata if isinstance(metadata, dict) else {}
        custom: Json = custom_pruned(kind.schema, {**obj, "metadata": metadata}, is_resource=True)
        return custom
    return _walk(object_of(kind), obj, "", [])  # type: ignore[no-any-return]  # a dict for a dict


def _mistakes(field: Field, tree: Any) -> list[Mistake]:
    mistakes: list[Mistake] = []
    _walk(field, tree, "", mistakes)
    return mistakes


def _walk(field: Field, value: Any, path: str, mistakes: list[Mistake]) -> Any:
    """The value in its stored form; adds its mistakes. A mistyped value stays as it is."""
    if value is None:
        return None
    if field.list_of and isinstance(value, list) and not isinstance(value, Pairs):
        return [_walk_element(field.element, item, f"{path}[{index}]", mistakes) for index, item in enumerate(value)]
    if field.list_of:
        mistakes.append(Mistake(path, expected("a list", value)))
    elif not field.map_of and field.type in SCALARS:
        return _scalar(field, value, path, mistakes)
    elif isinstance(value, dict | Pairs):
        return _walk_members(field, value.items() if isinstance(value, dict) else value, path, mistakes)
    else:
        mistakes.append(Mistake(path, expected("an object", value)))
    return value


def _scalar(field: Field, value: Any, path: str, mistakes: list[Mistake]) -> Any:
    what, matches = VALUES[field.type_name]
    if not matches(value):
        hint = "; put it in quotes" if field.type == "string" and isinstance(value, int | float) else ""
        mistakes.append(Mistake(path, expected(what, value, is_shown=field.type not in _CONCEALED) + hint))
        return value
    if field.type == "strings":
        return [item or "" for item in value]
    write = WRITTEN.get(field.type_name)
    return write(value) if write else value


def _walk_members(field: Field, members: Iterable[tuple[str, Any]], path: str, mistakes: list[Mistake]) -> Json:
    result: Json = {}
    seen: set[str] = set()
    for name, value in members:
        dotted = f"{path}.{name}" if path else name
        child = field.child(name)
        if child is None:
            if not resolved(field.type).is_open:
                mistakes.append(Mistake(dotted, UNKNOWN))
            continue
        if name in seen:
            mistakes.append(Mistake(dotted, DUPLICATE))
        seen.add(name)
        if field.map_of:
            result[name] = _walk_element(child, value, f"{path}[{name}]", mistakes)
        else:
            stored = _walk(child, value, dotted, mistakes)
            if value or _is_serialized(child, value):
                result[name] = stored
    return result


def _walk_element(field: Field, element: Any, path: str, mistakes: list[Mistake]) -> Any:
    """null in a list or map becomes Go's zero value, such as an empty object."""
    if element is None:
        return copy(_ELEMENT_ZEROS.get(field.type_name, "")) if field.type in SCALARS else {}
    return _walk(field, element, path, mistakes)


def _is_serialized(field: Field, value: Any) -> bool:
    """Whether Go writes a value that is null, empty or zero."""
    if field.list_of or field.map_of:
        return field.pointer and value is not None
    return value is not None and (field.writes_zero or value != _ZEROS.get(field.type_name))


def _time_written(value: object, timespec: str, characters: int) -> object:
    """Kubernetes writes times in UTC, with seconds or microseconds. Other values are returned unchanged."""
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
"""How values of a type are written, which may differ from how they were sent."""


def _is_base64(value: Any) -> bool:
    """Go skips line breaks when it decodes."""
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
    return isinstance(value, list) and all(isinstance(item, str | None) for item in value)


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
"""The name of a scalar type in errors, and whether a value has the type."""

_CONCEALED: Final = frozenset({"string", "bytes", "strings"})
"""Types whose values may be secret; errors do not show them."""


def cannot_be_handled(kind: Kind, reason: str) -> StatusError:
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {reason}')


def another_type(kind: Kind, obj: Json) -> str:
    """Why apiVersion and kind of an object do not match a kind; "" if they match or are absent."""
    api_version, name = obj.get("apiVersion") or kind.api_version, obj.get("kind") or kind.kind
    if (api_version, name) == (kind.api_version, kind.kind) or not (
        isinstance(api_version, str) and isinstance(name, str)  # `mistyped_fields` names others
    ):
        return ""
    return f"expected kind {kind.kind} of {kind.api_version}, got kind {name} of {api_version}"
