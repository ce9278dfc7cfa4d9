"""errors { stacktrace; consolidate DURATION REGEX [LEVEL] [show_first] }: failed queries in the log.

REGEX is one of Python's `re`, which reads the common ground with Go's in the same way; what it cannot read is refused.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line, Stanza
from kdns.plugins.options import Option, configured, count, duration_s

Level: TypeAlias = Literal["warning", "error", "info", "debug"]
LEVELS: dict[str, Level] = {level: level for level in get_args(Level)}
MAX_REGEX_CHARS = 10_000


@dataclass(frozen=True, slots=True)
class Consolidate:
    """Errors that match `pattern` within `period_s` seconds of the first become one line at `level`.

    show_first logs the first at once. The first rule that matches an error takes it.
    """

    period_s: float
    pattern: re.Pattern[str]
    level: Level = "error"
    show_first: bool = False


@dataclass(frozen=True, slots=True)
class ErrorsConfig:
    """What happens to errors; `stacktrace` adds the stack of an unexpected one."""

    stacktrace: bool = False
    consolidate: tuple[Consolidate, ...] = ()


def _stacktrace(config: ErrorsConfig, _line: Line) -> ErrorsConfig:
    return replace(config, stacktrace=True)


def _consolidate(config: ErrorsConfig, line: Line) -> ErrorsConfig:
    period, pattern, *rest = line.args
    level: Level = "error"
    if rest and rest[0].text in LEVELS:
        level = LEVELS[rest.pop(0).text]
    show_first = bool(rest) and rest[0].text == "show_first"
    if wrong := rest[show_first:]:
        raise wrong[0].error(f"wanted a level ({', '.join(LEVELS)}) and then show_first, each at most once")
    rule = Consolidate(_period_s(period), _regex(pattern), level, show_first)
    return replace(config, consolidate=(*config.consolidate, rule))


def _period_s(token: Token) -> float:
    period_s = duration_s(token)
    if not period_s:
        raise token.error("errors are consolidated over a time longer than 0")
    return period_s


def _regex(token: Token) -> re.Pattern[str]:
    if len(token.text) > MAX_REGEX_CHARS:
        raise token.error(f"a regular expression of more than {MAX_REGEX_CHARS} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python warns of what other dialects read in another way: [[:alpha:]]
            return re.compile(token.text)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise token.error(f"not a regular expression: {error}") from error


OPTIONS = {
    "stacktrace": Option("stacktrace", 0, 0, _stacktrace),
    "consolidate": Option("consolidate DURATION REGEX [LEVEL] [show_first]", 2, 4, _consolidate),
}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> ErrorsConfig:
    """What an `errors` stanza says; raises CorefileError. `errors stdout` is an old spelling of `errors`."""
    count(stanza, "errors [stdout]", 0, 1)
    if stanza.args and stanza.args[0].text != "stdout":
        raise stanza.args[0].error("errors go to the log; the only argument is `stdout`")
    return configured(ErrorsConfig(), stanza, OPTIONS)
