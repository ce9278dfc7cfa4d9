"""Validation of custom resources against their schemas; the texts are those of kube-apiserver (kube-openapi/validate).

A path is that of a value, such as `spec.ports[0].name`. Of `x-kubernetes-validations` nothing is evaluated.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Any, Final
from urllib.parse import urlsplit

from kdns.controlplane.apimachinery.errors import Cause
from kdns.controlplane.apimachinery.field_errors import (
    duplicate,
    invalid_value,
    quoted,
    required,
    too_many,
    unsupported,
)
from kdns.controlplane.apimachinery.structural import Schema
from kdns.controlplane.schema.custom.patterns import matches
from kdns.controlplane.schema.custom.pruning import RESOURCE_FIELDS, child_of

NO_PATH: Final = "<nil>"
"""The field of a cause about several schemas: its message has the path."""

_RANGES: Final = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


def causes_of(schema: Schema, value: Any, path: str = "") -> Iterator[Cause]:
    """Yields the violated rules of a value, and of the values below it."""
    if value is None and (schema.nullable or not (schema.type or schema.int_or_string)):
        return
    yield from _type_causes(schema, value, path)
    yield from _combined_causes(schema, value, path)
    match value:
        case str():
            yield from _string_causes(schema, value, path)
        case bool() | None:
            pass
        case int() | float():
            yield from _number_causes(schema, value, path)
        case list():
            yield from _list_causes(schema, value, path)
    if schema.enum and value is not None and not any(_is_equal(value, each) for each in schema.enum):
        supported = (each if isinstance(each, str) else quoted(each) for each in schema.enum)
        yield unsupported(path, value, supported)
    if isinstance(value, dict):
        yield from _object_causes(schema, value, path)


def _is_equal(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def json_type(value: Any) -> str:
    """Returns the type of a JSON value; a number without a fraction is an integer."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _type_causes(schema: Schema, value: Any, path: str) -> Iterator[Cause]:
    found = json_type(value)
    if schema.int_or_string:
        allowed: tuple[str, ...] = ("integer", "string")
    elif schema.type == "number":
        allowed = ("number", "integer")
    else:
        allowed = (schema.type,)
    if allowed != ("",) and found not in allowed:
        wanted = ",".join(allowed) if schema.int_or_string else schema.type
        yield _wrong_type(path, found, wanted, found)
    elif (check := _FORMATS.get(schema.format)) and isinstance(value, str) and not check(value):
        yield _wrong_type(path, value, schema.format, value)


def _wrong_type(path: str, value: Any, wanted: str, found: str) -> Cause:
    return Cause(
        path,
        f"Invalid value: {quoted(value)}",
        f"{path} in body must be of type {wanted}: {quoted(found)}",
        specific_reason="FieldValueTypeInvalid",
    )


def _combined_causes(schema: Schema, value: Any, path: str) -> Iterator[Cause]:
    def several(text: str) -> Cause:
        return invalid_value(NO_PATH, "", f"{quoted(path)} {text}")

    if schema.any_of:
        found = [list(causes_of(each, value, path)) for each in schema.any_of]
        if all(found):
            yield several("must validate at least one schema (anyOf)")
            yield from min(found, key=len)
    if schema.one_of:
        found = [list(causes_of(each, value, path)) for each in schema.one_of]
        valid = sum(not each for each in found)
        if valid != 1:
            which = f"Found {valid} valid alternatives" if valid else "Found none valid"
            yield several(f"must validate one and only one schema (oneOf). {which}")
            yield from [] if valid else min(found, key=len)
    if schema.all_of:
        found = [list(causes_of(each, value, path)) for each in schema.all_of]
        for each in found:
            yield from each
        if any(found):
            yield several(f"must validate all the schemas (allOf){'. None validated' if all(found) else ''}")
    if schema.negated and not any(causes_of(schema.negated, value, path)):
        yield several("must not validate the schema (not)")


def _string_causes(schema: Schema, value: str, path: str) -> Iterator[Cause]:
    if schema.max_length is not None and len(value) > schema.max_length:
        yield Cause(path, "Too long", f"may not be more than {schema.max_length} bytes")
    if schema.min_length is not None and len(value) < schema.min_length:
        yield invalid_value(path, value, f"{path} in body should be at least {schema.min_length} chars long")
    if schema.pattern and not matches(schema.pattern, value):
        yield invalid_value(path, value, f"{path} in body should match '{schema.pattern}'")


def _number_causes(schema: Schema, value: float, path: str) -> Iterator[Cause]:
    if (span := _RANGES.get(schema.format)) and not span[0] <= value <= span[1]:
        yield _wrong_type(path, value, schema.format, str(value))
    if schema.multiple_of and not _is_multiple(value, schema.multiple_of):
        yield invalid_value(path, value, f"{path} in body should be a multiple of {_number(schema.multiple_of)}")
    if (most := schema.maximum) is not None and (value >= most if schema.exclusive_maximum else value > most):
        than = "less than" if schema.exclusive_maximum else "less than or equal to"
        yield invalid_value(path, value, f"{path} in body should be {than} {_number(most)}")
    if (least := schema.minimum) is not None and (value <= least if schema.exclusive_minimum else value < least):
        than = "greater than" if schema.exclusive_minimum else "greater than or equal to"
        yield invalid_value(path, value, f"{path} in body should be {than} {_number(least)}")


def _is_multiple(value: float, of: float) -> bool:
    try:
        times = value / of
        nearest = round(times)
    except OverflowError:  # the quotient is larger than any float
        return True
    return abs(times - nearest) < 1e-9 * max(1.0, abs(times))


def _number(value: float) -> str:
    """Returns a bound as Go writes it: without a fraction where there is none."""
    return str(int(value)) if value.is_integer() else str(value)


def _list_causes(schema: Schema, value: list[Any], path: str) -> Iterator[Cause]:
    if schema.items:
        for index, each in enumerate(value):
            yield from causes_of(schema.items, each, f"{path}[{index}]")
    if schema.min_items is not None and len(value) < schema.min_items:
        yield invalid_value(path, len(value), f"{path} in body should have at least {schema.min_items} items")
    if schema.max_items is not None and len(value) > schema.max_items:
        yield too_many(path, len(value), schema.max_items)
    if schema.list_type in {"set", "map"}:
        yield from _duplicates(schema, value, path)


def _duplicates(schema: Schema, value: list[Any], path: str) -> Iterator[Cause]:
    seen = set()
    for index, each in enumerate(value):
        key = each
        if schema.list_type == "map":
            key = {name: each.get(name) for name in schema.list_map_keys} if isinstance(each, dict) else {}
        if (text := quoted(key)) in seen:
            yield duplicate(f"{path}[{index}]", key)
        seen.add(text)


def _object_causes(schema: Schema, value: Mapping[str, Any], path: str) -> Iterator[Cause]:
    if schema.min_properties is not None and len(value) < schema.min_properties:
        yield invalid_value(path, value, f"{path} in body should have at least {schema.min_properties} properties")
    if schema.max_properties is not None and len(value) > schema.max_properties:
        yield too_many(path, len(value), schema.max_properties)
    prefix = f"{path}." if path else ""
    for name in schema.required:
        if name not in value:
            yield required(f"{prefix}{name}")
    for name in ("apiVersion", "kind") if schema.embedded else ():
        if not value.get(name):
            yield required(f"{prefix}{name}", "must not be empty")
    for name, each in value.items():
        if (child := child_of(schema, name)) and not (schema.embedded and name in RESOURCE_FIELDS):
            yield from causes_of(child, each, f"{prefix}{name}")


_DURATION = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h|d|w))+|0")
_LABEL = r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOSTNAME = re.compile(rf"({_LABEL}\.)*{_LABEL}\.?")
_MAC = re.compile(r"[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}|[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){7}")
_UUID = re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_COLOR = re.compile(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})")


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return True


def _is_time(text: str) -> bool:
    try:
        return "T" in text.upper() and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _fits(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


_FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {
    "byte": _is_base64,
    "cidr": lambda text: "/" in text and _parses(lambda each: ip_network(each, strict=False))(text),
    "date": _parses(date.fromisoformat),
    "date-time": _is_time,
    "datetime": _is_time,
    "duration": _fits(_DURATION),
    "email": _fits(_EMAIL),
    "hexcolor": _fits(_COLOR),
    "hostname": _fits(_HOSTNAME),
    "ipv4": _parses(IPv4Address),
    "ipv6": _parses(IPv6Address),
    "mac": _fits(_MAC),
    "uri": lambda text: _parses(urlsplit)(text) and bool(urlsplit(text).scheme or text.startswith("/")),
    "uuid": _fits(_UUID),
}
"""Format of strings → whether a text has it; other formats say nothing, as in kube-apiserver."""
