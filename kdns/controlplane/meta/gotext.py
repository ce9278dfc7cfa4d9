"""JSON values as Go's fmt and encoding/json print them: kube-apiserver's messages quote values in this form."""

from __future__ import annotations

import json
import re
from math import isinf
from typing import Any


def plain(value: Any) -> str:
    """Returns a value with %v: `map[spec:map[ports:[map[port:80]]]]`."""
    match value:
        case dict():
            return f"map[{' '.join(f'{name}:{plain(value[name])}' for name in sorted(value))}]"
        case list():
            return f"[{' '.join(map(plain, value))}]"
        case bool():
            return "true" if value else "false"
        case None:
            return "<nil>"
        case _:
            return str(value)


def syntax(value: Any) -> str:
    """Returns a value with %#v: `map[string]interface {}{"port":80}`."""
    match value:
        case dict():
            inner = ", ".join(f"{_quoted(name)}:{syntax(value[name])}" for name in sorted(value))
            return f"{type_name(value)}{{{inner}}}"
        case list():
            return f"{type_name(value)}{{{', '.join(map(syntax, value))}}}"
        case str():
            return _quoted(value)
        case None:
            return "interface {}(nil)"
        case _:
            return plain(value)


def type_name(value: Any) -> str:
    """Returns a value's type with %T: `int64`."""
    match value:
        case dict():
            return "map[string]interface {}"
        case list():
            return "[]interface {}"
        case bool():
            return "bool"
        case str():
            return "string"
        case None:
            return "<nil>"
        case _:
            return "int64" if isinstance(value, int) else "float64"


def json_name(value: Any) -> str:
    """Returns the name of a value's type in errors of encoding/json, such as `array`."""
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case None:
            return "null"
        case _:
            return "object"


def kind_name(value: Any) -> str:
    """Returns the name of a value's kind in Go's reflection, such as `map`."""
    match value:
        case dict():
            return "map"
        case list():
            return "slice"
        case _:
            return type_name(value)


def unmarshal_error(value: Any, wanted: str) -> str:
    """Returns the error of encoding/json for a value that cannot be decoded into a Go type or struct field."""
    return f"json: cannot unmarshal {json_name(value)} into Go {wanted}"


def json_error(text: str) -> str:
    """Returns the error of encoding/json for a text that is not JSON, or has a number beyond its types."""
    try:
        json.loads(text, parse_constant=_no_constant, parse_int=len, parse_float=len)
    except json.JSONDecodeError as error:
        position, expected = error.pos, error.msg
    except ValueError:  # NaN and Infinity, which Python reads
        position, expected = next(found.start() for found in _TOKEN.finditer(text) if found["constant"]), _VALUE
    else:
        numbers = (found["number"] for found in _TOKEN.finditer(text) if found["number"])
        beyond = next((each for each in numbers if isinf(float(each))), "")
        return f"json: cannot unmarshal number {beyond} into Go value of type float64"
    if expected.startswith("Expecting property name") and text[position - 1 : position] == ",":
        position = len(text) - len(text[position:].lstrip())
    if position >= len(text) or expected.startswith("Unterminated string"):
        return "unexpected end of JSON input"
    for literal in ("null", "true", "false") if expected == _VALUE else ():
        if text[position] == literal[0]:
            size = 1 + next(n for n in range(len(literal)) if not text.startswith(literal[: n + 2], position))
            return _invalid(text, position + size, f"in literal {literal} (expecting {literal[size]!r})")
    rest = (_SIGN if expected == _VALUE else _FRACTION).match(text, position)
    if rest:
        return _invalid(text, rest.end(), _NUMBER_PLACES[rest[0][0].lower()])
    position += expected.startswith("Invalid \\")
    return _invalid(text, position, _place(text[:position], expected))


def _invalid(text: str, position: int, place: str) -> str:
    if position >= len(text):
        return "unexpected end of JSON input"
    return f"invalid character {_character(text[position])} {place}"


_VALUE = "Expecting value"
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|(?P<constant>NaN|-?Infinity)|(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)', re.DOTALL
)
_SIGN, _FRACTION = re.compile("-"), re.compile(r"(?<=[0-9])(?:\.|[eE][+-]?)")
_NUMBER_PLACES = {
    "-": "in numeric literal",
    ".": "after decimal point in numeric literal",
    "e": "in exponent of numeric literal",
}
"""Last character of an incomplete number → its place in the message."""


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _character(letter: str) -> str:
    return "'\\''" if letter == "'" else "'\"'" if letter == '"' else f"'{_quoted(letter)[1:-1]}'"


def _place(before: str, expected: str) -> str:
    """Returns the place of a wrong character, derived from the error of Python's decoder."""
    if expected.startswith("Expecting ','"):
        return "after array element" if _innermost(before) == "[" else "after object key:value pair"
    for start, place in _PLACES.items():
        if expected.startswith(start):
            return place
    return "looking for beginning of value"


_PLACES = {
    "Expecting ':'": "after object key",
    "Expecting property name": "looking for beginning of object key string",
    "Extra data": "after top-level value",
    "Invalid control character": "in string literal",
    "Invalid \\": "in string escape code",
}


def _innermost(text: str) -> str:
    """Returns the bracket that is open at the end of a valid beginning of JSON."""
    opened = []
    for bracket in re.sub(r'"(?:[^"\\]|\\.)*"', "", text, flags=re.DOTALL):
        if bracket in "[{":
            opened.append(bracket)
        elif bracket in "]}":
            opened.pop()
    return opened[-1] if opened else ""


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
