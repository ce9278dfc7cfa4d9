"""A number that metrics show, shared by the counting code and the metrics."""

from __future__ import annotations


class Tally:
    """A number that metrics show. Answers of the table add to it when they are counted, not at each use."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0
