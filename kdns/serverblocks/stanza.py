"""The parser of every directive's stanza: counts the arguments, and applies a table of options to its block.

An option is its usage and its effect: `Option("ttl SECONDS", sets("ttl_s", integer, 0))`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any, Final, TypeAlias, TypeVar

from kdns.corefile.address import all_zones
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line, Stanza
from kdns.durations import DurationRangeError, parse_duration
from kdns.errors import CorefileError
from kdns.net import MAX_PORT, HostPort, parse_port, split_optional_port

Config = TypeVar("Config")

Apply: TypeAlias = Callable[[Any, Line], Any]
"""Applies a line of the block to a directive's configuration; returns the changed one."""

UNLIMITED = 1 << 20


@dataclass(frozen=True, slots=True)
class Option:
    """`bounds` are the least and most arguments, by default those of the usage. `once`: a second line is a mistake."""

    usage: str
    apply: Apply
    bounds: tuple[int, int] | None = None
    once: bool = False


class UnknownOptionError(CorefileError):
    """The first word of a line is not an option of the directive."""

    def __init__(self, option: Line, options: Iterable[str]) -> None:
        self.option, self.options = option, tuple(options)
        reason = f"unknown option `{option.name}`; options: {', '.join(self.options) or 'none'}"
        super().__init__(option.path, option.line, option.name, reason)


def argument_bounds(usage: str) -> tuple[int, int]:
    """The least and most arguments of a usage such as `tls CERT KEY [CA]`: [] is optional, ... is any number."""
    words = usage.split()[1:]
    least = depth = 0
    for word in words:
        least += not depth and not word.startswith("[")
        depth += word.count("[") - word.count("]")
    return least, UNLIMITED if "..." in usage else len(words)


def count(line: Line, usage: str, bounds: tuple[int, int] | None = None) -> None:
    """Raises CorefileError for a line with too few or too many arguments."""
    least, most = bounds or argument_bounds(usage)
    if len(line.args) < least:
        raise line.error(f"an argument is missing; expected `{usage}`")
    if len(line.args) > most:
        raise line.args[most].error(f"one argument too many; expected `{usage}`")


def configured(config: Config, stanza: Stanza, options: Mapping[str, Option]) -> Config:
    """Applies every line of the stanza's block to `config`, in order."""
    for name in (name for name, option in options.items() if option.once):
        lines = [line for line in stanza.block if line.name == name]
        if len(lines) > 1:
            raise lines[1].error(f"`{name}` may occur only once; first at {lines[0].path}:{lines[0].line}")
    for line in stanza.block:
        option = options.get(line.name)
        if option is None:
            raise UnknownOptionError(line, options)
        count(line, option.usage, option.bounds)
        config = option.apply(config, line)
    return config


def folded(stanza: Stanza) -> Stanza:
    """With the names of options in lower case, for directives where CoreDNS ignores case."""

    def lower(line: Line) -> Line:
        return replace(line, words=(replace(line.words[0], text=line.name.lower()), *line.args))

    return replace(stanza, block=tuple(map(lower, stanza.block)))


def changed(config: Any, field: str, value: object) -> Any:
    """Sets a field of a frozen configuration; `source.qps` is the field of a field."""
    name, _, inner = field.partition(".")
    return replace(config, **{name: changed(getattr(config, name), inner, value) if inner else value})


def sets(field: str, read: Callable[..., object], *bounds: object) -> Apply:
    """Sets a field to the argument, parsed by `read`."""
    return sets_all(field, lambda args: read(args[0], *bounds))


def sets_all(field: str, read: Callable[[Sequence[Token]], object]) -> Apply:
    """Sets a field to all arguments, parsed by `read`."""
    return lambda config, line: changed(config, field, read(line.args))


def flag(field: str, *, to: bool = True) -> Apply:
    return lambda config, _line: changed(config, field, to)


def adds(field: str, read: Callable[[Token], object]) -> Apply:
    """Adds each argument, parsed by `read`, to a field without duplicates."""
    return adds_all(field, lambda args: map(read, args))


def adds_all(field: str, read: Callable[[Sequence[Token]], Iterable[object]]) -> Apply:
    """Adds all values that `read` parses from the arguments to a field without duplicates."""
    return lambda config, line: replace(
        config, **{field: tuple(dict.fromkeys((*getattr(config, field), *read(line.args))))}
    )


FALLTHROUGH: Final = Option("fallthrough [ZONES...]", sets_all("fallthrough", lambda args: all_zones(args) or (".",)))
"""Without zones all names fall through."""
UPSTREAM: Final = Option("upstream [ADDRESS...]", lambda config, _line: config)
"""Old, ignored: the whole server always resolves targets of CNAMEs."""


def not_yet(what: str) -> Apply:
    """Refuses an option of CoreDNS that kdns does not implement."""

    def refuse(_config: object, line: Line) -> object:
        raise line.error(f"`{line.name}` is not supported yet: {what}")

    return refuse


def text(token: Token) -> str:
    return token.text


def path_of(token: Token) -> str:
    if not token.text:
        raise token.expected("a path")
    return token.text


def integer(token: Token, least: int, most: int | None = None) -> int:
    bounds = f"from {least} to {most}" if most is not None else f"of at least {least}"
    if token.text[:1].isdigit() and token.text[-1:].isalpha() and is_duration(token.text):
        raise token.expected(f"a whole number {bounds} without a unit")
    if not (token.text.isascii() and token.text.isdecimal() and len(token.text) < 19):
        raise token.expected(f"a whole number {bounds}")
    number = int(token.text)
    if number < least or (most is not None and number > most):
        raise token.expected(f"a whole number {bounds}")
    return number


def rate(token: Token) -> float:
    """Not negative, such as 0.5."""
    if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", token.text, re.ASCII) or not math.isfinite(float(token.text)):
        raise token.expected("a number of at least 0, such as 50 or 0.5")
    return float(token.text)


def is_duration(text: str) -> bool:
    try:
        parse_duration(text)
    except ValueError:
        return False
    return True


def duration_s(token: Token) -> float:
    """In Go's syntax: 300ms, 1m30s, 1.5h, plain 0. Never negative."""
    try:
        if token.text[:1] not in {"-", "+"}:
            return parse_duration(token.text)
    except DurationRangeError as error:
        raise token.expected("a duration of at most 292 years") from error
    except ValueError:
        pass
    raise token.expected("a duration of digits and units (ns, us, ms, s, m, h), such as 300ms or 1m30s")


def positive_s(token: Token, wanted: str = "a duration longer than 0") -> float:
    seconds = duration_s(token)
    if not seconds:
        raise token.expected(wanted)
    return seconds


def ip(token: Token) -> str:
    try:
        return str(ip_address(token.text))
    except ValueError:
        raise token.expected("an IP address") from None


def dns_address(token: Token, wanted: str = "an IP address, with or without a port") -> HostPort:
    """192.0.2.1, 192.0.2.1:1053, 2001:db8::1, [fe80::1%eth0]:53; the port defaults to 53."""
    host, port_text = split_optional_port(token.text)
    if host.startswith("["):
        raise token.expected("an address with a port, such as [2001:db8::1]:53")
    try:
        address = str(ip_address(host))
    except ValueError:
        raise token.expected(wanted) from None
    port = parse_port(port_text) if port_text else 53
    if not port:
        raise token.expected(f"a port from 1 to {MAX_PORT}")
    return HostPort(address, port)


def mnemonic(token: Token, number: Callable[[str], int], wanted: str, *, folds: bool = False) -> int:
    """The number of a type, class or response code; `number` raises KeyError for other words."""
    try:
        return number(token.text.upper() if folds else token.text)
    except KeyError:
        raise token.expected(wanted) from None


def choice(token: Token, among: Sequence[str]) -> str:
    if token.text not in among:
        raise token.expected(f"one of {', '.join(among)}")
    return token.text
