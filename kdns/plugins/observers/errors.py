"""errors { stacktrace; consolidate DURATION REGEX [LEVEL] [show_first] }: failed queries in the log.

REGEX is RE2, like Go's, and takes time linear in the text, which includes names that clients choose.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from kdns.answers.chain import Plugin, Request, Sees
from kdns.answers.response import Response
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line
from kdns.dns.types import type_name
from kdns.durations import format_duration
from kdns.serverblocks.block_options import BlockOptions
from kdns.serverblocks.directive import Directive, Level, World
from kdns.serverblocks.patterns import Pattern, regex
from kdns.serverblocks.stanza import Option, flag, positive_s

LEVELS: dict[str, Level] = {level: level for level in ("warning", "error", "info", "debug")}


@dataclass(frozen=True, slots=True)
class Consolidate:
    """Errors that match `pattern` within `period_s` of the first are one line at `level`; `show_first` logs it now.

    The first rule that matches an error applies.
    """

    period_s: float
    pattern: Pattern
    level: Level = "error"
    show_first: bool = False


@dataclass(frozen=True, slots=True)
class ErrorsConfig:
    """`stacktrace` logs the stack trace of unexpected errors."""

    stacktrace: bool = False
    consolidate: tuple[Consolidate, ...] = ()


def _consolidate(config: ErrorsConfig, line: Line) -> ErrorsConfig:
    period, pattern, *words = line.args
    level: Level = "error"
    if words and words[0].text in LEVELS:
        level = LEVELS[words.pop(0).text]
    show_first = bool(words) and words[0].text == "show_first"
    if wrong := words[show_first:]:
        raise wrong[0].error(f"expected at most one level ({', '.join(LEVELS)}) and then at most one show_first")
    rule = Consolidate(positive_s(period), regex(pattern), level, show_first)
    return replace(config, consolidate=(*config.consolidate, rule))


OPTIONS = {
    "stacktrace": Option("stacktrace", flag("stacktrace")),
    "consolidate": Option("consolidate DURATION REGEX [LEVEL] [show_first]", _consolidate),
}


def _stdout(token: Token) -> str:
    if token.text != "stdout":
        raise token.expected("`stdout` or no argument (errors are written to the log)")
    return token.text


@dataclass(slots=True)
class Pending:
    """Errors of one rule in its current period; `shown` of them are logged already."""

    count: int
    last: str
    shown: int = 0


class Errors(Plugin):
    """Logs each response that has an `error`: such responses are never in the table, so observers see all of them.

    An upstream's SERVFAIL, fresh or cached, is its answer and not an error of this server, as in CoreDNS. A
    `consolidate` rule matches the error without its query, and logs one line at the end of its period, unless that
    would only repeat the first error.
    """

    sees = Sees.PACKET

    def __init__(self, config: ErrorsConfig, world: World) -> None:
        self._config = config
        self._world = world
        self._pending: dict[Consolidate, Pending] = {}
        world.on_stop(self._flush)

    def sent(self, request: Request, response: Response, wire: bytes, took_s: float) -> None:
        del took_s
        if response.error:
            query = request.query
            where = f"{wire[3] & 15} {query.name} {type_name(query.qtype)}"
            self._report(f"{where}: {response.error}", response.error)

    def _report(self, text: str, error: str) -> None:
        rule = next((rule for rule in self._config.consolidate if rule.pattern.search(error)), None)
        if rule is None:
            self._print("error", text)
        elif pending := self._pending.get(rule):
            pending.count += 1
            pending.last = text
        else:
            self._pending[rule] = Pending(1, text, int(rule.show_first))
            self._world.call_later(rule.period_s, partial(self._end, rule))
            if rule.show_first:
                self._print(rule.level, text)

    def _flush(self) -> None:
        for rule in tuple(self._pending):
            self._end(rule)

    def _end(self, rule: Consolidate) -> None:
        pending = self._pending.pop(rule, None)
        if pending and pending.count > pending.shown:
            facts = {
                "count": pending.count,
                "like": rule.pattern.pattern,
                "period_s": rule.period_s,
                "last": pending.last,
            }
            like, period = rule.pattern.pattern, format_duration(rule.period_s)
            line = f"plugin/errors: {pending.count} errors like '{like}' occurred in last {period}"
            self._world.print_line(rule.level, "queries failed", line, facts)

    def _print(self, level: Level, text: str) -> None:
        self._world.print_line(level, "query failed", f"plugin/errors: {text}", {"error": text})


DIRECTIVE: Final = Directive(
    "errors [stdout]",
    lambda *_: ErrorsConfig(),
    Errors,
    OPTIONS,
    argument=_stdout,
    sets_up=lambda config: BlockOptions(logs_stacks=config.stacktrace),
)
