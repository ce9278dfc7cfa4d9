"""How every directive reads its stanza: counted arguments, and a table of the options in its block.

A row says how an option is used and what it changes: `Option("ttl SECONDS", sets("ttl_s", integer, 0))`.

An error says what the directive or option takes; an unknown option says which one was probably meant.
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
from kdns.spelling import closest

Config = TypeVar("Config")

Apply: TypeAlias = Callable[[Any, Line], Any]
"""Makes of a directive's configuration and a line of its block the changed configuration."""

UNLIMITED = 1 << 20


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a block: its usage, the configuration that it leads to, and the bounds of its argument count.

    Without `bounds` the usage has them: see `argument_bounds`.
    """

    usage: str
    apply: Apply
    bounds: tuple[int, int] | None = None


def argument_bounds(usage: str) -> tuple[int, int]:
    """The least and the most arguments of a usage such as `tls CERT KEY [CA]`: brackets are optional, ... is many."""
    words = usage.split()[1:]
    least = depth = 0
    for word in words:
        least += not depth and not word.startswith("[")
        depth += word.count("[") - word.count("]")
    return least, UNLIMITED if "..." in usage else len(words)


def count(line: Line, usage: str, bounds: tuple[int, int] | None = None) -> None:
    """Refuse a line with fewer or more arguments than its usage has."""
    least, most = bounds or argument_bounds(usage)
    if len(line.args) < least:
        raise line.error(f"an argument is missing; expected `{usage}`")
    if len(line.args) > most:
        raise line.args[most].error(f"one argument too many; expected `{usage}`")


def configured(config: Config, stanza: Stanza, options: Mapping[str, Option]) -> Config:
    """`config` with every option of the stanza's block applied in order."""
    for line in stanza.block:
        option = options.get(line.name)
        if option is None:
            raise line.error(_unknown(line.name, options))
        count(line, option.usage, option.bounds)
        config = option.apply(config, line)
    return config


def changed(config: Any, field: str, value: object) -> Any:
    """The configuration with another value of a field; `source.qps` is the field of a field."""
    name, _, inner = field.partition(".")
    return replace(config, **{name: changed(getattr(config, name), inner, value) if inner else value})


def sets(field: str, read: Callable[..., object], *bounds: object) -> Apply:
    """Sets a field to what `read` makes of the argument."""
    return sets_all(field, lambda args: read(args[0], *bounds))


def sets_all(field: str, read: Callable[[Sequence[Token]], object]) -> Apply:
    """Sets a field to what `read` makes of all arguments."""
    return lambda config, line: changed(config, field, read(line.args))


def flag(field: str, *, to: bool = True) -> Apply:
    """Sets a field to True, or to False."""
    return lambda config, _line: changed(config, field, to)


def adds(field: str, read: Callable[[Token], object]) -> Apply:
    """Adds what `read` makes of each argument to a field, once each."""
    return adds_all(field, lambda args: map(read, args))


def adds_all(field: str, read: Callable[[Sequence[Token]], Iterable[object]]) -> Apply:
    """Adds what `read` makes of all arguments to a field, once each."""
    return lambda config, line: replace(
        config, **{field: tuple(dict.fromkeys((*getattr(config, field), *read(line.args))))}
    )


FALLTHROUGH: Final = Option("fallthrough [ZONES...]", sets_all("fallthrough", lambda args: all_zones(args) or (".",)))
"""Sets the configuration's field `fallthrough` to zones, to the root without any."""
UPSTREAM: Final = Option("upstream [ADDRESS...]", lambda config, _line: config)
"""An old option, which says what is so anyway: the whole server is asked for the targets of CNAMEs."""


def refuse_repeated(stanza: Stanza) -> None:
    """Refuse a block in which an option stands twice."""
    first: dict[str, Line] = {}
    for line in stanza.block:
        if line.name in first:
            raise line.error(f"`{line.name}` may occur only once; first at {line.path}:{first[line.name].line}")
        first[line.name] = line


def _unknown(name: str, options: Mapping[str, object]) -> str:
    meant = closest(name, options)
    hint = f"did you mean `{meant}`?" if meant else f"options: {', '.join(options) or 'none'}"
    return f"unknown option `{name}`; {hint}"


def not_yet(what: str) -> Apply:
    """An option of CoreDNS that kdns knows and refuses, rather than serving less than was asked for."""

    def refuse(_config: object, line: Line) -> object:
        raise line.error(f"`{line.name}` is not supported yet: {what}")

    return refuse


def text(token: Token) -> str:
    """The argument as it is written."""
    return token.text


def integer(token: Token, least: int, most: int | None = None) -> int:
    """A decimal integer within bounds, both included."""
    bounds = f"from {least} to {most}" if most is not None else f"of at least {least}"
    if not (token.text.isascii() and token.text.isdecimal() and len(token.text) < 19):
        raise token.expected(f"a whole number {bounds}")
    number = int(token.text)
    if number < least or (most is not None and number > most):
        raise token.expected(f"a whole number {bounds}")
    return number


def rate(token: Token) -> float:
    """A number that is not negative, such as 0.5."""
    if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", token.text, re.ASCII) or not math.isfinite(float(token.text)):
        raise token.expected("a number of at least 0, such as 50 or 0.5")
    return float(token.text)


def duration_s(token: Token) -> float:
    """Seconds of a duration as Go writes it: 300ms, 1m30s, 1.5h, plain 0. Never negative."""
    try:
        if token.text[:1] not in {"-", "+"}:
            return parse_duration(token.text)
    except DurationRangeError as error:
        raise token.expected("a duration of at most 292 years") from error
    except ValueError:
        pass
    raise token.expected("a duration of digits and units (ns, us, ms, s, m, h), such as 300ms or 1m30s")


def ip(token: Token) -> str:
    """An IP address in normal form."""
    try:
        return str(ip_address(token.text))
    except ValueError:
        raise token.expected("an IP address") from None


def choice(token: Token, among: Sequence[str]) -> str:
    """One of several words."""
    if token.text not in among:
        raise token.expected(f"one of {', '.join(among)}")
    return token.text
