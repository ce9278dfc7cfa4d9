"""The metrics of several processes as those of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client.core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

GAUGES: Final[Mapping[str, Callable[[float, float], float]]] = {
    "coredns_cache_entries": float.__add__,
    "coredns_dnssec_cache_entries": float.__add__,
    "kdns_answers": float.__add__,
    "kdns_upstream_exchanges": float.__add__,
    "kdns_watch_connected": min,
    "process_open_fds": float.__add__,
    "process_resident_memory_bytes": float.__add__,
    "process_virtual_memory_bytes": float.__add__,
}
"""How a gauge whose value differs between processes is combined; of all other gauges the largest value counts."""
COUNTED: Final = frozenset({"counter", "histogram", "summary"})


class Value(NamedTuple):
    """The name and the labels of one number."""

    name: str
    labels: tuple[tuple[str, str], ...]


class MetricSums(Collector):
    """Adds up counters and histograms, and combines gauges; an ended process keeps its counts."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}
        self._values: dict[str, dict[Value, float]] = {}

    def add(self, exposition: str, *, has_ended: bool = False) -> None:
        """Adds what one process exposed; without its gauges if it has ended."""
        for family in text_string_to_metric_families(exposition):
            if has_ended and family.type not in COUNTED:
                continue
            combine = float.__add__ if family.type in COUNTED else GAUGES.get(family.name, max)
            self._families.setdefault(family.name, Family(family.name, family.documentation, family.type))
            values = self._values.setdefault(family.name, {})
            for sample in family.samples:
                key = Value(sample.name, tuple(sample.labels.items()))
                values[key] = combine(values[key], float(sample.value)) if key in values else float(sample.value)

    def collect(self) -> Iterator[Family]:
        for name, family in self._families.items():
            family.samples = []
            for (sample, labels), value in self._values[name].items():
                family.add_sample(sample, dict(labels), value)
            yield family
