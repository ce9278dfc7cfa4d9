"""The functions of expressions: facts about the query, and functions of the language.

Differs: client_ip() and server_ip() are addresses without brackets, as incidr() expects; CoreDNS's documentation has
brackets around IPv6 addresses, but its code does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple, TypeAlias

from kdns.dns.query import MAX_MESSAGE_BYTES, PLAIN_PAYLOAD_BYTES
from kdns.dns.types import class_name, type_name
from kdns.dnsserver.chain import Request
from kdns.dnsserver.expressions.values import (
    MAX_CHARS,
    EvaluationError,
    Value,
    ValueKind,
    bounded_number,
    bounded_text,
    kind_of,
    text_of,
)
from kdns.net import without_zone

MAX_CACHED: Final = 1024


class Environment(NamedTuple):
    """The data of an expression: a query, the groups of the pattern that matched its name, and variables."""

    request: Request
    groups: Mapping[str, str] = {}
    variables: Mapping[str, Value] = {}


Call: TypeAlias = Callable[..., Value]


@dataclass(frozen=True, slots=True)
class Function:
    """A function: what it takes and gives.

    `call` gets the arguments, and before them the environment where `of_query` says so. `is_of_packet` says that its
    value depends on nothing but the packet. `check` gives what is wrong with constant arguments, "" for nothing;
    `optional` is the number of arguments at the end that may be missing.
    """

    parameters: tuple[ValueKind, ...]
    result: ValueKind
    call: Call
    of_query: bool = False
    is_of_packet: bool = True
    optional: int = 0
    check: Callable[[tuple[Value, ...]], str] | None = field(default=None)


def _of_query(result: ValueKind, call: Callable[[Request], Value], *, is_of_packet: bool = True) -> Function:
    return Function((), result, lambda environment: call(environment.request), True, is_of_packet)


def _bufsize(request: Request) -> int:
    if request.transport != "udp":
        return MAX_MESSAGE_BYTES
    edns = request.query.edns
    return edns.payload_bytes if edns else PLAIN_PAYLOAD_BYTES


def _metadata(environment: Environment, label: str) -> str:
    return environment.request.metadata.get(label, "")


@lru_cache(MAX_CACHED)
def _network(text: str) -> IPv4Network | IPv6Network:
    if "/" not in text:
        raise EvaluationError(f"{text[:50]!r} is not a network in CIDR notation, such as 10.0.0.0/8")
    try:
        return ip_network(text, strict=False)
    except ValueError as error:
        raise EvaluationError(f"{text[:50]!r} is not a network in CIDR notation, such as 10.0.0.0/8") from error


def _is_in_network(address: str, network: str) -> bool:
    try:
        return ip_address(without_zone(address.strip("[]"))) in _network(network)
    except ValueError as error:
        raise EvaluationError(f"{address[:50]!r} is not an IP address") from error


def _wrong_network(constants: tuple[Value, ...]) -> str:
    if isinstance(constants[1], str):
        try:
            _network(constants[1])
        except EvaluationError as error:
            return str(error)
    return ""


QUERY_FUNCTIONS: Final[dict[str, Function]] = {
    "bufsize": _of_query(ValueKind.INT, _bufsize, is_of_packet=False),
    "class": _of_query(ValueKind.STRING, lambda request: class_name(request.query.qclass)),
    "client_ip": _of_query(ValueKind.STRING, lambda request: without_zone(request.client[0]), is_of_packet=False),
    "do": _of_query(ValueKind.BOOL, lambda request: request.query.do),
    "id": _of_query(ValueKind.INT, lambda request: int.from_bytes(request.query.packet[:2], "big"), is_of_packet=False),
    "incidr": Function((ValueKind.STRING, ValueKind.STRING), ValueKind.BOOL, _is_in_network, check=_wrong_network),
    "metadata": Function((ValueKind.STRING,), ValueKind.STRING, _metadata, of_query=True, is_of_packet=False),
    "name": _of_query(ValueKind.STRING, lambda request: request.query.name),
    "opcode": _of_query(ValueKind.INT, lambda request: request.query.flags >> 11 & 15),
    "port": _of_query(ValueKind.STRING, lambda request: str(request.client[1]), is_of_packet=False),
    "proto": _of_query(ValueKind.STRING, lambda request: request.transport, is_of_packet=False),
    "server_ip": _of_query(ValueKind.STRING, lambda request: without_zone(request.local), is_of_packet=False),
    "server_port": _of_query(ValueKind.STRING, lambda request: str(request.local_port), is_of_packet=False),
    "size": _of_query(ValueKind.INT, lambda request: len(request.query.packet)),
    "type": _of_query(ValueKind.STRING, lambda request: type_name(request.query.qtype)),
}
"""CoreDNS's functions of a query."""


def _group(environment: Environment, which: Value) -> str:
    return environment.groups.get(text_of(which), "")


GROUP: Final = {"group": Function((ValueKind.ANY,), ValueKind.STRING, _group, of_query=True)}
"""The text of a group of the pattern, by name or number; "" if there is none."""


def _length(value: Value) -> int:
    if isinstance(value, str | tuple | range):
        return len(value)
    raise EvaluationError(f"len() of a value of kind {kind_of(value).value}")


def _int(value: Value) -> int:
    match value:
        case bool():
            pass
        case int():
            return value
        case float():
            return int(bounded_number(int(value)))
        case str():
            digits = value.removeprefix("-") if value.startswith("-") else value.removeprefix("+")
            if digits.isascii() and digits.isdecimal() and len(digits) < 20:
                return int(bounded_number(int(value)))
            raise EvaluationError(f"{value[:50]!r} is not a whole number")
    raise EvaluationError(f"int() of a value of kind {kind_of(value).value}")


def _float(value: Value) -> float:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            return float(bounded_number(float(value)))
        except ValueError as error:
            raise EvaluationError(f"{str(value)[:50]!r} is not a number") from error
    raise EvaluationError(f"float() of a value of kind {kind_of(value).value}")


def _absolute(value: Value) -> Value:
    if kind_of(value) in {ValueKind.INT, ValueKind.FLOAT}:
        return abs(value)
    raise EvaluationError(f"abs() of a value of kind {kind_of(value).value}")


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


_TEXT = (ValueKind.STRING,)
_TEXTS = (ValueKind.STRING, ValueKind.STRING)

BUILTINS: Final[dict[str, Function]] = {
    "abs": Function((ValueKind.ANY,), ValueKind.ANY, _absolute),
    "float": Function((ValueKind.ANY,), ValueKind.FLOAT, _float),
    "hasPrefix": Function(_TEXTS, ValueKind.BOOL, str.startswith),
    "hasSuffix": Function(_TEXTS, ValueKind.BOOL, str.endswith),
    "indexOf": Function(_TEXTS, ValueKind.INT, str.find),
    "int": Function((ValueKind.ANY,), ValueKind.INT, _int),
    "join": Function((ValueKind.LIST, ValueKind.STRING), ValueKind.STRING, _join, optional=1),
    "lastIndexOf": Function(_TEXTS, ValueKind.INT, str.rfind),
    "len": Function((ValueKind.ANY,), ValueKind.INT, _length),
    "lower": Function(_TEXT, ValueKind.STRING, str.lower),
    "max": Function((ValueKind.FLOAT, ValueKind.FLOAT), ValueKind.ANY, max),
    "min": Function((ValueKind.FLOAT, ValueKind.FLOAT), ValueKind.ANY, min),
    "replace": Function((*_TEXTS, ValueKind.STRING), ValueKind.STRING, _replace),
    "split": Function(_TEXTS, ValueKind.LIST, _split),
    "string": Function((ValueKind.ANY,), ValueKind.STRING, lambda value: bounded_text(text_of(value))),
    "trim": Function(_TEXTS, ValueKind.STRING, str.strip, optional=1),
    "trimPrefix": Function(_TEXTS, ValueKind.STRING, str.removeprefix),
    "trimSuffix": Function(_TEXTS, ValueKind.STRING, str.removesuffix),
    "upper": Function(_TEXT, ValueKind.STRING, lambda text: bounded_text(text.upper())),
}
"""Functions of the language itself."""
