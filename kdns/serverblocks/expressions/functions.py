"""The functions of expressions: facts about the query, functions of the language, and those with a predicate.

Differs: client_ip() and server_ip() are addresses without brackets, as incidr() expects; CoreDNS's documentation has
brackets around IPv6 addresses, but its code does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from math import ceil, copysign, floor
from typing import Final, NamedTuple, TypeAlias

from kdns.answers.chain import Request
from kdns.dns.query import MAX_MESSAGE_BYTES, PLAIN_PAYLOAD_BYTES
from kdns.dns.types import class_name, type_name
from kdns.net import without_zone
from kdns.serverblocks.expressions.values import (
    ANY,
    BOOL,
    FLOAT,
    INT,
    LIST,
    MAP,
    MAX_CHARS,
    MAX_VALUES,
    NUMBERS,
    STRING,
    EvaluationError,
    Value,
    ValueKind,
    kind_of,
    listed,
    text_of,
)

MAX_CACHED: Final = 1024


class Environment(NamedTuple):
    """The data of an expression: a query, the groups of the pattern that matched its name, and variables."""

    request: Request
    groups: Mapping[str, str] = {}
    variables: Mapping[str, Value] = {}


@dataclass(frozen=True, slots=True)
class Function:
    """A function: what it takes and gives. Its result is bounded by the caller (`values.bounded`).

    `call` gets the arguments, and before them the environment where `of_query` says so. `is_of_packet` says that its
    value depends on nothing but the packet. `check` gives what is wrong with an argument that the text determines, ""
    for nothing; it gets its position. `optional` is the number of arguments at the end that may be missing; the last
    one may be repeated with `is_variadic`.
    """

    parameters: tuple[ValueKind, ...]
    result: ValueKind
    call: Callable[..., Value]
    of_query: bool = False
    is_of_packet: bool = True
    optional: int = 0
    is_variadic: bool = False
    check: Callable[[int, Value], str] | None = None


def _of_query(result: ValueKind, call: Callable[[Request], Value], *, is_of_packet: bool = True) -> Function:
    return Function((), result, lambda environment: call(environment.request), True, is_of_packet)


def _bufsize(request: Request) -> int:
    if request.transport != "udp":
        return MAX_MESSAGE_BYTES
    edns = request.query.edns
    return edns.payload_bytes if edns else PLAIN_PAYLOAD_BYTES


@lru_cache(MAX_CACHED)
def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text if "/" in text else "", strict=False)
    except ValueError as error:
        raise EvaluationError(f"{text[:50]!r} is not a network in CIDR notation, such as 10.0.0.0/8") from error


def _is_in_network(address: str, network: str) -> bool:
    try:
        return ip_address(without_zone(address.strip("[]"))) in _network(network)
    except ValueError as error:
        raise EvaluationError(f"{address[:50]!r} is not an IP address") from error


def _wrong_network(position: int, value: Value) -> str:
    try:
        if position == 1 and isinstance(value, str):
            _network(value)
    except EvaluationError as error:
        return str(error)
    return ""


QUERY_FUNCTIONS: Final[dict[str, Function]] = {
    "bufsize": _of_query(INT, _bufsize, is_of_packet=False),
    "class": _of_query(STRING, lambda request: class_name(request.query.qclass)),
    "client_ip": _of_query(STRING, lambda request: without_zone(request.client[0]), is_of_packet=False),
    "do": _of_query(BOOL, lambda request: request.query.do),
    "id": _of_query(INT, lambda request: int.from_bytes(request.query.packet[:2], "big"), is_of_packet=False),
    "incidr": Function((STRING, STRING), BOOL, _is_in_network, check=_wrong_network),
    "metadata": Function(
        (STRING,), STRING, lambda env, label: env.request.metadata.get(label, ""), of_query=True, is_of_packet=False
    ),
    "name": _of_query(STRING, lambda request: request.query.name),
    "opcode": _of_query(INT, lambda request: request.query.flags >> 11 & 15),
    "port": _of_query(STRING, lambda request: str(request.client[1]), is_of_packet=False),
    "proto": _of_query(STRING, lambda request: request.transport, is_of_packet=False),
    "server_ip": _of_query(STRING, lambda request: without_zone(request.local), is_of_packet=False),
    "server_port": _of_query(STRING, lambda request: str(request.local_port), is_of_packet=False),
    "size": _of_query(INT, lambda request: len(request.query.packet)),
    "type": _of_query(STRING, lambda request: type_name(request.query.qtype)),
}
"""CoreDNS's functions of a query."""

GROUP: Final = {"group": Function((ANY,), STRING, lambda env, which: env.groups.get(text_of(which), ""), of_query=True)}
"""The text of a group of the pattern, by name or number; "" if there is none."""


def _length(value: Value) -> int:
    if isinstance(value, str | tuple | range | dict):
        return len(value)
    raise EvaluationError(f"len() of a value of kind {kind_of(value).value}")


def _int(value: Value) -> int:
    match value:
        case int() | float() if not isinstance(value, bool):
            return int(value)
        case str():
            digits = value.removeprefix("-") if value.startswith("-") else value.removeprefix("+")
            if digits.isascii() and digits.isdecimal() and len(digits) < 20:
                return int(value)
            raise EvaluationError(f"{value[:50]!r} is not a whole number")
    raise EvaluationError(f"int() of a value of kind {kind_of(value).value}")


def _float(value: Value) -> float:
    try:
        return float(value if kind_of(value) in {*NUMBERS, STRING} else "")
    except ValueError as error:
        raise EvaluationError(f"{text_of(value)[:50]!r} is not a number") from error


def _number(value: Value) -> Value:
    if kind_of(value) not in NUMBERS:
        raise EvaluationError(f"expected a number, got a {kind_of(value).value}")
    return value


def _rounded(value: float) -> float:
    return copysign(floor(abs(value) + 0.5), value)


def _numbers(*values: Value) -> list[Value]:
    """Returns the numbers of arguments that are numbers, and lists of them."""
    parts = [listed(value) if kind_of(value) is LIST else (value,) for value in values]
    return [_number(value) for part in parts for value in part]


def _of_numbers(call: Callable[[list[Value]], Value]) -> Function:
    return Function((ANY,), ANY, lambda *values: call(_numbers(*values)), is_variadic=True)


def _replace(text: str, old: str, new: str) -> str:
    if len(text) + text.count(old) * len(new) > MAX_CHARS:
        raise EvaluationError(f"a string of more than {MAX_CHARS} characters")
    return text.replace(old, new)


def _repeat(text: str, times: int) -> str:
    if not 0 <= len(text) * times <= MAX_CHARS:
        raise EvaluationError(f"repeat() gives strings of up to {MAX_CHARS} characters")
    return text * times


def _split(text: str, separator: str, pieces: int = -1) -> tuple[str, ...]:
    if pieces == 0:
        return ()
    most = pieces - 1 if pieces > 0 else -1
    if separator:
        return tuple(text.split(separator, most))
    return (*text[:most], text[most:]) if 0 <= most < len(text) else tuple(text)


def _join(parts: Value, separator: str = "") -> str:
    if not all(isinstance(part, str) for part in listed(parts)):
        raise EvaluationError("join() takes a list of strings")
    if sum(map(len, parts)) + len(parts) * len(separator) > MAX_CHARS + len(separator):
        raise EvaluationError(f"a string of more than {MAX_CHARS} characters")
    return separator.join(parts)


def _concat(*lists: Value) -> tuple[Value, ...]:
    if sum(map(len, lists)) > MAX_VALUES:
        raise EvaluationError(f"a list of more than {MAX_VALUES} values")
    return tuple(value for values in lists for value in values)


def _flat(values: Value) -> tuple[Value, ...]:
    return _concat(*(_flat(value) if kind_of(value) is LIST else (value,) for value in listed(values)))


def _unique(values: Value) -> tuple[Value, ...]:
    unique: dict[tuple[ValueKind, str], Value] = {}
    for value in listed(values):
        unique.setdefault((kind_of(value), text_of(value)), value)
    return tuple(unique.values())


def _sorted(values: Value, order: str = "asc") -> tuple[Value, ...]:
    if order not in {"asc", "desc"}:
        raise EvaluationError(f"expected the order asc or desc, got {order[:50]!r}")
    return tuple(sorted(listed(values), reverse=order == "desc"))


_TEXT = (STRING,)
_TEXTS = (STRING, STRING)

BUILTINS: Final[dict[str, Function]] = {
    "abs": Function((ANY,), ANY, lambda value: abs(_number(value))),
    "ceil": Function((FLOAT,), FLOAT, lambda value: float(ceil(value))),
    "concat": Function((LIST,), LIST, _concat, is_variadic=True),
    "first": Function((LIST,), ANY, lambda values: values[0] if values else None),
    "flatten": Function((LIST,), LIST, _flat),
    "float": Function((ANY,), FLOAT, _float),
    "floor": Function((FLOAT,), FLOAT, lambda value: float(floor(value))),
    "hasPrefix": Function(_TEXTS, BOOL, str.startswith),
    "hasSuffix": Function(_TEXTS, BOOL, str.endswith),
    "indexOf": Function(_TEXTS, INT, str.find),
    "int": Function((ANY,), INT, _int),
    "join": Function((LIST, STRING), STRING, _join, optional=1),
    "keys": Function((MAP,), LIST, tuple),
    "last": Function((LIST,), ANY, lambda values: values[-1] if values else None),
    "lastIndexOf": Function(_TEXTS, INT, str.rfind),
    "len": Function((ANY,), INT, _length),
    "lower": Function(_TEXT, STRING, str.lower),
    "max": _of_numbers(max),
    "min": _of_numbers(min),
    "repeat": Function((STRING, INT), STRING, _repeat),
    "replace": Function((*_TEXTS, STRING), STRING, _replace),
    "reverse": Function((LIST,), LIST, lambda values: listed(values)[::-1]),
    "round": Function((FLOAT,), FLOAT, _rounded),
    "sort": Function((LIST, STRING), LIST, _sorted, optional=1),
    "split": Function((*_TEXTS, INT), LIST, _split, optional=1),
    "string": Function((ANY,), STRING, text_of),
    "take": Function((LIST, INT), LIST, lambda values, count: values[: max(count, 0)]),
    "trim": Function(_TEXTS, STRING, str.strip, optional=1),
    "trimPrefix": Function(_TEXTS, STRING, str.removeprefix),
    "trimSuffix": Function(_TEXTS, STRING, str.removesuffix),
    "uniq": Function((LIST,), LIST, _unique),
    "upper": Function(_TEXT, STRING, str.upper),
    "values": Function((MAP,), LIST, lambda value: tuple(value.values())),
}
"""Functions of the language itself."""

_NONE: Final = (None, None)
Pairs: TypeAlias = Iterable[tuple[Value, Value]]
"""Elements, each with the value of the predicate for it."""


class Predicate(NamedTuple):
    """A function of a list and an expression about each of its elements.

    `body` is the kind of that expression, `optional` whether it may be missing.
    """

    body: ValueKind
    result: ValueKind
    call: Callable[[Pairs], Value]
    optional: bool = False


def _hits(pairs: Pairs) -> Iterator[tuple[int, Value]]:
    """Yields the places and elements for which the predicate is true."""
    return ((place, element) for place, (element, hit) in enumerate(pairs) if hit)


PREDICATES: Final[dict[str, Predicate]] = {
    "all": Predicate(BOOL, BOOL, lambda pairs: all(hit for _, hit in pairs)),
    "any": Predicate(BOOL, BOOL, lambda pairs: any(hit for _, hit in pairs)),
    "count": Predicate(BOOL, INT, lambda pairs: len(list(_hits(pairs))), optional=True),
    "filter": Predicate(BOOL, LIST, lambda pairs: tuple(element for _, element in _hits(pairs))),
    "find": Predicate(BOOL, ANY, lambda pairs: next(_hits(pairs), _NONE)[1]),
    "findIndex": Predicate(BOOL, ANY, lambda pairs: next(_hits(pairs), _NONE)[0]),
    "findLast": Predicate(BOOL, ANY, lambda pairs: [_NONE, *_hits(pairs)][-1][1]),
    "findLastIndex": Predicate(BOOL, ANY, lambda pairs: [_NONE, *_hits(pairs)][-1][0]),
    "map": Predicate(ANY, LIST, lambda pairs: tuple(value for _, value in pairs)),
    "none": Predicate(BOOL, BOOL, lambda pairs: not any(hit for _, hit in pairs)),
    "one": Predicate(BOOL, BOOL, lambda pairs: len(list(_hits(pairs))) == 1),
    "reduce": Predicate(ANY, ANY, lambda pairs: [value for _, value in pairs][-1]),
    "sum": Predicate(ANY, ANY, lambda pairs: sum(_number(value) for _, value in pairs), optional=True),
}
"""Functions with a predicate."""
UNSUPPORTED: Final = frozenset(
    ("date", "duration", "fromJSON", "get", "groupBy", "now", "sortBy", "timezone", "toJSON")
)
"""Functions of expr-lang that are missing, but for rare ones of numbers."""
