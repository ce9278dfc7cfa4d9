"""Values of expressions: kinds, operators, limits, and escapes of strings.

Integers have 64 bits, as in Go: a larger one is an error. So is a string of more than MAX_CHARS, and a list of more
than MAX_VALUES.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from kdns.errors import KdnsError

Value: TypeAlias = Any
"""None, bool, int, float, str or tuple."""

MAX_CHARS: Final = 4096
"""No name has more than 1016 characters."""
MAX_VALUES: Final = 4096
_INT_BITS: Final = 63


_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
_ESCAPED: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    **{sign: sign for sign in "\\'\""},
}


class EvaluationError(KdnsError):
    """An expression that has no value for this query."""


class ValueKind(Enum):
    """ANY: known at evaluation only."""

    NIL = "nil"
    BOOL = "bool"
    NUMBER = "number"
    STRING = "string"
    LIST = "list"
    ANY = "any"

    __hash__ = object.__hash__  # Enum's own is written in Python, and slow


NIL, BOOL, NUMBER, STRING, LIST, ANY = ValueKind
_KINDS: Final = {type(None): NIL, bool: BOOL, int: NUMBER, float: NUMBER, str: STRING, tuple: LIST}


def unquoted(quoted: str) -> str:
    """Quotes have Go's escapes, backquotes have none; ValueError for an invalid escape."""
    return quoted[1:-1] if quoted[0] == "`" else _ESCAPE.sub(_character, quoted[1:-1])


def _character(match: re.Match[str]) -> str:
    escape = match[1]
    if escape in _ESCAPED:
        return _ESCAPED[escape]
    code = int(escape[1:], 16) if escape[0] in "xuU" and escape[1:] else int(escape, 8) if escape[1:] else -1
    if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise ValueError(f"`\\{escape}` is not an escape")
    return chr(code)


def kind_of(value: Value) -> ValueKind:
    return _KINDS[type(value)]


def fits(kind: ValueKind, expected_kind: ValueKind) -> bool:
    return kind is expected_kind or ANY in {kind, expected_kind}


def text_of(value: Value) -> str:
    """As Go prints the value; EvaluationError for a list that is too long."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case float():
            return str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)
        case tuple():
            return str(bounded(f"[{' '.join(map(text_of, value))}]"))
    return str(value)


def bounded(value: Value) -> Value:
    """Raises EvaluationError for a value beyond the limits."""
    match value:
        case str() if len(value) > MAX_CHARS:
            raise EvaluationError(f"a string of more than {MAX_CHARS} characters")
        case int() if value.bit_length() > _INT_BITS:
            raise EvaluationError("an integer of more than 64 bits")
        case float() if not math.isfinite(value):
            raise EvaluationError("a number beyond all bounds")
        case tuple() if len(value) > MAX_VALUES:
            raise EvaluationError(f"a list of more than {MAX_VALUES} values")
    return value


def same(left: Value, right: Value) -> bool:
    """Unlike Python's ==: true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


def _remainder(left: Value, right: Value) -> Value:
    if isinstance(left, float) or isinstance(right, float):
        raise EvaluationError("`%` takes whole numbers")
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


def _range(left: Value, right: Value) -> Value:
    return tuple(range(left, min(right, left + MAX_VALUES) + 1))


def _is_in(left: Value, right: Value) -> bool:
    return any(same(left, value) for value in right)


Rows: TypeAlias = tuple[tuple[ValueKind, ...], ...]


class Function(NamedTuple):
    """A function or operator. A row has the kinds of its arguments, and last the kind of its result.

    The caller bounds the result. `call` gets the environment first if it is `of_query`. `is_of_packet`: the value
    depends on nothing but the packet. `check` raises EvaluationError for a wrong last argument that is constant.
    `binding` is the precedence of an operator, as in expr-lang.
    """

    rows: Rows
    call: Callable[..., Value]
    of_query: bool = False
    is_of_packet: bool = True
    check: Callable[[str], object] | None = None
    binding: int = 0


@cache
def result_kind(rows: Rows, kinds: tuple[ValueKind, ...]) -> ValueKind | None:
    """None if the function does not take arguments of these kinds."""
    results = {row[-1] for row in rows if len(row) == len(kinds) + 1 and all(map(fits, kinds, row))}
    return (results.pop() if len(results) == 1 else ANY) if results else None


def _operator(binding: int, call: Callable[[Value, Value], Value], *rows: tuple[ValueKind, ...]) -> Function:
    return Function(rows, call, binding=binding)


_EQUALITY: Final = (*((kind, kind, BOOL) for kind in ValueKind if kind is not ANY), (NIL, ANY, BOOL), (ANY, NIL, BOOL))
_ORDER: Final = ((NUMBER, NUMBER, BOOL), (STRING, STRING, BOOL))
_NUMBERS: Final = (NUMBER, NUMBER, NUMBER)
_STRINGS: Final = (STRING, STRING, BOOL)

OPERATORS: Final = {
    "==": _operator(20, same, *_EQUALITY),
    "!=": _operator(20, lambda left, right: not same(left, right), *_EQUALITY),
    "<": _operator(20, operator.lt, *_ORDER),
    "<=": _operator(20, operator.le, *_ORDER),
    ">": _operator(20, operator.gt, *_ORDER),
    ">=": _operator(20, operator.ge, *_ORDER),
    "in": _operator(20, _is_in, (ANY, LIST, BOOL)),
    "contains": _operator(20, operator.contains, _STRINGS),
    "startsWith": _operator(20, str.startswith, _STRINGS),
    "endsWith": _operator(20, str.endswith, _STRINGS),
    "..": _operator(25, _range, (NUMBER, NUMBER, LIST)),
    "+": _operator(30, operator.add, _NUMBERS, (STRING, STRING, STRING)),
    "-": _operator(30, operator.sub, _NUMBERS),
    "*": _operator(60, operator.mul, _NUMBERS),
    "/": _operator(60, operator.truediv, _NUMBERS),
    "%": _operator(60, _remainder, _NUMBERS),
}
INDEX: Final = Function(((LIST, NUMBER, ANY), (STRING, NUMBER, STRING)), operator.getitem)
