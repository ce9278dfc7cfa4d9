"""The door to RE2: operators' regular expressions, which are applied to names that clients choose.

RE2 takes a time linear in the text, and has the syntax of Go's regexp.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

from kdns.corefile.lexer import Token

MAX_REGEX_CHARS: Final = 10_000

_SINGLE_BYTE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\C")
_GROUP_NAME: Final = re.compile(r"\(\?P?<(\w+)>")


class Match(Protocol):
    """A match of a pattern."""

    def group(self, index: int | str = 0, /) -> Any: ...

    def groups(self) -> tuple[Any, ...]: ...

    def groupdict(self) -> dict[str, Any]: ...

    def start(self, index: int | str = 0, /) -> int: ...

    def end(self, index: int | str = 0, /) -> int: ...


class Pattern(Protocol):
    """A compiled regular expression."""

    @property
    def pattern(self) -> str: ...

    @property
    def groups(self) -> int: ...

    @property
    def groupindex(self) -> Mapping[str, int]: ...

    def search(self, text: str) -> Match | None: ...

    def fullmatch(self, text: str) -> Match | None: ...


def compiled(text: str) -> Pattern:
    """Compiles a text; raises ValueError with the reason if Go's regexp would not accept it either."""
    names = _GROUP_NAME.findall(text)
    if _SINGLE_BYTE.search(text) or len(names) != len(set(names)):  # RE2 reads both
        raise ValueError("\\C and two groups of one name are refused")
    import re2  # noqa: PLC0415 - only where it is used

    options = re2.Options()
    options.log_errors = False  # the library would write them to standard error
    try:
        pattern: Pattern = re2.compile(text, options)
    except re2.error as error:
        (reason,) = error.args
        raise ValueError(reason.decode("utf-8", "replace")) from error
    return pattern


def regex(token: Token) -> Pattern:
    if len(token.text) > MAX_REGEX_CHARS:
        raise token.error(
            f"expected a regular expression of at most {MAX_REGEX_CHARS} characters, got {len(token.text)}"
        )
    try:
        return compiled(token.text)
    except ValueError as error:
        raise token.error(f"expected a regular expression in RE2 syntax, as in Go: {error}") from error
