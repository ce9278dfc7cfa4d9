"""log [NAMES…] [FORMAT] { class CLASSES… }: one line for each query whose name and answer are of interest.

Several stanzas add up; the first rule that matches a query decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from kdns.corefile.address import all_zones
from kdns.corefile.lexer import Token
from kdns.corefile.lines import Line, Stanza
from kdns.plugins.options import UNLIMITED, Option, configured, count

Class: TypeAlias = Literal["all", "success", "denial", "error"]
CLASSES: dict[str, Class] = {name: name for name in get_args(Class)}

COMMON = (
    '{remote}:{port} - {>id} "{type} {class} {name} {proto} {size} {>do} {>bufsize}" '
    "{rcode} {>rflags} {rsize} {duration}"
)
SHORTCUTS = {
    "{common}": COMMON,
    "{combined}": f'{COMMON} "{{>opcode}}"',
}
QUERY_FIELDS = frozenset({"type", "name", "class", "proto", "size", "remote", "port", "local"})
HEADER_FIELDS = frozenset({">id", ">opcode", ">do", ">bufsize", ">rflags"})
ANSWER_FIELDS = frozenset({"rcode", "rsize", "duration"})
FIELDS = QUERY_FIELDS | HEADER_FIELDS | ANSWER_FIELDS


@dataclass(frozen=True, slots=True)
class Field:
    """A place in a format that a query fills: one of FIELDS, or /LABEL for metadata."""

    name: str


Format: TypeAlias = tuple[str | Field, ...]


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Queries for names in `zones` whose answer is in one of `classes` are written as `format` says."""

    zones: tuple[str, ...]
    format: Format
    classes: frozenset[Class] = frozenset()

    def wants(self, answer_class: Class) -> bool:
        """Whether answers of this class are logged; no class, or the class `all`, means every answer."""
        return not self.classes or "all" in self.classes or answer_class in self.classes


def compiled(text: str) -> Format:
    """The format in pieces: what is in braces and no known field stays text."""
    for shortcut, meaning in SHORTCUTS.items():
        text = text.replace(shortcut, meaning)
    pieces: list[str | Field] = []
    for index, piece in enumerate(re.split(r"\{([^{}]*)\}", text)):
        if index % 2 and (piece in FIELDS or piece.startswith("/")):
            pieces.append(Field(piece))
            continue
        plain = f"{{{piece}}}" if index % 2 else piece
        if pieces and isinstance(pieces[-1], str):
            pieces[-1] += plain
        elif plain:
            pieces.append(plain)
    return tuple(pieces)


def _class(config: LogConfig, line: Line) -> LogConfig:
    return replace(config, classes=config.classes | {_answer_class(token) for token in line.args})


def _answer_class(token: Token) -> Class:
    if token.text not in CLASSES:
        raise token.error(f"not one of {', '.join(CLASSES)}")
    return CLASSES[token.text]


OPTIONS = {"class": Option("class all|success|denial|error...", 1, UNLIMITED, _class)}


def parse(stanza: Stanza, _zones: tuple[str, ...]) -> LogConfig:
    """What one `log` stanza says; raises CorefileError. Without names it is about every name of the server block."""
    count(stanza, "log [NAMES...] [FORMAT]", 0, UNLIMITED)
    names, text = stanza.args, "{common}"
    if names and "{" in names[-1].text:
        if len(names) == 1:
            raise names[0].error("a format comes behind the names it is for; `log . FORMAT` is for all names")
        names, text = names[:-1], names[-1].text
    return configured(LogConfig(all_zones(names) or (".",), compiled(text)), stanza, OPTIONS)
