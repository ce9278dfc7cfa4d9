"""Metrics as numbers by name and labels: what the page reads is what a scrape reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from kdns.status.history import Series

Labels: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Numbers:
    """The samples of one scrape."""

    by_name: Mapping[str, list[tuple[Labels, float]]]

    @classmethod
    def of(cls, families: Iterable[Any]) -> Numbers:
        """From Prometheus's families, whose samples have a name such as dns_total, labels and a value."""
        by_name: dict[str, list[tuple[Labels, float]]] = defaultdict(list)
        for family in families:
            for sample in family.samples:
                by_name[sample.name].append((sample.labels, sample.value))
        return cls(by_name)

    def sum(self, name: str) -> float:
        return sum(value for _, value in self.by_name.get(name, ()))

    def by(self, name: str, label: str) -> dict[str, float]:
        totals: dict[str, float] = defaultdict(float)
        for labels, value in self.by_name.get(name, ()):
            totals[labels.get(label, "")] += value
        return totals

    def only(self, name: str, label: str, value: str) -> Numbers:
        return Numbers({name: [row for row in self.by_name.get(name, ()) if row[0].get(label) == value]})

    def quantile(self, histogram: str, part: float, before: Numbers | None = None) -> float:
        """The upper bound of the bucket with this part (0 to 1) of the values; 0 without any, infinite in the last."""
        counts = self.by(f"{histogram}_bucket", "le")
        for bound, count in before.by(f"{histogram}_bucket", "le").items() if before else ():
            counts[bound] -= count
        ordered = sorted((float(bound), count) for bound, count in counts.items())
        rank = part * (ordered[-1][1] if ordered else 0)
        return next((bound for bound, count in ordered if count >= rank), 0.0) if rank else 0.0


COUNTED: dict[str, tuple[str, str]] = {
    "rcode": ("coredns_dns_responses_total", "rcode"),
    "directive": ("coredns_dns_responses_total", "plugin"),
    "type": ("coredns_dns_requests_total", "type"),
    "protocol": ("coredns_dns_requests_total", "proto"),
}
"""What the history keeps → its metric, and the label that tells its series apart."""


def counted(numbers: Numbers) -> Iterator[tuple[Series, float]]:
    for kind, (name, label) in COUNTED.items():
        for value, count in numbers.by(name, label).items():
            yield (kind, value or "none"), count
