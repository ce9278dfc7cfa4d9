"""One broken rule of one field, in the API's words: what stands in 422 bodies.

`path` is spelled as users write it: `spec.ports[0].name`, `metadata.annotations[key]`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from kdns.controlplane.status import Cause


def shown(value: object) -> str:
    """The value as JSON without spaces, as it stands in messages."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def invalid_value(path: str, value: object, detail: str) -> Cause:
    """The value breaks a rule."""
    return Cause(path, f"Invalid value: {shown(value)}", detail)


def required(path: str, detail: str = "") -> Cause:
    """There must be a value."""
    return Cause(path, "Required value", detail)


def forbidden(path: str, detail: str) -> Cause:
    """There must not be a value here."""
    return Cause(path, "Forbidden", detail)


def not_found(path: str, value: object) -> Cause:
    """The value names something that is not there."""
    return Cause(path, f"Not found: {shown(value)}", "")


def duplicate(path: str, value: object) -> Cause:
    """Another element has this value."""
    return Cause(path, f"Duplicate value: {shown(value)}", "")


def unsupported(path: str, value: object, supported: Iterable[str]) -> Cause:
    """The value is none of the supported ones."""
    names = ", ".join(shown(name) for name in sorted(supported))
    return Cause(path, f"Unsupported value: {shown(value)}", f"supported values: {names}")


def too_many(path: str, count: int, most: int) -> Cause:
    """The list is longer than allowed."""
    return Cause(path, f"Too many: {count}", f"must have at most {most} items")


def each(path: str, value: object, details: Iterable[str]) -> list[Cause]:
    """One cause per broken rule of the same value."""
    return [invalid_value(path, value, detail) for detail in details]
