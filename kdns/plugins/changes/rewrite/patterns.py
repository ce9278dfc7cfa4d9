"""Patterns that match and replace names: exact, prefix, suffix, substring and regex.

Names are text in lower case with a trailing dot.
Differs: `prefix` and `substring` match to the end of a label only if one of the two words ends in a dot; CoreDNS always
adds a dot to the pattern, against its documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from kdns.corefile.lexer import Token
from kdns.dns.names import folded
from kdns.serverblocks.patterns import Pattern, regex

Replaced: TypeAlias = Callable[[str], str | None]
"""Name → new name; None if it does not match."""

_GROUP: Final = re.compile(r"\{([0-9]+)\}")


class NamePattern(NamedTuple):
    """`text` and `to` are the words of the rule, with a trailing dot."""

    text: str
    to: str
    replaced: Replaced


def pattern_of(kind: str, word: Token, to: Token | None = None) -> NamePattern:
    if not word.text:
        raise word.error("expected a name or a part of one, got an empty word")
    if to and not to.text and (kind == "exact" or to.written):
        raise to.error("expected a name or a part of one, got an empty word")
    if kind == "regex":
        return _regex(word, to)
    text, replacement = folded(_latin(word)), folded(_latin(to)) if to else ""
    if kind in {"exact", "suffix"} or (to and text.endswith(".") is not replacement.endswith(".")):
        text, replacement = dotted(text), dotted(replacement)
    return NamePattern(text, replacement, partial(_KINDS[kind], text, replacement))


def suffix_pattern(text: str, to: str) -> NamePattern:
    return NamePattern(text, to, partial(_suffix, text, to))


def dotted(name: str) -> str:
    return name if name.endswith(".") else f"{name}."


def _latin(word: Token) -> str:
    try:
        word.text.encode("latin-1")
    except UnicodeEncodeError as error:
        raise word.error("expected a name; write unusual characters as \\DDD") from error
    return word.text


def _regex(word: Token, to: Token | None) -> NamePattern:
    pattern = regex(word)
    if to is None:
        return NamePattern(word.text, "", lambda name: name if pattern.search(name) else None)
    replacement = folded(_latin(to))
    numbers = [int(number) for number in _GROUP.findall(replacement)]
    if max(numbers, default=0) > pattern.groups:
        raise to.error(f"group {{{max(numbers)}}} does not exist: the expression has {pattern.groups}")
    return NamePattern(word.text, replacement, partial(_with_groups, pattern, replacement))


def _with_groups(pattern: Pattern, replacement: str, name: str) -> str | None:
    match = pattern.search(name)
    if match is None:
        return None
    return dotted(_GROUP.sub(lambda group: match.group(int(group[1])) or "", replacement))


def _exact(text: str, to: str, name: str) -> str | None:
    return to if name == text else None


def _prefix(text: str, to: str, name: str) -> str | None:
    return to + name[len(text) :] if name.startswith(text) else None


def _suffix(text: str, to: str, name: str) -> str | None:
    return name[: -len(text)] + to if name.endswith(text) else None


def _substring(text: str, to: str, name: str) -> str | None:
    return dotted(name.replace(text, to)) if text in name else None


_KINDS: Final[dict[str, Callable[[str, str, str], str | None]]] = {
    "exact": _exact,
    "prefix": _prefix,
    "suffix": _suffix,
    "substring": _substring,
}
KINDS: Final = (*_KINDS, "regex")
