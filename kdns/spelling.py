"""Words in messages: suggestions for misspelt ones, and lists."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from typing import Final

_LIKENESS: Final = 0.74
"""Twice the letters that two words share in their order, divided by the letters of both."""
_LIKENESS_OF_MISSPELLING: Final = 0.8
_SHORT: Final = 4
"""Words of up to this many letters are like others by chance: they may differ by one letter or one exchange."""


def closest(word: str, words: Iterable[str]) -> str:
    return next((near for near in get_close_matches(word, words) if _is_meant(word, near)), "")


def _is_meant(word: str, near: str) -> bool:
    """Whether one word is a misspelt other, or its beginning; a plural counts as its singular."""
    if len(word) >= _SHORT and (near.startswith(word.removesuffix("s")) or word.startswith(near)):
        return True
    if len(word) <= _SHORT:
        return _differ_once(word, near)
    return SequenceMatcher(a=near, b=word).ratio() >= _LIKENESS


def _differ_once(word: str, near: str) -> bool:
    """Whether one letter more, less or other, or an exchange of two neighbours, makes one word of the other."""
    while word and near and word[0] == near[0]:
        word, near = word[1:], near[1:]
    while word and near and word[-1] == near[-1]:
        word, near = word[:-1], near[:-1]
    return max(len(word), len(near)) <= 1 or (len(word) == 2 and word == near[::-1])


def is_misspelling(word: str, other: str) -> bool:
    """web and webb, but neither web-1 and web-2 nor app and api; stricter than `closest`."""
    if word == other or _digits(word) != _digits(other):
        return False
    return sorted(word) == sorted(other) or SequenceMatcher(a=other, b=word).ratio() >= _LIKENESS_OF_MISSPELLING


def _digits(word: str) -> list[str]:
    return [letter for letter in word if letter.isdecimal()]


def listed(items: Iterable[object], most: int = 10) -> str:
    every = [*items]
    more = len(every) - most
    return ", ".join(map(str, every[:most])) + (f" and {more} more" if more > 0 else "")
