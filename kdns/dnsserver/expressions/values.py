"""Values of expressions: their kinds, the operators, and the limits of all of them.

Integers have 64 bits, as in Go: a larger one is an error, as is a string of more than MAX_CHARS.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, TypeAlias

from kdns.errors import KdnsError

Value: TypeAlias = Any
"""None, bool, int, float, str, tuple or range."""

MAX_CHARS: Final = 65536
MAX_RANGE: Final = 1_000_000
MAX_PRINTED: Final = 5000
_INT_BITS: Final = 63


class EvaluationError(KdnsError):
    """An expression that has no value for this query."""


class ValueKind(Enum):
    """The kinds of values; ANY is known at evaluation only."""

    NIL = "nil"
    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    STRING = "string"
    LIST = "list"
    ANY = "any"


NUMBERS: Final = frozenset((ValueKind.INT, ValueKind.FLOAT))
_KINDS: Final = {
    type(None): ValueKind.NIL,
    bool: ValueKind.BOOL,
    int: ValueKind.INT,
    float: ValueKind.FLOAT,
    str: ValueKind.STRING,
    tuple: ValueKind.LIST,
    range: ValueKind.LIST,
}


def kind_of(value: Value) -> ValueKind:
    """Returns the kind of a value."""
    return _KINDS[type(value)]


def fits(kind: ValueKind, expected_kind: ValueKind) -> bool:
    """Returns whether a value of one kind may be one of another; an integer is accepted as a float."""
    return (
        kind is expected_kind
        or ValueKind.ANY in {kind, expected_kind}
        or (kind, expected_kind) == (ValueKind.INT, ValueKind.FLOAT)
    )


def are_comparable(left: ValueKind, right: ValueKind) -> bool:
    """Returns whether two kinds can be compared with == and !=."""
    return fits(left, right) or fits(right, left) or ValueKind.NIL in {left, right}


def same(left: Value, right: Value) -> bool:
    """Returns whether values are equal; true is not a number."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


def text_of(value: Value) -> str:
    """Returns a value as Go prints it; EvaluationError for a list that is too long."""
    match value:
        case tuple() | range() if len(value) > MAX_PRINTED:
            raise EvaluationError(f"the text of a list of more than {MAX_PRINTED} values")
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case float():
            return str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)
        case tuple() | range():
            return f"[{' '.join(text_of(one) for one in value)}]"
    return str(value)


def bounded_text(text: str) -> str:
    """Returns the same text; EvaluationError for one that is too long."""
    if len(text) > MAX_CHARS:
        raise EvaluationError(f"a string of more than {MAX_CHARS} characters")
    return text


def bounded_number(number: Value) -> Value:
    """Returns the same number.

    EvaluationError for an integer of more than 64 bits, and for a number that is not finite.
    """
    if isinstance(number, int):
        if number.bit_length() > _INT_BITS:
            raise EvaluationError("an integer of more than 64 bits")
    elif not math.isfinite(number):
        raise EvaluationError("a number beyond all bounds")
    return number


def _sum(left: Value, right: Value) -> Value:
    return bounded_text(left + right) if isinstance(left, str) else bounded_number(left + right)


def _difference(left: Value, right: Value) -> Value:
    return bounded_number(left - right)


def _product(left: Value, right: Value) -> Value:
    return bounded_number(left * right)


def _quotient(left: Value, right: Value) -> Value:
    if not right:
        raise EvaluationError("a division by zero")
    return left / right


def _remainder(left: Value, right: Value) -> Value:
    if not right:
        raise EvaluationError("a division by zero")
    return int(math.copysign(abs(left) % abs(right), left)) if left else 0


def _power(left: Value, right: Value) -> Value:
    try:
        return math.pow(left, right)
    except (OverflowError, ValueError) as error:
        raise EvaluationError("the power is not a finite number") from error


def _range(left: Value, right: Value) -> Value:
    if right - left >= MAX_RANGE:
        raise EvaluationError(f"a range of more than {MAX_RANGE} numbers")
    return range(left, right + 1)


def _is_in(left: Value, right: Value) -> bool:
    if isinstance(right, range):
        return kind_of(left) is ValueKind.INT and left in right
    return any(same(left, one) for one in right)


def _is_less(left: Value, right: Value) -> bool:
    return bool(left < right)


def _is_at_most(left: Value, right: Value) -> bool:
    return bool(left <= right)


def _is_more(left: Value, right: Value) -> bool:
    return bool(left > right)


def _is_at_least(left: Value, right: Value) -> bool:
    return bool(left >= right)


APPLY: Final[dict[str, Callable[[Value, Value], Value]]] = {
    "==": same,
    "!=": lambda left, right: not same(left, right),
    "<": _is_less,
    "<=": _is_at_most,
    ">": _is_more,
    ">=": _is_at_least,
    "+": _sum,
    "-": _difference,
    "*": _product,
    "/": _quotient,
    "%": _remainder,
    "**": _power,
    "^": _power,
    "..": _range,
    "in": _is_in,
    "contains": lambda left, right: right in left,
    "startsWith": lambda left, right: left.startswith(right),
    "endsWith": lambda left, right: left.endswith(right),
}
"""The function of each operator on two values, once their kinds are right."""

_ORDERS: Final = frozenset(("<", "<=", ">", ">="))
_TEXTUAL: Final = frozenset(("contains", "startsWith", "endsWith"))
_FLOAT_RESULTS: Final = frozenset(("/", "**", "^"))


def result_kind(operator: str, left: ValueKind, right: ValueKind) -> ValueKind | None:
    """Returns the kind of an operator's result on two kinds; None if it does not accept them."""
    if operator in {"==", "!="}:
        return ValueKind.BOOL if are_comparable(left, right) else None
    if operator == "in":
        return ValueKind.BOOL if fits(right, ValueKind.LIST) else None
    kinds = {left, right}
    textual = fits(left, ValueKind.STRING) and fits(right, ValueKind.STRING)
    if operator in _TEXTUAL:
        return ValueKind.BOOL if textual else None
    numeric = kinds <= NUMBERS | {ValueKind.ANY}
    if operator in _ORDERS:
        return ValueKind.BOOL if numeric or textual else None
    if operator == "+" and textual:
        return ValueKind.ANY if kinds == {ValueKind.ANY} else ValueKind.STRING
    if operator in {"%", ".."}:
        expected_kind = kinds <= {ValueKind.INT, ValueKind.ANY}
        result = ValueKind.INT if operator == "%" else ValueKind.LIST
        return result if expected_kind else None
    if not numeric:
        return None
    if operator in _FLOAT_RESULTS:
        return ValueKind.FLOAT
    if ValueKind.ANY in kinds:
        return ValueKind.ANY
    return ValueKind.INT if kinds == {ValueKind.INT} else ValueKind.FLOAT
