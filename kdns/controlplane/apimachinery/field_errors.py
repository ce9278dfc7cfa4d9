"""Errors of single fields, the causes of a 422 (apimachinery: util/validation/field).

`path` is spelled like `spec.ports[0].name`, `metadata.annotations[key]`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kdns.controlplane.apimachinery.errors import Cause


def quoted(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def json_type(value: object) -> str:
    return _JSON_TYPES.get(type(value), "an object")


_JSON_TYPES: Final[Mapping[type, str]] = {
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "a list",
    type(None): "null",
}


def expected(what: str, value: object, *, is_shown: bool = True) -> str:
    """Text for a value of the wrong type, such as `expected an integer, got "eighty"`.

    Short scalars are quoted in it if `is_shown`; for other values it names their JSON type.
    """
    text = "" if isinstance(value, dict | list) or not is_shown else quoted(value)
    return f"expected {what}, got {text if 0 < len(text) <= _SHOWN_MAX else json_type(value)}"


_SHOWN_MAX: Final = 60


def invalid_value(path: str, value: object, detail: str) -> Cause:
    return Cause(path, f"Invalid value: {quoted(value)}", detail)


def immutable(path: str, value: object, detail: str) -> Cause:
    return Cause(path, f"Invalid value: {quoted(value)}", detail, is_immutable=True)


def frozen(path: str, detail: str) -> Cause:
    return Cause(path, "Forbidden", detail, is_immutable=True)


def required(path: str, detail: str = "") -> Cause:
    return Cause(path, "Required value", detail)


def forbidden(path: str, detail: str) -> Cause:
    return Cause(path, "Forbidden", detail)


def not_found(path: str, value: object) -> Cause:
    return Cause(path, f"Not found: {quoted(value)}", "")


def duplicate(path: str, value: object) -> Cause:
    return Cause(path, f"Duplicate value: {quoted(value)}", "")


def unsupported(path: str, value: object, supported: Iterable[str]) -> Cause:
    """The message lists the supported values in their order."""
    names = ", ".join(quoted(name) for name in supported)
    return Cause(path, f"Unsupported value: {quoted(value)}", f"supported values: {names}")


def too_many(path: str, count: int, most: int) -> Cause:
    return Cause(path, f"Too many: {count}", f"must have at most {most} items")


def invalid_values(path: str, value: object, details: Sequence[str]) -> list[Cause]:
    return [invalid_value(path, value, detail) for detail in details] if details else []
