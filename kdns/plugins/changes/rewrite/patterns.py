"""How rules match names, and what they make of them: exact, prefix, suffix, substring and regex.

Names are text in lower case with a dot at the end.
Differs: CoreDNS adds a dot to the patterns of `prefix` and `substring`, so that they only match up to the end of a
label, against its documentation. Here that is so where one of the two words ends in a dot.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from kdns.corefile.lexer import Token
from kdns.dns.names import folded
from kdns.serverblocks.patterns import Pattern, regex

Matches: TypeAlias = Callable[[str], bool]
Replaced: TypeAlias = Callable[[str], str | None]
"""Returns the new name for a name; None if it does not match."""

_PLACE: Final = re.compile(r"\{([0-9]+)\}")


class NamePattern(NamedTuple):
    """One pattern: the match of a name, and its replacement; `text` and `to` are its words, with a dot at the end."""

    kind: str
    text: str
    to: str
    matches: Matches
    replaced: Replaced


def pattern_of(kind: str, word: Token, to: Token | None = None) -> NamePattern:
    """Returns the pattern of a word and its replacement, if any; raises CorefileError."""
    if not word.text:
        raise word.error("expected a name or a part of one, got an empty word")
    if to and not to.text and (kind == "exact" or to.written):
        raise to.error("expected a name or a part of one, got an empty word")
    if kind == "regex":
        return _regex(word, to)
    text, replacement = folded(_latin(word)), folded(_latin(to)) if to else ""
    if kind in {"exact", "suffix"} or (to and text.endswith(".") is not replacement.endswith(".")):
        text, replacement = dotted(text), dotted(replacement)
    matches, replaced = _KINDS[kind]
    return NamePattern(kind, text, replacement, partial(matches, text), partial(replaced, text, replacement))


def dotted(name: str) -> str:
    return name if name.endswith(".") else f"{name}."


def _latin(word: Token) -> str:
    """Returns the text of a word; CorefileError for characters that are not bytes."""
    try:
        word.text.encode("latin-1")
    except UnicodeEncodeError as error:
        raise word.error("expected a name; write unusual characters as \\DDD") from error
    return word.text


def _regex(word: Token, to: Token | None) -> NamePattern:
    pattern = regex(word)
    if to is None:
        return NamePattern("regex", word.text, "", lambda name: pattern.search(name) is not None, lambda name: name)
    replacement = folded(_latin(to))
    numbers = [int(number) for number in _PLACE.findall(replacement)]
    if max(numbers, default=0) > pattern.groups:
        raise to.error(f"group {{{max(numbers)}}} does not exist: the expression has {pattern.groups}")
    return NamePattern(
        "regex",
        word.text,
        replacement,
        lambda name: pattern.search(name) is not None,
        partial(_with_groups, pattern, replacement),
    )


def _with_groups(pattern: Pattern, replacement: str, name: str) -> str | None:
    match = pattern.search(name)
    if match is None:
        return None
    return dotted(_PLACE.sub(lambda place: match.group(int(place[1])) or "", replacement))


def _is(text: str, name: str) -> bool:
    return name == text


def _begins(text: str, name: str) -> bool:
    return name.startswith(text)


def _ends(text: str, name: str) -> bool:
    return name.endswith(text)


def _holds(text: str, name: str) -> bool:
    return text in name


def _whole(text: str, to: str, name: str) -> str | None:
    return to if name == text else None


def _begun(text: str, to: str, name: str) -> str | None:
    return to + name[len(text) :] if name.startswith(text) else None


def _ended(text: str, to: str, name: str) -> str | None:
    return name[: -len(text)] + to if name.endswith(text) else None


def _held(text: str, to: str, name: str) -> str | None:
    return dotted(name.replace(text, to)) if text in name else None


_KINDS: Final[dict[str, tuple[Callable[[str, str], bool], Callable[[str, str, str], str | None]]]] = {
    "exact": (_is, _whole),
    "prefix": (_begins, _begun),
    "suffix": (_ends, _ended),
    "substring": (_holds, _held),
}
KINDS: Final = (*_KINDS, "regex")
