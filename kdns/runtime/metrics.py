"""Metrics over plain integers: the hot path adds to a number, and a scrape makes metric families of the numbers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from kdns.tally import Tally

Registry: TypeAlias = CollectorRegistry


class Histogram:
    """Numbers of values by upper bound, and the sum of the values."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float, count: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    def merge(self, other: Histogram) -> None:
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts, as in the exposition format."""
        total = 0
        rows = []
        for bound, count in zip((*map(str, map(float, self.bounds)), "+Inf"), self.counts, strict=True):
            total += count
            rows.append((bound, float(total)))
        return rows


class Sample(NamedTuple):
    """One number of a family and its label values."""

    labels: tuple[str, ...]
    value: float


Distribution: TypeAlias = tuple[tuple[str, ...], Histogram]

COUNTER: Final = CounterMetricFamily
GAUGE: Final = GaugeMetricFamily
HISTOGRAM: Final = HistogramMetricFamily
Kind: TypeAlias = type[CounterMetricFamily] | type[GaugeMetricFamily] | type[HistogramMetricFamily]


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One family. `read`, called at each scrape, returns numbers or histograms by label values."""

    name: str
    text: str
    labels: tuple[str, ...]
    read: Callable[[], Iterable[tuple[tuple[str, ...], float | Histogram]]]
    kind: Kind = GAUGE


class Counters:
    """A family of counters that its owner adds to."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...]) -> None:
        self.metric = Metric(name, text, labels, self.samples, COUNTER)
        self._tallies: dict[tuple[str, ...], Tally] = {}

    def tally(self, *values: str) -> Tally:
        tally = self._tallies.get(values)
        if tally is None:
            tally = self._tallies[values] = Tally()
        return tally

    def samples(self) -> list[Sample]:
        return [Sample(values, tally.count) for values, tally in self._tallies.items()]


class Histograms:
    """A family of histograms that its owner adds to."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...], bounds: tuple[float, ...]) -> None:
        self.metric = Metric(name, text, labels, self.samples, HISTOGRAM)
        self._bounds = bounds
        self._histograms: dict[tuple[str, ...], Histogram] = {}

    def histogram(self, *values: str) -> Histogram:
        histogram = self._histograms.get(values)
        if histogram is None:
            histogram = self._histograms[values] = Histogram(self._bounds)
        return histogram

    def samples(self) -> list[Distribution]:
        return list(self._histograms.items())


class MetricFamilies(Collector):
    """The metrics of one page; metrics of one name are a family. `sources` are called at each scrape."""

    def __init__(self, *sources: Callable[[], Iterable[Metric]]) -> None:
        self._added: list[Metric] = []
        self._sources = (lambda: self._added, *sources)

    def add(self, metric: Metric) -> None:
        self._added.append(metric)

    def collect(self) -> Iterator[Family]:
        families: dict[str, Any] = {}
        for metric in chain.from_iterable(source() for source in self._sources):
            if metric.name not in families:
                families[metric.name] = metric.kind(metric.name, metric.text, labels=metric.labels)
            for values, value in metric.read():
                shown = (value.buckets(), value.sum) if isinstance(value, Histogram) else (value,)
                families[metric.name].add_metric(values, *shown)
        yield from families.values()
