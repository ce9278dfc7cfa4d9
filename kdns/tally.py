"""A number that metrics show, shared by the counting code and the metrics."""

from __future__ import annotations

from msgspec import Struct


class Tally(Struct, eq=False):
    """A number that metrics show. Answers of the table add to it when they are counted, not at each use."""

    count: int = 0
