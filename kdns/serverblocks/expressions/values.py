"""Values of expressions: their kinds, the operators, and the limits of all of them.

Integers have 64 bits, as in Go: a larger one is an error. So are a string of more than MAX_CHARS and a list of more
than MAX_VALUES.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from enum import Enum
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from kdns.errors import KdnsError

Value: TypeAlias = Any
"""None, bool, int, float, str, tuple, range or dict."""

MAX_CHARS: Final = 4096
"""No name has more than 1016 characters."""
MAX_VALUES: Final = 4096
MAX_RANGE: Final = 1_000_000
"""The longest range, which is not in memory."""
_INT_BITS: Final = 63


class EvaluationError(KdnsError):
    """An expression that has no value for this query."""


class ValueKind(Enum):
    """The kinds of values; ANY is known at evaluation only."""

    NIL = "nil"
    BOOL = "bool"
    NUMBER = "number"
    STRING = "string"
    LIST = "list"
    MAP = "map"
    ANY = "any"


NIL, BOOL, NUMBER, STRING, LIST, MAP, ANY = ValueKind
_KINDS: Final = {
    type(None): NIL, bool: BOOL, int: NUMBER, float: NUMBER, str: STRING, tuple: LIST, range: LIST, dict: MAP,
}  # fmt: skip


def kind_of(value: Value) -> ValueKind:
    return _KINDS[type(value)]


def fits(kind: ValueKind, expected_kind: ValueKind) -> bool:
    return kind is expected_kind or ANY in {kind, expected_kind}


def text_of(value: Value) -> str:
    """Returns a value as Go prints it; EvaluationError for a list that is too long."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case float():
            return str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)
        case tuple() | range():
            return f"[{_joined(map(text_of, value))}]"
        case dict():
            return f"map[{_joined(f'{key}:{text_of(value[key])}' for key in sorted(value))}]"
    return str(value)


def _joined(texts: Iterable[str]) -> str:
    """Returns the texts with blanks between them; EvaluationError as soon as they are too long."""
    joined: list[str] = []
    size = 0
    for text in texts:
        joined.append(text)
        size += len(text) + 1
        if size > MAX_CHARS:
            raise EvaluationError(f"a string of more than {MAX_CHARS} characters")
    return " ".join(joined)


def bounded(value: Value) -> Value:
    """Returns the same value.

    EvaluationError for a string or list that is too long, an integer of more than 64 bits, and for a number that is not
    finite.
    """
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
    """Returns whether values are equal; true is not a number."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, range) != isinstance(right, range) and {kind_of(left), kind_of(right)} == {LIST}:
        return len(left) == len(right) and tuple(left) == tuple(right)
    return bool(left == right)


def _remainder(left: Value, right: Value) -> Value:
    if isinstance(left, float) or isinstance(right, float):
        raise EvaluationError("`%` takes whole numbers")
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


def _range(left: Value, right: Value) -> Value:
    if right - left >= MAX_RANGE:
        raise EvaluationError(f"a range of more than {MAX_RANGE} numbers")
    return range(left, right + 1)


def _is_in(left: Value, right: Value) -> bool:
    if isinstance(right, range):
        return type(left) is int and left in right
    return left in right if isinstance(right, dict) else any(same(left, value) for value in right)


class Operator(NamedTuple):
    """An operator: how strongly it binds, its function, and the kinds of left, right and result, one row for each."""

    binding: int
    apply: Callable[[Value, Value], Value]
    rows: tuple[tuple[ValueKind, ValueKind, ValueKind], ...]


_EQUALITY: Final = (*((kind, kind, BOOL) for kind in ValueKind if kind is not ANY), (NIL, ANY, BOOL), (ANY, NIL, BOOL))
_ORDER: Final = ((NUMBER, NUMBER, BOOL), (STRING, STRING, BOOL))
_NUMBERS: Final = ((NUMBER, NUMBER, NUMBER),)
_STRINGS: Final = ((STRING, STRING, BOOL),)

OPERATORS: Final = {
    "==": Operator(20, same, _EQUALITY),
    "!=": Operator(20, lambda left, right: not same(left, right), _EQUALITY),
    "<": Operator(20, operator.lt, _ORDER),
    "<=": Operator(20, operator.le, _ORDER),
    ">": Operator(20, operator.gt, _ORDER),
    ">=": Operator(20, operator.ge, _ORDER),
    "in": Operator(20, _is_in, ((ANY, LIST, BOOL), (STRING, MAP, BOOL))),
    "contains": Operator(20, operator.contains, _STRINGS),
    "startsWith": Operator(20, str.startswith, _STRINGS),
    "endsWith": Operator(20, str.endswith, _STRINGS),
    "..": Operator(25, _range, ((NUMBER, NUMBER, LIST),)),
    "+": Operator(30, operator.add, (*_NUMBERS, (STRING, STRING, STRING))),
    "-": Operator(30, operator.sub, _NUMBERS),
    "*": Operator(60, operator.mul, _NUMBERS),
    "/": Operator(60, operator.truediv, _NUMBERS),
    "%": Operator(60, _remainder, _NUMBERS),
}
"""The precedence of each is expr-lang's; `bounded` is for their results."""


@cache
def result_kind(sign: str, left: ValueKind, right: ValueKind) -> ValueKind | None:
    """Returns the kind of an operator's result on two kinds; None if it does not take them."""
    kinds = {result for one, other, result in OPERATORS[sign].rows if fits(left, one) and fits(right, other)}
    return (kinds.pop() if len(kinds) == 1 else ANY) if kinds else None
