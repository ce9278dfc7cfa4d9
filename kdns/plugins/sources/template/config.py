"""template CLASS TYPE [ZONE…] { … }: configuration and grammar."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from kdns.corefile.address import all_zones
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line, Stanza
from kdns.dns.query import extended_error
from kdns.dns.types import NOERROR, class_number, rcode_number, type_number
from kdns.plugins.sources.template.gotemplate import Template, TemplateSyntaxError
from kdns.serverblocks.expressions.functions import GROUP, QUERY_FUNCTIONS
from kdns.serverblocks.expressions.parser import FUNCTION_NAMES, RESERVED, Expression, expression
from kdns.serverblocks.expressions.values import ValueKind
from kdns.serverblocks.patterns import Pattern, regex
from kdns.serverblocks.stanza import (
    FALLTHROUGH,
    UNLIMITED,
    UPSTREAM,
    Option,
    adds,
    configured,
    count,
    integer,
    mnemonic,
    sets,
    sets_all,
)

Section: TypeAlias = Literal["answer", "additional", "authority"]
SECTIONS: Final[dict[str, Section]] = {"answer": "answer", "additional": "additional", "authority": "authority"}

FUNCTIONS: Final = {**QUERY_FUNCTIONS, **GROUP}
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
USAGE: Final = "template CLASS TYPE [ZONES...]"
RCODE: Final = "a response code, such as NXDOMAIN or REFUSED"


@dataclass(frozen=True, slots=True)
class TemplateConfig:
    """Answers questions of a class and type (255 for all) about names in `zones` that match one of `patterns`, if any.

    All `conditions` must be true; they and `records` use `variables`, which may use earlier ones. `words` are the
    tokens of the records. `extended_error` is an EDNS option (RFC 8914). In the zones of `fallthrough`, questions that
    do not match go to the next template or directive.
    """

    qclass: int
    qtype: int
    zones: tuple[str, ...]
    patterns: tuple[Pattern, ...] = ()
    variables: tuple[tuple[str, Expression], ...] = ()
    conditions: tuple[Expression, ...] = ()
    records: tuple[tuple[Section, Template], ...] = ()
    rcode: int = NOERROR
    extended_error: tuple[int, bytes] | None = None
    fallthrough: tuple[str, ...] = ()
    words: tuple[Token, ...] = field(default=(), compare=False, repr=False)


def _record(config: TemplateConfig, line: Line) -> TemplateConfig:
    section = SECTIONS[line.name]
    records = (*config.records, *((section, _template(token)) for token in line.args))
    return replace(config, records=records, words=(*config.words, *line.args))


def _template(token: Token) -> Template:
    try:
        return Template(token.text)
    except TemplateSyntaxError as error:
        raise token.error(f"invalid Go template: {error}") from error


def _extended_error(args: Sequence[Token]) -> tuple[int, bytes]:
    code = integer(args[0], 0, 65535)
    return extended_error(code, args[1].text if len(args) > 1 else "")


def _variable(config: TemplateConfig, line: Line) -> TemplateConfig:
    token, *words = line.args
    name = token.text
    kinds = _kinds(config)
    if not _VARIABLE.fullmatch(name):
        raise token.expected("the name of a variable: letters, digits and _, not beginning with a digit")
    if name in RESERVED or name in FUNCTIONS or name in FUNCTION_NAMES:
        raise token.expected("a name that is not a keyword of expressions")
    if name in kinds:
        raise token.error("a variable of this name is already defined")
    value = expression(words, FUNCTIONS, kinds)
    return replace(config, variables=(*config.variables, (name, value)))


def _expr(config: TemplateConfig, line: Line) -> TemplateConfig:
    return replace(config, conditions=(*config.conditions, expression(line.args, FUNCTIONS, _kinds(config))))


def _kinds(config: TemplateConfig) -> dict[str, ValueKind]:
    return {name: value.kind for name, value in config.variables}


OPTIONS: Final = {
    "match": Option("match REGEX...", adds("patterns", regex)),
    "answer": Option("answer RECORD...", _record),
    "additional": Option("additional RECORD...", _record),
    "authority": Option("authority RECORD...", _record),
    "rcode": Option(
        "rcode RCODE", sets("rcode", mnemonic, rcode_number, "a response code, such as NXDOMAIN or REFUSED")
    ),
    "ederror": Option("ederror CODE [REASON]", sets_all("extended_error", _extended_error)),
    "var": Option("var NAME EXPRESSION", _variable, (2, UNLIMITED)),
    "expr": Option("expr EXPRESSION", _expr, (1, UNLIMITED)),
    "fallthrough": FALLTHROUGH,
    "upstream": UPSTREAM,
}


def parse(stanza: Stanza, zones: tuple[str, ...]) -> TemplateConfig:
    count(stanza, USAGE)
    class_word, type_word, *zone_words = stanza.args
    qclass = mnemonic(class_word, class_number, "a class: IN, CH, HS, NONE or ANY, as in `template IN A`")
    qtype = mnemonic(type_word, type_number, "a record type, such as A, AAAA or ANY")
    config = TemplateConfig(qclass, qtype, all_zones(zone_words) or zones)
    return configured(config, stanza, OPTIONS)
