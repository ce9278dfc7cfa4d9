"""The functions of expressions: CoreDNS's about the query, those of the language, and those with a predicate.

Differs: client_ip() and server_ip() have no brackets, as incidr() expects. CoreDNS's documentation shows brackets
around IPv6 addresses, its code adds none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple

from kdns.answers.chain import Request
from kdns.dns.query import MAX_MESSAGE_BYTES, PLAIN_PAYLOAD_BYTES
from kdns.dns.types import class_name, type_name
from kdns.net import without_zone
from kdns.serverblocks.expressions.values import (
    ANY,
    BOOL,
    LIST,
    MAX_CHARS,
    NUMBER,
    STRING,
    EvaluationError,
    Function,
    Value,
    ValueKind,
    kind_of,
    text_of,
)

MAX_CACHED: Final = 1024


class Environment(NamedTuple):
    """The data of an expression: a query, the groups of the pattern that matched its name, and variables."""

    request: Request
    groups: Mapping[str, str] = {}
    variables: Mapping[str, Value] = {}


def _of_query(result: ValueKind, call: Callable[[Request], Value], *, is_of_packet: bool = True) -> Function:
    return Function(((result,),), lambda environment: call(environment.request), True, is_of_packet)


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


QUERY_FUNCTIONS: Final[dict[str, Function]] = {
    "bufsize": _of_query(NUMBER, _bufsize, is_of_packet=False),
    "class": _of_query(STRING, lambda request: class_name(request.query.qclass)),
    "client_ip": _of_query(STRING, lambda request: without_zone(request.client[0]), is_of_packet=False),
    "do": _of_query(BOOL, lambda request: request.query.do),
    "id": _of_query(NUMBER, lambda request: int.from_bytes(request.query.packet[:2], "big"), is_of_packet=False),
    "incidr": Function(((STRING, STRING, BOOL),), _is_in_network, check=_network),
    "metadata": Function(
        ((STRING, STRING),), lambda env, label: env.request.metadata.get(label, ""), of_query=True, is_of_packet=False
    ),
    "name": _of_query(STRING, lambda request: request.query.name),
    "opcode": _of_query(NUMBER, lambda request: request.query.flags >> 11 & 15),
    "port": _of_query(STRING, lambda request: str(request.client[1]), is_of_packet=False),
    "proto": _of_query(STRING, lambda request: request.transport, is_of_packet=False),
    "server_ip": _of_query(STRING, lambda request: without_zone(request.local), is_of_packet=False),
    "server_port": _of_query(STRING, lambda request: str(request.local_port), is_of_packet=False),
    "size": _of_query(NUMBER, lambda request: len(request.query.packet)),
    "type": _of_query(STRING, lambda request: type_name(request.query.qtype)),
}

GROUP: Final = {
    "group": Function(((ANY, STRING),), lambda env, which: env.groups.get(text_of(which), ""), of_query=True)
}
"""A group of the pattern, by name or number; "" if there is none."""


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


def _replace(text: str, old: str, new: str) -> str:
    if len(text) + text.count(old) * len(new) > MAX_CHARS:
        raise EvaluationError(f"a string of more than {MAX_CHARS} characters")
    return text.replace(old, new)


def _split(text: str, separator: str) -> tuple[str, ...]:
    return tuple(text.split(separator) if separator else text)


def _join(parts: Value, separator: str = "") -> str:
    if not all(isinstance(part, str) for part in parts):
        raise EvaluationError("join() takes a list of strings")
    if sum(map(len, parts)) + len(parts) * len(separator) > MAX_CHARS + len(separator):
        raise EvaluationError(f"a string of more than {MAX_CHARS} characters")
    return separator.join(parts)


_ABOUT_TEXTS: Final = ((STRING, STRING, BOOL),)
_OF_TEXT: Final = ((STRING, STRING),)
_OF_TEXTS: Final = ((STRING, STRING, STRING),)

BUILTINS: Final[dict[str, Function]] = {
    "hasPrefix": Function(_ABOUT_TEXTS, str.startswith),
    "hasSuffix": Function(_ABOUT_TEXTS, str.endswith),
    "indexOf": Function(((STRING, STRING, NUMBER),), str.find),
    "int": Function(((ANY, NUMBER),), _int),
    "join": Function(((LIST, STRING), (LIST, STRING, STRING)), _join),
    "len": Function(((ANY, NUMBER),), len),
    "lower": Function(_OF_TEXT, str.lower),
    "replace": Function(((STRING, STRING, STRING, STRING),), _replace),
    "split": Function(((STRING, STRING, LIST),), _split),
    "string": Function(((ANY, STRING),), text_of),
    "trim": Function((*_OF_TEXT, *_OF_TEXTS), str.strip),
    "trimPrefix": Function(_OF_TEXTS, str.removeprefix),
    "trimSuffix": Function(_OF_TEXTS, str.removesuffix),
    "upper": Function(_OF_TEXT, str.upper),
}


class Predicate(NamedTuple):
    """A function of a list and an expression about its elements.

    `call` gets pairs of an element and the expression's value, which is of kind `body`.
    """

    body: ValueKind
    result: ValueKind
    call: Callable[[Iterable[tuple[Value, Value]]], Value]


PREDICATES: Final[dict[str, Predicate]] = {
    "all": Predicate(BOOL, BOOL, lambda pairs: all(hit for _, hit in pairs)),
    "any": Predicate(BOOL, BOOL, lambda pairs: any(hit for _, hit in pairs)),
    "count": Predicate(BOOL, NUMBER, lambda pairs: sum(hit for _, hit in pairs)),
    "filter": Predicate(BOOL, LIST, lambda pairs: tuple(element for element, hit in pairs if hit)),
    "find": Predicate(BOOL, ANY, lambda pairs: next((element for element, hit in pairs if hit), None)),
    "map": Predicate(ANY, LIST, lambda pairs: tuple(value for _, value in pairs)),
    "none": Predicate(BOOL, BOOL, lambda pairs: not any(hit for _, hit in pairs)),
    "one": Predicate(BOOL, BOOL, lambda pairs: sum(hit for _, hit in pairs) == 1),
}
