"""The door to RE2: operators' regular expressions, which meet names that clients choose.

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
    """Where a pattern fits."""

    def group(self, index: int | str = 0, /) -> Any:
        """The text of a group, 0 for all of it."""

    def groups(self) -> tuple[Any, ...]:
        """The texts of all groups, None for those that took no part."""

    def groupdict(self) -> dict[str, Any]:
        """The texts of the groups that have names."""

    def start(self, index: int | str = 0, /) -> int:
        """Where a group begins."""

    def end(self, index: int | str = 0, /) -> int:
        """Where a group ends."""


class Pattern(Protocol):
    """A compiled regular expression."""

    @property
    def pattern(self) -> str:
        """The text that it was compiled from."""

    @property
    def groups(self) -> int:
        """How many groups it has."""

    @property
    def groupindex(self) -> Mapping[str, int]:
        """The numbers of the groups that have names."""

    def search(self, text: str) -> Match | None:
        """The first match anywhere in the text."""

    def fullmatch(self, text: str) -> Match | None:
        """The match of the whole text."""


def compiled(text: str) -> Pattern:
    """ValueError, with the reason, for a text that Go's regexp does not read either."""
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
    """The pattern of a word; CorefileError for a word that is none."""
    if len(token.text) > MAX_REGEX_CHARS:
        raise token.error(
            f"expected a regular expression of at most {MAX_REGEX_CHARS} characters, got {len(token.text)}"
        )
    try:
        return compiled(token.text)
    except ValueError as error:
        raise token.error(f"expected a regular expression in RE2 syntax, as in Go: {error}") from error
