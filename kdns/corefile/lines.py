"""Tokens → lines, each with the lines of its { block }: the syntax of a Corefile without its semantics.

`{` ends its line and opens a block, `}` closes it. The zones of a server block may continue on the next line after a
comma, and its `{` may have a line of its own; that of a directive may not. Its `}` has to have one, as in CoreDNS.

Differs: CoreDNS inserts imports token by token, so that a file may open a brace which another one closes; here the
braces of every file and every snippet must match.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kdns.corefile.lexer import Token
from kdns.errors import CorefileError

MAX_DEPTH = 3
"""A snippet holds a server block, which holds directives, which hold options."""


@dataclass(frozen=True, slots=True)
class Line:
    """One or more words and the lines of the block after them; `braces` distinguishes `errors { }` from `errors`."""

    words: tuple[Token, ...]
    block: tuple[Line, ...] = ()
    braces: bool = False

    @property
    def name(self) -> str:
        return self.words[0].text

    @property
    def args(self) -> tuple[Token, ...]:
        return self.words[1:]

    @property
    def path(self) -> str:
        return self.words[0].path

    @property
    def line(self) -> int:
        """From 1."""
        return self.words[0].line

    @property
    def is_import(self) -> bool:
        return self.words[0].is_sign("import")

    def error(self, reason: str) -> CorefileError:
        return self.words[0].error(reason)


Stanza = Line
"""A directive with its arguments and its options."""


class _Blocks:
    """The lines read so far, and the open blocks."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.words: list[Token] = []
        self.open: list[tuple[Token, list[Token], list[Line]]] = []
        self.unbraced: int | None = None
        self.deepest: tuple[Token, Token] | None = None
        """The first option with a block, and its directive: the end of the directive's block may be missing."""

    @property
    def expects_zones(self) -> bool:
        """Outside all blocks, and not in a server block without braces."""
        return not self.open and self.unbraced is None

    def end_line(self) -> None:
        if not self.words:
            return
        line = Line(tuple(self.words))
        if self.expects_zones and not line.is_import:
            self.unbraced = len(self.lines)
        self.lines.append(line)
        self.words = []

    def open_block(self, brace: Token) -> None:
        if not self.words and not self.open and self.lines and self.unbraced == len(self.lines) - 1:
            self.words = list(self.lines.pop().words)
            self.unbraced = None
        if not self.words:
            raise brace.error("expected a server block or directive before `{`, on the same line")
        if len(self.open) == MAX_DEPTH:
            raise brace.error(f"blocks are nested more than {MAX_DEPTH} deep")
        if len(self.open) == MAX_DEPTH - 1 and not self.deepest and not self.open[0][1][0].text.startswith("("):
            self.deepest = self.words[0], self.open[-1][1][0]
        self.open.append((brace, self.words, self.lines))
        self.words, self.lines = [], []

    def close_block(self, brace: Token) -> None:
        self.end_line()
        if not self.open:
            raise brace.error("no block is open here")
        _, words, outer = self.open.pop()
        is_of_servers = self.expects_zones and not words[0].text.startswith("(")
        if is_of_servers and self.lines and not brace.starts_line:
            raise brace.error(f"expected a line of its own for the `}}` that ends the block of `{words[0].text}`")
        outer.append(Line(tuple(words), tuple(self.lines), braces=True))
        self.lines = outer


def _misplaced_brace(word: str) -> str:
    """What is wrong with a word of braces, "" if nothing is."""
    if word == "{{":
        return 'expected double quotes around words with {{ … }}, as in `answer "{{ .Name }} …"`'
    if word in {"}}", "}}}"}:
        return "expected a blank between `}` and `}`"
    if word == "{}":
        return "expected a blank between `{` and `}`; an empty block may also be left out"
    return "expected a blank before the `{` that opens a block" if word.endswith("{") else ""


def lines(tokens: Iterable[Token]) -> tuple[Line, ...]:
    """Raises CorefileError for unbalanced braces."""
    blocks = _Blocks()
    for token in tokens:
        continues = blocks.expects_zones and bool(blocks.words) and blocks.words[-1].text.endswith(",")
        if token.starts_line and not continues:
            blocks.end_line()
        if token.is_sign("{"):
            blocks.open_block(token)
        elif token.is_sign("}"):
            blocks.close_block(token)
        elif token.is_plain and (mistake := _misplaced_brace(token.text)):
            raise token.error(mistake)
        else:
            blocks.words.append(token)
    blocks.end_line()
    if blocks.open:
        brace, words, _ = blocks.open[-1]
        where = ""
        if blocks.deepest:
            inner, outer = blocks.deepest
            where = f", perhaps before `{inner.text}` in line {inner.line}, to end `{outer.text}`"
        raise brace.error(f"the block of `{words[0].text}` is not closed; expected `}}`{where}")
    return tuple(blocks.lines)
