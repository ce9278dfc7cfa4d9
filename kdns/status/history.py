"""The last half hour of a server's counters: rates of each, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

READINGS: Final = 181
EVERY_S: Final = 10.0
"""READINGS are half an hour."""
MAX_SERIES: Final = 64
"""The most series of a reading: the largest ones."""

Series: TypeAlias = tuple[str, str]
"""What is counted, such as rcode, and its value, such as NOERROR."""


class Reading(NamedTuple):
    """Counters at a time of a clock that never goes back, in seconds."""

    at_s: float
    counts: Mapping[Series, float]


@dataclass(frozen=True, slots=True)
class Line:
    """The rates of one series per second, oldest first; `last` is the newest."""

    name: str
    rates: Sequence[float]

    @property
    def last(self) -> float:
        return self.rates[-1] if self.rates else 0.0


class History:
    """The readings of the last half hour."""

    def __init__(self) -> None:
        self._readings: deque[Reading] = deque(maxlen=READINGS)

    def add(self, at_s: float, counts: Mapping[Series, float]) -> None:
        largest = sorted(counts.items(), key=lambda pair: -pair[1])[:MAX_SERIES]
        self._readings.append(Reading(at_s, dict(largest)))

    @property
    def covered_s(self) -> float:
        return self._readings[-1].at_s - self._readings[0].at_s if self._readings else 0.0

    def lines(self, counted: str) -> list[Line]:
        """The most frequent first; a counter that began again has rate 0."""
        pairs = list(zip(self._readings, list(self._readings)[1:], strict=False))
        names = {series for reading in self._readings for series in reading.counts if series[0] == counted}
        lines = []
        for series in names:
            rates = [
                max(new.counts.get(series, 0.0) - old.counts.get(series, 0.0), 0.0) / (new.at_s - old.at_s)
                for old, new in pairs
                if new.at_s > old.at_s
            ]
            lines.append(Line(series[1], rates))
        return sorted(lines, key=lambda line: (-sum(line.rates), line.name))
