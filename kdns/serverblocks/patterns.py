"""The door to RE2: operators' regular expressions, applied to names that clients choose.

RE2 takes time linear in the text, and has the syntax of Go's regexp.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from kdns.corefile.lexer import Token

MAX_REGEX_CHARS: Final = 10_000

_SINGLE_BYTE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\C")
_GROUP_NAME: Final = re.compile(r"\(\?P?<(\w+)>")


Pattern: TypeAlias = re.Pattern[str]
"""RE2's patterns and matches have the methods of re's."""


def compiled(text: str) -> Pattern:
    """Raises ValueError with the reason, also for what RE2 accepts and Go's regexp does not."""
    names = _GROUP_NAME.findall(text)
    if _SINGLE_BYTE.search(text) or len(names) != len(set(names)):  # RE2 accepts both
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
