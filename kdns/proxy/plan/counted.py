"""What several owners need: it is there while somebody needs it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Counted(Generic[K]):
    """How many owners need each key."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[K, int] = {}

    def add(self, key: K) -> bool:
        """Returns whether the key is new."""
        count = self.counts[key] = self.counts.get(key, 0) + 1
        return count == 1

    def remove(self, key: K) -> bool:
        """Returns whether the key is gone, as nobody else needs it."""
        self.counts[key] -= 1
        if self.counts[key]:
            return False
        del self.counts[key]
        return True

    def replace(self, old: Iterable[K], new: Iterable[K]) -> tuple[tuple[K, ...], tuple[K, ...]]:
        """Returns the keys that are new now that these owners are replaced, and those that are gone."""
        gone, added = list(old), list(new)
        before = {key: key in self.counts for key in (*gone, *added)}
        for key in gone:
            self.remove(key)
        for key in added:
            self.add(key)
        return (
            tuple(key for key, existed in before.items() if not existed and key in self.counts),
            tuple(key for key, existed in before.items() if existed and key not in self.counts),
        )
