"""The most frequent values of a stream in bounded memory."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T", bound=Hashable)

FORGOTTEN: Final = 0.01
"""The weight below which a value is forgotten: a query of half an hour ago, if weights lose a third each minute."""
PLACES: Final = 128
"""Values that are counted at a time: whatever has more than 1/128 of the weight is among them."""


class Entry(NamedTuple, Generic[T]):
    """A value and its least weight: it may have come before, and have been replaced."""

    value: T
    weight: float


class TopList(Generic[T]):
    """Space-Saving (Metwally, Agrawal, El Abbadi 2005) with fading weights; a new value replaces the rarest one."""

    def __init__(self, places: int = PLACES) -> None:
        self.total = 0.0
        self._places = places
        self._weights: dict[T, float] = {}
        self._errors: dict[T, float] = {}

    def __len__(self) -> int:
        return len(self._weights)

    def add(self, value: T, weight: float = 1.0) -> None:
        self.total += weight
        known = self._weights.get(value)
        if known is None and len(self._weights) >= self._places:
            rarest = min(self._weights, key=self._weights.__getitem__)
            known = self._errors[value] = self._weights.pop(rarest)
            self._errors.pop(rarest, None)
        self._weights[value] = (known or 0.0) + weight

    def fade(self, factor: float) -> None:
        """So that what is recent counts more; see FORGOTTEN."""
        self.total *= factor
        self._weights = {
            value: weight * factor for value, weight in self._weights.items() if weight * factor >= FORGOTTEN
        }
        self._errors = {value: error * factor for value, error in self._errors.items() if value in self._weights}

    def most(self, count: int) -> list[Entry[T]]:
        known = (Entry(value, weight - self._errors.get(value, 0.0)) for value, weight in self._weights.items())
        return sorted(known, key=lambda entry: -entry.weight)[:count]
