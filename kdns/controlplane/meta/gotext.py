"""JSON values as Go's fmt and encoding/json print them: kube-apiserver's messages quote values in this form."""

from __future__ import annotations

import json
from typing import Any


def plain(value: Any) -> str:
    """A value with %v: `map[spec:map[ports:[map[port:80]]]]`."""
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
    """A value with %#v: `map[string]interface {}{"port":80}`."""
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
    """A value's type with %T: `int64`."""
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
    """The name of a value's type in errors of encoding/json, such as `array`."""
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


def misfit(value: Any, wanted: str) -> str:
    """The error of encoding/json for a value that cannot be decoded into a Go type or struct field."""
    return f"json: cannot unmarshal {json_name(value)} into Go {wanted}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
