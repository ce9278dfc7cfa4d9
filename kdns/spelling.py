"""Words in messages: suggestions for misspelt ones, and lists."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from typing import Final

_LIKENESS: Final = 0.74
_LIKENESS_OF_SHORT: Final = 0.66
"""Twice the letters that two words share in their order, divided by the letters of both; of words up to _BEGINNING."""
_BEGINNING: Final = 4
_LIKENESS_OF_MISSPELLING: Final = 0.8


def closest(word: str, words: Iterable[str]) -> str:
    """Returns the most similar word, or "" if none is similar enough; four letters of the same beginning help."""
    for near in get_close_matches(word, words, n=1):
        wanted = _LIKENESS if len(word) > _BEGINNING else _LIKENESS_OF_SHORT
        if word[:_BEGINNING] == near[:_BEGINNING] or SequenceMatcher(a=near, b=word).ratio() >= wanted:
            return near
    return ""


def is_misspelling(word: str, other: str) -> bool:
    """Returns whether two words differ by a typing error: web and webb, but neither web-1 and web-2 nor app and api.

    Stricter than `closest`: for commands that change something.
    """
    if word == other or _digits(word) != _digits(other):
        return False
    return sorted(word) == sorted(other) or SequenceMatcher(a=other, b=word).ratio() >= _LIKENESS_OF_MISSPELLING


def _digits(word: str) -> list[str]:
    return [letter for letter in word if letter.isdecimal()]


def listed(items: Iterable[object], most: int = 10) -> str:
    """Returns the first of the items with commas between them, and how many more there are."""
    texts = [str(item) for item in items]
    rest = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {rest} more" if rest > 0 else "")
