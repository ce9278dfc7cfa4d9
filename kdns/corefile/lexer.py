r"""Text → tokens: words with their file and line.

A word ends at white space. A word in double quotes may have white space and line ends in it; there \" is a quote, and
any other backslash is literal. # starts a comment up to the end of the line. There is no line continuation.

{$NAME} and {%NAME%} are environment variables, anywhere in a word. A value is inserted verbatim: white space in it
does not split the word, and references in it are not expanded. An unset variable is empty.

Differs: CoreDNS expands references inside of values, and hangs on a variable that holds its own reference.
Differs: after a comment that touches a word (`ttl 30#half a minute`) CoreDNS continues after the next
blank; here a comment ends with its line.
Differs: a quote that is never closed is an error; CoreDNS takes the rest of the file as one word.
Differs: a quoted brace or keyword is plain text; CoreDNS treats `"{"` as `{`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kdns.errors import MAX_TOKEN_LENGTH, CorefileError

BYTE_ORDER_MARK = "\ufeff"
_LEXEME = re.compile(
    r"""(?P<newline>\n)
      | (?P<blank>[^\S\n]+)
      | (?P<comment>\#[^\n]*)
      | "(?P<quoted>(?:\\.|[^"\\])*)"
      | (?P<unclosed>")
      | (?P<word>[^\s#]+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED_QUOTE = re.compile(r"\\(.)", re.DOTALL)
_REFERENCE = re.compile(r"\{%(?P<percent>.+?)%\}|\{\$(?P<dollar>[^}]+)\}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Token:
    """`written` is the text before variables were replaced, "" if it had none; `is_blank`: all of them are empty."""

    path: str
    line: int
    text: str
    starts_line: bool = False
    quoted: bool = False
    written: str = ""
    is_blank: bool = False

    @property
    def is_plain(self) -> bool:
        """Unquoted, and not from a variable: it may be a brace or keyword of the grammar."""
        return not (self.quoted or self.written)

    def is_sign(self, sign: str) -> bool:
        return self.text == sign and self.is_plain

    def error(self, reason: str) -> CorefileError:
        """With the value of the token's variables."""
        if self.written:
            meaning = f"stands for {self.text!r} here" if self.text else "is empty or not set"
            reason = f"{reason}; {self.written} {meaning}"
        return CorefileError(self.path, self.line, self.text, reason)

    def expected(self, what: str) -> CorefileError:
        return self.error(f"expected {what}, got {self.text[:MAX_TOKEN_LENGTH]!r}")


def tokens(text: str, path: str) -> Iterator[Token]:
    """Raises CorefileError for an open quote and a NUL; `path` is only for messages."""
    line, starts_line = 1, True
    for lexeme in _LEXEME.finditer(text.removeprefix(BYTE_ORDER_MARK)):
        kind, word = lexeme.lastgroup, lexeme.group()
        if kind == "unclosed":
            raise CorefileError(path, line, '"', "the quote is not closed")
        if "\0" in word:  # it would cut off names of files and hosts in C libraries
            line += word.count("\n", 0, word.index("\0"))
            raise CorefileError(path, line, "\0", "expected text, got a NUL byte")
        if kind == "newline":
            starts_line = True
        elif kind == "quoted":
            inner = _ESCAPED_QUOTE.sub(lambda pair: '"' if pair[1] == '"' else pair[0], lexeme["quoted"])
            yield Token(path, line, inner, starts_line, quoted=True)
            starts_line = False
        elif kind == "word":
            yield Token(path, line, word, starts_line)
            starts_line = False
        line += word.count("\n")


def expanded(tokens: Iterable[Token], environ: Mapping[str, str]) -> Iterator[Token]:
    for token in tokens:
        text = _REFERENCE.sub(lambda match: environ.get(match["percent"] or match["dollar"], ""), token.text)
        is_blank = text == _REFERENCE.sub("", token.text)
        yield token if text == token.text else replace(token, text=text, written=token.text, is_blank=is_blank)
