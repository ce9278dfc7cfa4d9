"""Tokens → lines, each with the lines of its { block }: the syntax of a Corefile without its semantics.

`{` ends its line and opens a block, `}` closes it. The zones of a server block may continue on the next line after a
comma, and its `{` may have a line of its own; that of a directive may not. Its `}` has to have one, as in CoreDNS.

Differs: the braces of each file and snippet must match; CoreDNS inserts imports token by token, so that one file may
close another's brace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from kdns.corefile.lexer import Token
from kdns.errors import CorefileError

MAX_DEPTH = 3
"""A snippet holds a server block, which holds directives, which hold options."""


@dataclass(frozen=True, slots=True)
class Line:
    """One or more words and the lines of the block after them; `braces` distinguishes `errors { }` from `errors`.

    `is_whole` is False if a part of the block could not be read.
    """

    words: tuple[Token, ...]
    block: tuple[Line, ...] = ()
    braces: bool = False
    is_whole: bool = True

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


class BracesError(CorefileError):
    """Braces or quotes without their counterparts: it is not certain which lines belong to which block."""


class _Block(NamedTuple):
    """An open block: its brace, the words before it, and the lines before those."""

    brace: Token
    words: list[Token]
    lines: list[Line]
    is_outer_whole: bool


class _Blocks:
    """The lines read so far, and the open blocks. A line that cannot be read is skipped, and its block is not whole."""

    def __init__(self, mistakes: list[CorefileError]) -> None:
        self.mistakes = mistakes
        self.lines: list[Line] = []
        self.words: list[Token] = []
        self.open: list[_Block] = []
        self.is_whole = True
        self.skips_line = False
        self.surplus = {"{": 0, "}": 0}
        """Braces that may have no counterpart because of mistakes that are known."""
        self.unbraced: int | None = None
        self.long_quote: tuple[int, int] | None = None
        """The numbers of complete lines and of mistakes before the first quote with an end in another line."""
        self.deepest: tuple[Token, Token] | None = None
        """The first option with a block, and its directive: the end of the directive's block may be missing."""

    @property
    def expects_zones(self) -> bool:
        """Outside all blocks, and not in a server block without braces."""
        return not self.open and self.unbraced is None

    @property
    def complete(self) -> list[Line]:
        """The lines outside of blocks; a block that is not closed may hold what belongs behind it."""
        return self.open[0].lines if self.open else self.lines

    def take(self, token: Token) -> None:
        continues = self.expects_zones and bool(self.words) and self.words[-1].text.endswith(",")
        if token.starts_line and not continues:
            self.end_line()
        if token.quoted and "\n" in token.text and not self.long_quote:
            self.long_quote = len(self.complete), len(self.mistakes)
        if token.is_sign("{"):
            self.open_block(token)
        elif self.skips_line:
            return
        elif token.is_sign("}"):
            self.close_block(token)
        elif token.is_plain and (mistake := _misplaced_brace(token.text)):
            self.take_misplaced(token, mistake)
        else:
            self.words.append(token)

    def take_misplaced(self, token: Token, mistake: str) -> None:
        """Reads a word with misplaced braces as what was probably meant."""
        word, name = token.text, token.text.rstrip("{}")
        if word.startswith("}"):
            self.misses(token, mistake)
            for _ in range(min(len(word), len(self.open))):
                self.close_block(replace(token, text="}", starts_line=True))
            return
        self.mistakes.append(token.error(mistake))
        if word == "{{" and not self.expects_zones:
            self.skips_line = True
        elif name:
            self.words.append(replace(token, text=name))
            self.open_block(replace(token, text="{"))
        elif self.words and not self.open:
            self.open_block(replace(token, text="{"))
            if word == "{}":
                self.close_block(token)

    def end_line(self) -> None:
        if self.skips_line:
            self.words, self.skips_line, self.is_whole = [], False, False
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
        is_readable = bool(self.words) and len(self.open) < MAX_DEPTH and not self.skips_line
        if not self.words:
            self.misses(brace, "expected a server block or directive before `{`, on the same line")
        elif len(self.open) == MAX_DEPTH:
            self.misses(brace, f"blocks are nested more than {MAX_DEPTH} deep")
        elif len(self.open) == MAX_DEPTH - 1 and not self.deepest and not self.open[0].words[0].text.startswith("("):
            self.deepest = self.words[0], self.open[-1].words[0]
        self.open.append(_Block(brace, self.words or [brace], self.lines, self.is_whole))
        self.words, self.lines, self.is_whole, self.skips_line = [], [], is_readable, False

    def close_block(self, brace: Token) -> None:
        self.end_line()
        if not self.open:
            if self.surplus["}"]:
                self.surplus["}"] -= 1
            else:
                self.mistakes.append(BracesError(brace.path, brace.line, brace.text, "no block is open here"))
            del self.lines[len(self.lines) if self.unbraced is None else self.unbraced :]  # of a block ended before
            self.unbraced = None
            return
        _, words, outer, is_outer_whole = self.open.pop()
        is_of_servers = self.expects_zones and not words[0].text.startswith("(")
        if is_of_servers and self.lines and not brace.starts_line:
            self.misses(brace, f"expected a line of its own for the `}}` that ends the block of `{words[0].text}`")
        if not words[0].is_sign("{") and len(self.open) < MAX_DEPTH:
            outer.append(Line(tuple(words), tuple(self.lines), braces=True, is_whole=self.is_whole))
        self.lines, self.is_whole = outer, not self.open or (is_outer_whole and self.is_whole)

    def misses(self, token: Token, reason: str) -> None:
        """Notes a mistake that may leave the brace without its counterpart."""
        self.surplus[token.text[0]] += 1
        self.mistakes.append(BracesError(token.path, token.line, token.text, reason))

    def end(self, error: CorefileError | None) -> tuple[Line, ...]:
        """Returns what is certain at the end of the text, or at an error of its words."""
        if error:
            self.mistakes.append(BracesError(error.path, error.line, error.token, error.reason))
        elif self.open and not self.surplus["{"]:
            brace, words, *_ = self.open[-1]
            inner, outer = self.deepest or (None, None)
            where = (
                f", perhaps before `{inner.text}` in line {inner.line}, to end `{outer.text}`"
                if inner and outer
                else ""
            )
            self.misses(brace, f"the block of `{words[0].text}` is not closed; expected `}}`{where}")
        if self.long_quote and len(self.mistakes) > self.long_quote[1]:
            del self.mistakes[self.long_quote[1] + 1 :]
            del self.complete[self.long_quote[0] :]
        return tuple(self.complete)


def _misplaced_brace(word: str) -> str:
    """The mistake in a word with braces, "" if there is none."""
    if word == "{{":
        return 'expected double quotes around words with {{ … }}, as in `answer "{{ .Name }} …"`'
    if word in {"}}", "}}}"}:
        return "expected a blank between `}` and `}`"
    if word == "{}":
        return "expected a blank between `{` and `}`; an empty block may also be left out"
    return "expected a blank before the `{` that opens a block" if word.endswith("{") else ""


def lines(tokens: Iterable[Token], mistakes: list[CorefileError]) -> tuple[Line, ...]:
    """The lines that are certain in spite of the mistakes, which are added to the list."""
    blocks = _Blocks(mistakes)
    try:
        for token in tokens:
            blocks.take(token)
    except CorefileError as error:
        return blocks.end(error)
    blocks.end_line()
    return blocks.end(None)
