"""Errors of single fields, the causes of a 422 (apimachinery: util/validation/field).

`path` is spelled like `spec.ports[0].name`, `metadata.annotations[key]`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from kdns.controlplane.meta.errors import Cause


def quoted(value: object) -> str:
    """The value as JSON without spaces, as messages quote it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def invalid_value(path: str, value: object, detail: str) -> Cause:
    """The value violates a rule."""
    return Cause(path, f"Invalid value: {quoted(value)}", detail)


def immutable(path: str, value: object, detail: str) -> Cause:
    """An update may not change the field to this value."""
    return Cause(path, f"Invalid value: {quoted(value)}", detail, is_immutable=True)


def frozen(path: str, detail: str) -> Cause:
    """An update may not change the field."""
    return Cause(path, "Forbidden", detail, is_immutable=True)


def required(path: str, detail: str = "") -> Cause:
    """A value is required."""
    return Cause(path, "Required value", detail)


def forbidden(path: str, detail: str) -> Cause:
    """A value is not allowed."""
    return Cause(path, "Forbidden", detail)


def not_found(path: str, value: object) -> Cause:
    """The value names something that does not exist."""
    return Cause(path, f"Not found: {quoted(value)}", "")


def duplicate(path: str, value: object) -> Cause:
    """Another element has the same value."""
    return Cause(path, f"Duplicate value: {quoted(value)}", "")


def unsupported(path: str, value: object, supported: Iterable[str]) -> Cause:
    """The value is not a supported one; these are named in the order in which they are given."""
    names = ", ".join(quoted(name) for name in supported)
    return Cause(path, f"Unsupported value: {quoted(value)}", f"supported values: {names}")


def too_many(path: str, count: int, most: int) -> Cause:
    """The list is longer than allowed."""
    return Cause(path, f"Too many: {count}", f"must have at most {most} items")


def invalid_values(path: str, value: object, details: Iterable[str]) -> list[Cause]:
    """One `Invalid value` for each problem of the value."""
    return [invalid_value(path, value, detail) for detail in details]
