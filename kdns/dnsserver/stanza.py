"""How every directive reads its stanza: counted arguments, and a table of the options in its block.

An error says what the directive or option takes; an unknown option says which one was probably meant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from kdns.corefile.address import all_zones
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line, Stanza
from kdns.durations import DurationRangeError, parse_duration
from kdns.spelling import closest

Config = TypeVar("Config")

UNLIMITED = 1 << 20


@dataclass(frozen=True, slots=True)
class Option(Generic[Config]):
    """One option of a block: how it is written, how many arguments it takes, and the configuration it leads to."""

    usage: str
    least: int
    most: int
    apply: Callable[[Config, Line], Config]


def count(line: Line, usage: str, least: int, most: int) -> None:
    """Refuse a line with too few or too many arguments."""
    if len(line.args) < least:
        raise line.error(f"an argument is missing, as in: {usage}")
    if len(line.args) > most:
        raise line.args[most].error(f"one argument too many for: {usage}")


def configured(config: Config, stanza: Stanza, options: Mapping[str, Option[Config]]) -> Config:
    """`config` with every option of the stanza's block applied in order."""
    for line in stanza.block:
        option = options.get(line.name)
        if option is None:
            raise line.error(_unknown(stanza.name, line.name, options))
        count(line, option.usage, option.least, option.most)
        config = option.apply(config, line)
    return config


def _fallthrough(config: Any, line: Line) -> Any:
    return replace(config, fallthrough=all_zones(line.args) or (".",))


def _unchanged(config: Any, _line: Line) -> Any:
    return config


FALLTHROUGH: Final[Option[Any]] = Option("fallthrough [ZONES...]", 0, UNLIMITED, _fallthrough)
"""Sets the configuration's field `fallthrough` to zones, to the root without any."""
UPSTREAM: Final[Option[Any]] = Option("upstream", 0, UNLIMITED, _unchanged)
"""An old option, which says what is so anyway: the whole server is asked for the targets of CNAMEs."""


def refuse_repeated(stanza: Stanza) -> None:
    """Refuse a block in which an option stands twice."""
    first: dict[str, Line] = {}
    for line in stanza.block:
        if line.name in first:
            raise line.error(f"`{line.name}` may stand only once; first at {line.path}:{first[line.name].line}")
        first[line.name] = line


def _unknown(directive: str, name: str, options: Mapping[str, object]) -> str:
    if not options:
        return f"`{directive}` has no options"
    meant = closest(name, options)
    hint = f"did you mean `{meant}`?" if meant else f"it has {', '.join(options)}"
    return f"`{directive}` has no option `{name}`; {hint}"


def not_yet(what: str) -> Callable[[Config, Line], Config]:
    """An option of CoreDNS that kdns knows and refuses, rather than serving less than was asked for."""

    def refuse(_config: Config, line: Line) -> Config:
        raise line.error(f"`{line.name}` is not supported yet: {what}")

    return refuse


def integer(token: Token, least: int, most: int | None = None) -> int:
    """A decimal integer within bounds, both included."""
    wanted = f"from {least} to {most}" if most is not None else f"of at least {least}"
    if not (token.text.isascii() and token.text.isdecimal() and len(token.text) < 19):
        raise token.error(f"not a whole number {wanted}")
    number = int(token.text)
    if number < least or (most is not None and number > most):
        raise token.error(f"not a number {wanted}")
    return number


def rate(token: Token) -> float:
    """A number that is not negative, such as 0.5."""
    if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", token.text, re.ASCII) or not math.isfinite(float(token.text)):
        raise token.error("not a number of at least 0, such as 50 or 0.5")
    return float(token.text)


def duration_s(token: Token) -> float:
    """Seconds of a duration as Go writes it: 300ms, 1m30s, 1.5h, plain 0. Never negative."""
    try:
        if token.text[:1] not in {"-", "+"}:
            return parse_duration(token.text)
    except DurationRangeError as error:
        raise token.error("a duration of more than 292 years") from error
    except ValueError:
        pass
    raise token.error("not a duration: digits and a unit (ns, us, ms, s, m, h) make one, such as 300ms or 1m30s")


def choice(token: Token, among: Sequence[str]) -> str:
    """One of several words."""
    if token.text not in among:
        raise token.error(f"not one of {', '.join(among)}")
    return token.text
