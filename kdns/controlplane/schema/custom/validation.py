"""Validation of custom resources, with the messages of kube-apiserver (kube-openapi/validate).

A schema is compiled to a tree of functions, each part when its first value arrives. They check only what the schema
restricts, and build the text of a path only for a violation. `x-kubernetes-validations` are not evaluated.

Differs: at most 100 violations are reported, and the work for allOf, anyOf, oneOf and not is limited. kube-apiserver
has no such limits; a few kilobytes of nested `oneOf` would block this server for minutes.

Libraries that generate Python source from a schema (fastjsonschema) do not fit: their patterns are those of `re`, which
takes exponential time and refuses some of Go's; their source for 50 levels is invalid, and for 20,000 fields takes 6 s.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from functools import cache, partial
from ipaddress import IPv4Address, IPv6Address, ip_network
from itertools import chain
from operator import ge, gt, le, lt
from typing import Any, Final, TypeAlias
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
from kdns.controlplane.apimachinery.size import too_large
from kdns.controlplane.apimachinery.structural import Schema
from kdns.controlplane.schema.custom.patterns import compiled
from kdns.controlplane.schema.custom.types import RESOURCE_FIELDS

CAUSES_MAX: Final = 100
CHECKS_MAX: Final = 500_000
"""Attempts of schemas in junctors on the values of one object; each takes some µs."""

_NO_PATH: Final = "<nil>"
"""The field of a cause about several schemas: its message has the path."""

Path: TypeAlias = tuple[Any, "str | int"] | None
"""The parent's path, and the name or index in it; None for the object itself."""


class _FullError(Exception):
    """CAUSES_MAX is reached."""


class _Findings:
    """Violations of one value, or of one alternative of it."""

    __slots__ = ("causes", "checks")

    def __init__(self, checks: int) -> None:
        self.causes: list[Cause] = []
        self.checks = checks

    def add(self, cause: Cause) -> None:
        self.causes.append(cause)
        if len(self.causes) == CAUSES_MAX:
            raise _FullError

    def extend(self, causes: Iterable[Cause]) -> None:
        for cause in causes:
            self.add(cause)

    def add_combined(self, at: Path, text: str, causes: Sequence[Cause] = ()) -> None:
        """Adds one violation of several schemas, and those of the schema that fits best."""
        self.add(invalid_value(_NO_PATH, "", f"{quoted(_text(at))} {text}"))
        self.extend(causes)

    def run(self, check: Check, value: Any, at: Path) -> list[Cause]:
        with suppress(_FullError):
            check(value, at, self)
        return self.causes

    def tried(self, check: Check, value: Any, at: Path) -> list[Cause]:
        """Violations of an alternative, which do not count for the value yet."""
        trial = _Findings(self.checks)
        causes = trial.run(check, value, at)
        self.checks = trial.checks
        return causes


Check: TypeAlias = Callable[[Any, Path, _Findings], None]
"""Adds the violations of a value at a path."""


class Validator:
    """A compiled schema."""

    def __init__(self, schema: Schema) -> None:
        self._check = _check(schema)

    def causes(self, value: Any, path: str = "") -> list[Cause]:
        """Raises 413 if the value takes more than CHECKS_MAX checks."""
        return _Findings(0).run(self._check, value, (None, path) if path else None)


def _text(at: Path) -> str:
    names: list[str | int] = []
    while at is not None:
        at, name = at
        names.append(name)
    return "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in reversed(names)).removeprefix(".")


def _check(schema: Schema, *, is_alternative: bool = False) -> Check:
    """Rules in the order of kube-apiserver's causes."""
    rules = (_type, _format, _junctors, _bounds, _list, _enum, _object)
    steps = [step for rule in rules for step in rule(schema, is_alternative)]
    is_nullable = schema.nullable or not (schema.type or schema.int_or_string)

    def check(value: Any, at: Path, findings: _Findings) -> None:
        findings.checks += is_alternative
        if findings.checks > CHECKS_MAX:
            raise too_large(f"{CHECKS_MAX} checks of allOf, anyOf, oneOf and not")
        if value is None and is_nullable:
            return
        for step in steps:
            step(value, at, findings)

    return check


def json_type(value: Any) -> str:
    """A number without a fraction is an integer."""
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return _JSON_TYPES.get(type(value), "object")


_JSON_TYPES: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    str: "string",
    list: "array",
    dict: "object",
}


def _wrong_type(at: Path, value: Any, expected: str, shown: Any) -> Cause:
    path = _text(at)
    message = f"{path} in body must be of type {expected}: {quoted(shown)}"
    return Cause(path, f"Invalid value: {quoted(value)}", message, specific_reason="FieldValueTypeInvalid")


def _type(schema: Schema, _is_alternative: bool) -> Iterable[Check]:
    if not (schema.type or schema.int_or_string):
        return
    allowed = {"integer", "string"} if schema.int_or_string else {schema.type}
    expected = "integer,string" if schema.int_or_string else schema.type
    if schema.type == "number":
        allowed.add("integer")
    plain = frozenset(kind for kind, name in _JSON_TYPES.items() if name in allowed)

    def check(value: Any, at: Path, findings: _Findings) -> None:
        if type(value) not in plain and (actual := json_type(value)) not in allowed:
            findings.add(_wrong_type(at, actual, expected, actual))

    yield check


def _format(schema: Schema, _is_alternative: bool) -> Iterable[Check]:
    is_valid, span = _FORMATS.get(schema.format), _RANGES.get(schema.format)

    def check(value: Any, at: Path, findings: _Findings) -> None:
        if is_valid and isinstance(value, str) and not is_valid(value):
            findings.add(_wrong_type(at, value, schema.format, value))
        if span and type(value) in _NUMBER and not span[0] <= value <= span[1]:
            findings.add(_wrong_type(at, value, schema.format, str(value)))

    if is_valid or span:
        yield check


_RANGES: Final = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


def _junctors(schema: Schema, _is_alternative: bool) -> Iterable[Check]:
    any_of, one_of, all_of, negated = (
        [_check(alternative, is_alternative=True) for alternative in schemas]
        for schemas in (schema.any_of, schema.one_of, schema.all_of, (schema.negated,) if schema.negated else ())
    )
    if schema.int_or_string and [alternative.type for alternative in schema.any_of] == ["integer", "string"]:
        any_of = []  # `_type` has checked it

    def check(value: Any, at: Path, findings: _Findings) -> None:
        tried = [findings.tried(alternative, value, at) for alternative in any_of]
        if tried and all(tried):
            findings.add_combined(at, "must validate at least one schema (anyOf)", min(tried, key=len))
        tried = [findings.tried(alternative, value, at) for alternative in one_of]
        valid = sum(not causes for causes in tried)
        if tried and valid != 1:
            which = f"Found {valid} valid alternatives" if valid else "Found none valid"
            text = f"must validate one and only one schema (oneOf). {which}"
            findings.add_combined(at, text, () if valid else min(tried, key=len))
        tried = [findings.tried(alternative, value, at) for alternative in all_of]
        findings.extend(chain.from_iterable(tried))
        if any(tried):
            findings.add_combined(
                at, f"must validate all the schemas (allOf){'. None validated' if all(tried) else ''}"
            )
        if any(not findings.tried(alternative, value, at) for alternative in negated):
            findings.add_combined(at, "must not validate the schema (not)")

    if any_of or one_of or all_of or negated:
        yield check


def _bounds(schema: Schema, _is_alternative: bool) -> Iterable[Check]:
    for word, types, is_violated, cause in _BOUNDS:
        bound = getattr(schema, word)
        if word in {"maximum", "minimum"} and getattr(schema, f"exclusive_{word}"):
            is_violated, cause = _EXCLUSIVE[word]  # noqa: PLW2901
        if bound is not None and bound != "":
            yield _bound(bound, types, is_violated, cause)


def _bound(bound: Any, types: frozenset[type], is_violated: _IsViolated, cause: _Violation) -> Check:
    def check(value: Any, at: Path, findings: _Findings) -> None:
        if type(value) in types and is_violated(value, bound):
            findings.add(cause(_text(at), value, bound))

    return check


def _in_body(rule: str, shown: Callable[[Any], Any] = lambda value: value) -> _Violation:
    def cause(path: str, value: Any, bound: Any) -> Cause:
        text = str(int(bound)) if isinstance(bound, float) and bound.is_integer() else str(bound)  # as Go writes it
        return invalid_value(path, shown(value), f"{path} in body should {rule.format(text)}")

    return cause


def _too_long(path: str, _value: Any, bound: int) -> Cause:
    return Cause(path, "Too long", f"may not be more than {bound} bytes")


def _too_many(path: str, value: Any, bound: int) -> Cause:
    return too_many(path, len(value), bound)


def _is_multiple(value: float, divisor: float) -> bool:
    try:
        times = value / divisor
        nearest = round(times)
    except (OverflowError, ZeroDivisionError):  # the quotient is larger than any float; 0 says nothing
        return True
    return abs(times - nearest) < 1e-9 * max(1.0, abs(times))


_IsViolated: TypeAlias = Callable[[Any, Any], bool]
_Violation: TypeAlias = Callable[[str, Any, Any], Cause]
_STRING: Final = frozenset[type]({str})
_NUMBER: Final = frozenset[type]({int, float})
_LIST: Final = frozenset[type]({list})
_OBJECT: Final = frozenset[type]({dict})


def _is_over(value: Any, bound: int) -> bool:
    return len(value) > bound


def _is_under(value: Any, bound: int) -> bool:
    return len(value) < bound


_BOUNDS: Final[tuple[tuple[str, frozenset[type], _IsViolated, _Violation], ...]] = (
    ("max_length", _STRING, _is_over, _too_long),
    ("min_length", _STRING, _is_under, _in_body("be at least {} chars long")),
    ("pattern", _STRING, lambda value, bound: compiled(bound).search(value) is None, _in_body("match '{}'")),
    ("multiple_of", _NUMBER, lambda value, bound: not _is_multiple(value, bound), _in_body("be a multiple of {}")),
    ("maximum", _NUMBER, gt, _in_body("be less than or equal to {}")),
    ("minimum", _NUMBER, lt, _in_body("be greater than or equal to {}")),
    ("min_items", _LIST, _is_under, _in_body("have at least {} items", len)),
    ("max_items", _LIST, _is_over, _too_many),
    ("min_properties", _OBJECT, _is_under, _in_body("have at least {} properties")),
    ("max_properties", _OBJECT, _is_over, _too_many),
)
"""Words of a schema: the values that they restrict, when these are violations, and the cause."""

_EXCLUSIVE: Final[Mapping[str, tuple[_IsViolated, _Violation]]] = {
    "maximum": (ge, _in_body("be less than {}")),
    "minimum": (le, _in_body("be greater than {}")),
}


def _list(schema: Schema, is_alternative: bool) -> Iterable[Check]:
    if schema.items:
        items = cache(partial(_check, schema.items, is_alternative=is_alternative))

        def check(value: Any, at: Path, findings: _Findings) -> None:
            for index, item in enumerate(value) if isinstance(value, list) else ():
                items()(item, (at, index), findings)

        yield check
    if schema.list_type in {"set", "map"}:
        yield partial(_unique, schema)


def _unique(schema: Schema, value: Any, at: Path, findings: _Findings) -> None:
    seen = set[str]()
    for index, item in enumerate(value) if isinstance(value, list) else ():
        key = item
        if schema.list_type == "map":
            key = {name: item.get(name) for name in schema.list_map_keys} if isinstance(item, dict) else {}
        if (text := quoted(key)) in seen:
            findings.add(duplicate(_text((at, index)), key))
        seen.add(text)


def _enum(schema: Schema, _is_alternative: bool) -> Iterable[Check]:
    known = [(value, isinstance(value, bool)) for value in schema.enum]  # to Python, True is 1

    def check(value: Any, at: Path, findings: _Findings) -> None:
        if value is not None and not any(
            value == member and isinstance(value, bool) == is_bool for member, is_bool in known
        ):
            supported = (member if isinstance(member, str) else quoted(member) for member, _ in known)
            findings.add(unsupported(_text(at), value, supported))

    if known:
        yield check


def _object(schema: Schema, is_alternative: bool) -> Iterable[Check]:
    ignored = RESOURCE_FIELDS if schema.embedded else frozenset()
    properties = {name: field for name, field in schema.properties.items() if name not in ignored}
    others = schema.additional_properties
    of_others = cache(partial(_check, others, is_alternative=is_alternative)) if isinstance(others, Schema) else None

    @cache
    def of_field(name: str) -> Check:
        return _check(properties[name], is_alternative=is_alternative)

    def check(value: Any, at: Path, findings: _Findings) -> None:
        if not isinstance(value, dict):
            return
        for name in schema.required:
            if name not in value:
                findings.add(required(_text((at, name))))
        for name in ("apiVersion", "kind") if schema.embedded and at else ():
            if not value.get(name):
                findings.add(required(_text((at, name)), "must not be empty"))
        for name, part in value.items():
            if name in properties:
                of_field(name)(part, (at, name), findings)
            elif of_others and name not in ignored:
                of_others()(part, (at, name), findings)

    if properties or of_others or schema.required or schema.embedded:
        yield check


_DURATION = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h|d|w))+|0")
_LABEL = r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOSTNAME = re.compile(rf"({_LABEL}\.)*{_LABEL}\.?")
_UUID = re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")


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
    "cidr": lambda text: "/" in text and _parses(partial(ip_network, strict=False))(text),
    "date": _parses(date.fromisoformat),
    "date-time": _is_time,
    "datetime": _is_time,
    "duration": _fits(_DURATION),
    "hostname": _fits(_HOSTNAME),
    "ipv4": _parses(IPv4Address),
    "ipv6": _parses(IPv6Address),
    "uri": lambda text: _parses(urlsplit)(text) and bool(urlsplit(text).scheme or text.startswith("/")),
    "uuid": _fits(_UUID),
}
"""Whether a text has a format; other formats are ignored, as in kube-apiserver."""
