"""Values and functions of Go templates (text/template).

Values are None, bool, int, float, str, tuple, Struct and Map; a method is a callable with one string.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from kdns.serverblocks.expressions.values import EvaluationError, text_of

GoValue: TypeAlias = Any

MAX_CHARS: Final = 65536
"""The longest text."""
MAX_WIDTH: Final = 1000
"""The largest width of printf."""

_VERB: Final = re.compile(r"%(?P<flags>[-+# 0]*)(?P<width>[0-9]*)(?:\.(?P<precision>[0-9]*))?(?P<verb>.)", re.DOTALL)


class Struct(dict[str, GoValue]):
    """A value with fields; a missing field is an error."""


class Map(dict[str, GoValue]):
    """A map of strings; the value of a missing key is `absent`."""

    def __init__(self, entries: Mapping[str, GoValue], absent: GoValue = "") -> None:
        super().__init__(entries)
        self.absent = absent


def text(value: GoValue) -> str:
    if value is None:
        return "<no value>"
    if isinstance(value, Map):
        return f"map[{' '.join(f'{key}:{text_of(value[key])}' for key in sorted(value))}]"
    if isinstance(value, dict) or callable(value):
        raise EvaluationError("this is a value with fields: name one of them")
    return text_of(value)


def field(value: GoValue, name: str) -> GoValue:
    if isinstance(value, Map):
        return value.get(name, value.absent)
    if isinstance(value, dict) and name in value:
        return value[name]
    raise EvaluationError(f"the field {name!r} does not exist")


def parse_int(*arguments: GoValue) -> int:
    """parseInt TEXT BASE BITS: an unsigned number, as strconv.ParseUint parses it."""
    match arguments:
        case (str(digits), int(base), int(bits)) if base == 0 or 2 <= base <= 36:
            pattern = r"[0-9A-Za-z]+(?:_[0-9A-Za-z]+)*" if base == 0 else r"[0-9A-Za-z]+"
            if len(digits) > 70 or not re.fullmatch(pattern, digits):
                raise EvaluationError(f"parseInt: expected a number, got {digits[:50]!r}")
            try:
                legacy_octal = base == 0 and len(digits) > 1 and digits[0] == "0" and digits[1:].isdecimal()
                number = int(digits, 8 if legacy_octal else base)
            except ValueError as error:
                raise EvaluationError(f"parseInt: expected a number to the base {base}, got {digits[:50]!r}") from error
            if number >> (bits if 0 < bits <= 64 else 64):
                raise EvaluationError(f"parseInt: {digits[:50]!r} has more than {bits} bits")
            return number
    raise EvaluationError("parseInt takes a string, a base and a number of bits")


def _index(value: GoValue, *keys: GoValue) -> GoValue:
    for key in keys:
        if isinstance(value, Map) and isinstance(key, str):
            value = value.get(key, value.absent)
        elif isinstance(value, tuple | str) and isinstance(key, int) and not isinstance(key, bool):
            if not 0 <= key < len(value):
                raise EvaluationError(f"index out of range: {key}")
            value = value[key] if isinstance(value, tuple) else ord(value[key])
        else:
            raise EvaluationError("index takes a list and numbers, or a map and strings")
    return value


def _slice(value: GoValue, *bounds: GoValue) -> GoValue:
    if not isinstance(value, tuple | str) or len(bounds) > 2 or not all(type(bound) is int for bound in bounds):
        raise EvaluationError("slice takes a list or a string, and up to two numbers")
    first = bounds[0] if bounds else 0
    last = bounds[1] if len(bounds) > 1 else len(value)
    if not 0 <= first <= last <= len(value):
        raise EvaluationError(f"slice out of range: {first} {last}")
    return value[first:last]


def _length(value: GoValue) -> int:
    if not isinstance(value, str | tuple | Map):
        raise EvaluationError("len takes a string, a list or a map")
    return len(value)


def _check_comparable(left: GoValue, right: GoValue) -> None:
    """EvaluationError if Go would not compare the values."""
    if not isinstance(left, bool | int | float | str) or type(left) is not type(right):
        raise EvaluationError("values of different kinds cannot be compared")


def _eq(first: GoValue, *others: GoValue) -> bool:
    if not others:
        raise EvaluationError("eq takes at least two values")
    for other in others:
        _check_comparable(first, other)
        if first == other:
            return True
    return False


def _lt(left: GoValue, right: GoValue) -> bool:
    _check_comparable(left, right)
    if isinstance(left, bool):
        raise EvaluationError("true and false have no order")
    return bool(left < right)


def _le(left: GoValue, right: GoValue) -> bool:
    return _lt(left, right) or _eq(left, right)


def _print(*values: GoValue) -> str:
    pieces: list[str] = []
    for index, value in enumerate(values):
        if index and not isinstance(value, str) and not isinstance(values[index - 1], str):
            pieces.append(" ")
        pieces.append(text(value))
    return "".join(pieces)


def _printf(layout: GoValue = None, *values: GoValue) -> str:
    if not isinstance(layout, str):
        raise EvaluationError("printf takes a format and values")
    remaining = list(values)

    def formatted(match: re.Match[str]) -> str:
        if match["verb"] == "%":
            return "%"
        if not remaining:
            raise EvaluationError(f"printf: no value for {match[0]}")
        return _formatted(match, remaining.pop(0))

    result = _VERB.sub(formatted, layout)
    if remaining:
        raise EvaluationError(f"printf: {len(remaining)} values too many")
    return result


def _formatted(match: re.Match[str], value: GoValue) -> str:
    flags, verb = match["flags"], match["verb"]
    width, precision = int(match["width"][:6] or 0), match["precision"]
    if max(width, int((precision or "0")[:6] or 0)) > MAX_WIDTH:
        raise EvaluationError(f"printf: a field wider than {MAX_WIDTH}")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    sign = "+" if "+" in flags else " " if " " in flags else ""
    align = "<" if "-" in flags else "0>" if "0" in flags and not is_number else ">"
    zero = "0" if "0" in flags and "-" not in flags else ""
    match verb:
        case "d" | "x" | "X" | "o" | "b" if isinstance(value, int) and is_number:
            digits = format(value, f"{sign}{'#' if '#' in flags and verb != 'd' else ''}{zero}{width or ''}{verb}")
            return format(digits, f"{align[-1]}{width}")
        case "f" | "e" | "g" if is_number:
            digits = format(
                float(value), f"{sign}{zero}{width or ''}{f'.{precision or 0}' if precision is not None else ''}{verb}"
            )
            return format(digits, f"{align[-1]}{width}")
        case "c" if isinstance(value, int) and is_number and 0 <= value <= 0x10FFFF:
            plain = chr(value)
        case "t" if isinstance(value, bool):
            plain = text(value)
        case "q" if isinstance(value, str):
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            plain = f'"{escaped}"'
        case "x" | "X" if isinstance(value, str):
            plain = value.encode("utf-8", "surrogateescape").hex()
            plain = plain.upper() if verb == "X" else plain
        case "s" if isinstance(value, str):
            plain = value if precision is None else value[: int(precision or 0)]
        case "T":
            plain = _type_name(value)
        case "v":
            plain = "<nil>" if value is None else text(value)
        case _:
            raise EvaluationError(f"printf: {match[0]} does not fit {text(value)[:50]!r}")
    return format(plain, f"{align}{width}")


def _type_name(value: GoValue) -> str:
    match value:
        case None:
            return "<nil>"
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float64"
        case str():
            return "string"
        case Map():
            return "map[string]string"
        case list() | tuple():
            return "[]string"
    raise EvaluationError("printf: %T of a value with fields")


FUNCTIONS: Final[dict[str, Callable[..., GoValue]]] = {
    "eq": _eq,
    "ge": lambda left, right: not _lt(left, right),
    "gt": lambda left, right: not _le(left, right),
    "index": _index,
    "le": _le,
    "len": _length,
    "lt": _lt,
    "ne": lambda left, right: not _eq(left, right),
    "not": lambda value: not value,
    "parseInt": parse_int,
    "print": _print,
    "printf": _printf,
    "println": lambda *values: " ".join(map(text, values)) + "\n",
    "slice": _slice,
}
"""Functions that evaluate all arguments; `and` and `or` are in the parser."""


def called(name: str, arguments: tuple[GoValue, ...]) -> GoValue:
    try:
        result = FUNCTIONS[name](*arguments)
    except TypeError as error:
        raise EvaluationError(f"{name}: {len(arguments)} arguments, or of a wrong kind") from error
    if isinstance(result, str) and len(result) > MAX_CHARS:
        raise EvaluationError(f"a string of more than {MAX_CHARS} characters")
    return result
