"""Metrics over plain integers: the hot path adds to a number, and a scrape makes metric families of the numbers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kdns.tally import Tally


class Histogram:
    """Counts by upper bound, and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """Counts `value`, `count` times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    def merge(self, other: Histogram) -> None:
        """Adds another histogram with the same bounds."""
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def buckets(self) -> list[tuple[str, float]]:
        """Returns cumulative counts in the exposition format."""
        total = 0
        rows = []
        for bound, count in zip((*map(str, map(float, self.bounds)), "+Inf"), self.counts, strict=True):
            total += count
            rows.append((bound, float(total)))
        return rows


class Sample(NamedTuple):
    """One number of a family: label values and value."""

    labels: tuple[str, ...]
    value: float


Samples: TypeAlias = Callable[[], Iterable[tuple[tuple[str, ...], float]]]
"""Returns the label values and the value of each number of a family."""
Distribution: TypeAlias = tuple[tuple[str, ...], Histogram]
"""One histogram of a family: label values and counts."""


class Counters:
    """A family of counters that directives add to."""

    def __init__(self, text: str, labels: tuple[str, ...]) -> None:
        self.text, self.labels = text, labels
        self._tallies: dict[tuple[str, ...], Tally] = {}

    def tally(self, *values: str) -> Tally:
        """Returns the counter with these label values."""
        tally = self._tallies.get(values)
        if tally is None:
            tally = self._tallies[values] = Tally()
        return tally

    def samples(self) -> list[Sample]:
        """Returns all counters, as they are now."""
        return [Sample(values, tally.count) for values, tally in self._tallies.items()]


class Histograms:
    """A family of histograms that directives add to."""

    def __init__(self, text: str, labels: tuple[str, ...], bounds: tuple[float, ...]) -> None:
        self.text, self.labels, self.bounds = text, labels, bounds
        self._histograms: dict[tuple[str, ...], Histogram] = {}

    def observe(self, values: tuple[str, ...], measured: float) -> None:
        """Counts a measured value under these label values."""
        histogram = self._histograms.get(values)
        if histogram is None:
            histogram = self._histograms[values] = Histogram(self.bounds)
        histogram.add(measured)

    def samples(self) -> list[Distribution]:
        """Returns all histograms, as they are now."""
        return list(self._histograms.items())


class Gauges(Collector):
    """Gauges, counters and histograms read at scrape time: help, label names, is_counter and samples by name."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[str, tuple[str, ...], bool, list[Samples]]] = {}
        self._histograms: list[tuple[str, str, tuple[str, ...], Callable[[], Iterable[Distribution]]]] = []

    def add(
        self,
        name: str,
        text: str,
        labels: tuple[str, ...],
        samples: Samples,
        *,
        counter: bool = False,
    ) -> None:
        """Exposes one family; a family that is added again has the samples of each."""
        *_, sources = self._rows.setdefault(name, (text, labels, counter, []))
        sources.append(samples)

    def clear(self) -> None:
        """Removes all families."""
        self._rows.clear()
        self._histograms.clear()

    def add_histogram(
        self, name: str, text: str, labels: tuple[str, ...], samples: Callable[[], Iterable[Distribution]]
    ) -> None:
        """Exposes one family of histograms."""
        self._histograms.append((name, text, labels, samples))

    def collect(self) -> Iterator[Metric]:
        """Yields all families, read now."""
        for name, (text, labels, counter, sources) in self._rows.items():
            make = CounterMetricFamily if counter else GaugeMetricFamily
            family = make(name, text, labels=labels)
            for values, value in chain.from_iterable(samples() for samples in sources):
                family.add_metric(values, value)
            yield family
        for name, text, labels, distributions in self._histograms:
            histograms = HistogramMetricFamily(name, text, labels=labels)
            for values, histogram in distributions():
                histograms.add_metric(values, histogram.buckets(), histogram.sum)
            yield histograms
