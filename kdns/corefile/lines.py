"""Tokens → lines, each with the lines of its { block }: the shape of a Corefile before it means anything.

`{` ends the line it stands on and opens its block, `}` closes it. Zones of a server block may go on behind a comma on
the next line, and its `{` may stand on a line of its own; a directive's `{` may not.

Differs: CoreDNS splices imports token by token, so that a file may open a brace which another one closes; here every
file and every snippet must be balanced by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kdns.corefile.lexer import Token
from kdns.errors import CorefileError

MAX_DEPTH = 3
"""A snippet holds a server block, that holds a directive, that holds options."""


@dataclass(frozen=True, slots=True)
class Line:
    """Words (at least one) and the lines of the block behind them; `braces` tells `errors { }` from `errors`."""

    words: tuple[Token, ...]
    block: tuple[Line, ...] = ()
    braces: bool = False

    @property
    def name(self) -> str:
        """The first word: a directive's or an option's name."""
        return self.words[0].text

    @property
    def args(self) -> tuple[Token, ...]:
        """The words behind the name."""
        return self.words[1:]

    @property
    def path(self) -> str:
        """The file it stands in."""
        return self.words[0].path

    @property
    def line(self) -> int:
        """Where it starts, from 1."""
        return self.words[0].line

    @property
    def is_import(self) -> bool:
        """Whether it is to be replaced by something else."""
        return self.words[0].is_sign("import")

    def error(self, reason: str) -> CorefileError:
        """The error that points at the name."""
        return self.words[0].error(reason)


Stanza = Line
"""A directive with its arguments and its options."""


class _Shape:
    """The lines read so far, and the blocks still open."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.words: list[Token] = []
        self.open: list[tuple[Token, list[Token], list[Line]]] = []
        self.unbraced: int | None = None

    @property
    def wants_zones(self) -> bool:
        """Outside all blocks, before a server block that has no braces has begun."""
        return not self.open and self.unbraced is None

    def end_line(self) -> None:
        if not self.words:
            return
        line = Line(tuple(self.words))
        if self.wants_zones and not line.is_import:
            self.unbraced = len(self.lines)
        self.lines.append(line)
        self.words = []

    def open_block(self, brace: Token) -> None:
        if not self.words and not self.open and self.lines and self.unbraced == len(self.lines) - 1:
            self.words = list(self.lines.pop().words)
            self.unbraced = None
        if not self.words:
            raise brace.error("nothing for `{` to belong to: it must end the line of a server block or directive")
        if len(self.open) == MAX_DEPTH:
            raise brace.error(f"blocks within blocks, more than {MAX_DEPTH} deep")
        self.open.append((brace, self.words, self.lines))
        self.words, self.lines = [], []

    def close_block(self, brace: Token) -> None:
        self.end_line()
        if not self.open:
            raise brace.error("`}` closes nothing: no block is open here")
        _, words, outer = self.open.pop()
        outer.append(Line(tuple(words), tuple(self.lines), braces=True))
        self.lines = outer


def lines(tokens: Iterable[Token]) -> tuple[Line, ...]:
    """The outermost lines with all that they hold; raises CorefileError where braces don't match."""
    shape = _Shape()
    for token in tokens:
        continues = shape.wants_zones and bool(shape.words) and shape.words[-1].text.endswith(",")
        if token.starts_line and not continues:
            shape.end_line()
        if token.is_sign("{"):
            shape.open_block(token)
        elif token.is_sign("}"):
            shape.close_block(token)
        elif token.text.endswith("{") and not (token.quoted or token.written):
            raise token.error("a `{` that opens a block is a word of its own: put a blank before it")
        elif token.is_sign("{}"):
            raise token.error("put a blank between `{` and `}`, or leave out an empty block")
        else:
            shape.words.append(token)
    shape.end_line()
    if shape.open:
        brace, words, _ = shape.open[-1]
        raise brace.error(f"the block of `{words[0].text}` is never closed: a `}}` is missing")
    return tuple(shape.lines)
