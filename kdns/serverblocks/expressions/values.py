"""Values of expressions: their kinds, the operators, and the limits of all of them.

Integers have 64 bits, as in Go: a larger one is an error. So are a string of more than MAX_CHARS and a list of more
than MAX_VALUES.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from kdns.errors import KdnsError

Value: TypeAlias = Any
"""None, bool, int, float, str, tuple, range or dict."""

MAX_CHARS: Final = 4096
"""No name has more than 1016 characters."""
MAX_VALUES: Final = 4096
MAX_RANGE: Final = 1_000_000
"""The longest range, which is no list yet."""
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
    MAP = "map"
    ANY = "any"


ANY, BOOL, INT, FLOAT, LIST, MAP, NIL, STRING = (
    ValueKind.ANY, ValueKind.BOOL, ValueKind.INT, ValueKind.FLOAT, ValueKind.LIST, ValueKind.MAP, ValueKind.NIL,
    ValueKind.STRING,
)  # fmt: skip
NUMBERS: Final = frozenset((INT, FLOAT))
_KINDS: Final = {
    type(None): NIL, bool: BOOL, int: INT, float: FLOAT, str: STRING, tuple: LIST, range: LIST, dict: MAP,
}  # fmt: skip


def kind_of(value: Value) -> ValueKind:
    """Returns the kind of a value."""
    return _KINDS[type(value)]


def fits(kind: ValueKind, expected_kind: ValueKind) -> bool:
    """Returns whether a value of one kind may be one of another; an integer is accepted as a float."""
    return kind is expected_kind or ANY in {kind, expected_kind} or (kind, expected_kind) == (INT, FLOAT)


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
            return f"[{_joined(map(text_of, listed(value)))}]"
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


def listed(value: Value) -> tuple[Value, ...]:
    """Returns a list as one that is in memory; EvaluationError for one that is too long."""
    if len(value) > MAX_VALUES:
        raise EvaluationError(f"a list of more than {MAX_VALUES} values")
    return tuple(value)


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
        case tuple():
            return listed(value)
    return value


def same(left: Value, right: Value) -> bool:
    """Returns whether values are equal; true is not a number."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, range) != isinstance(right, range) and {kind_of(left), kind_of(right)} == {LIST}:
        return len(left) == len(right) and listed(left) == listed(right)
    return bool(left == right)


def _remainder(left: Value, right: Value) -> Value:
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


def _range(left: Value, right: Value) -> Value:
    if right - left >= MAX_RANGE:
        raise EvaluationError(f"a range of more than {MAX_RANGE} numbers")
    return range(left, right + 1)


def _is_in(left: Value, right: Value) -> bool:
    match right:
        case range():
            return kind_of(left) is INT and left in right
        case dict():
            return isinstance(left, str) and left in right
    return any(same(left, value) for value in right)


Takes: TypeAlias = Callable[[ValueKind, ValueKind], ValueKind | None]
"""The kind of an operator's result on two kinds; None if it does not accept them."""


def _equality(left: ValueKind, right: ValueKind) -> ValueKind | None:
    return BOOL if fits(left, right) or fits(right, left) or NIL in {left, right} else None


def _membership(left: ValueKind, right: ValueKind) -> ValueKind | None:
    is_key = right is MAP and fits(left, STRING)
    return BOOL if fits(right, LIST) or is_key else None


def _are(left: ValueKind, right: ValueKind, *kinds: ValueKind) -> bool:
    return {left, right} <= {*kinds, ANY}


def _order(left: ValueKind, right: ValueKind) -> ValueKind | None:
    return BOOL if _are(left, right, *NUMBERS) or _are(left, right, STRING) else None


def _number(left: ValueKind, right: ValueKind) -> ValueKind | None:
    if not _are(left, right, *NUMBERS):
        return None
    return ANY if ANY in {left, right} else INT if left is right is INT else FLOAT


def _sum(left: ValueKind, right: ValueKind) -> ValueKind | None:
    is_text = STRING in {left, right} and _are(left, right, STRING)
    return STRING if is_text else _number(left, right)


def _on(kind: ValueKind, *operands: ValueKind) -> Takes:
    """A result of this kind on two of these operands."""
    return lambda left, right: kind if _are(left, right, *operands) else None


class Operator(NamedTuple):
    """An operator on two values: how strongly it binds, the kinds that it takes, and its function."""

    binding: int
    takes: Takes
    apply: Callable[[Value, Value], Value]


OPERATORS: Final = {
    "==": Operator(20, _equality, same),
    "!=": Operator(20, _equality, lambda left, right: not same(left, right)),
    "<": Operator(20, _order, operator.lt),
    "<=": Operator(20, _order, operator.le),
    ">": Operator(20, _order, operator.gt),
    ">=": Operator(20, _order, operator.ge),
    "in": Operator(20, _membership, _is_in),
    "contains": Operator(20, _on(BOOL, STRING), operator.contains),
    "startsWith": Operator(20, _on(BOOL, STRING), str.startswith),
    "endsWith": Operator(20, _on(BOOL, STRING), str.endswith),
    "..": Operator(25, _on(LIST, INT), _range),
    "+": Operator(30, _sum, operator.add),
    "-": Operator(30, _number, operator.sub),
    "*": Operator(60, _number, operator.mul),
    "/": Operator(60, _on(FLOAT, *NUMBERS), operator.truediv),
    "%": Operator(60, _on(INT, INT), _remainder),
    "**": Operator(100, _on(FLOAT, *NUMBERS), math.pow),
    "^": Operator(100, _on(FLOAT, *NUMBERS), math.pow),
}
"""The precedence of each is expr-lang's; `bounded` is for their results."""
