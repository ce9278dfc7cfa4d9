"""Counters of DNS requests, and the collector that exposes them under CoreDNS's metric names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kdns.runtime.metrics import Histogram

DURATION_BUCKETS_S: Final = tuple(0.00025 * 2**k for k in range(16))
SIZE_BUCKETS_BYTES: Final = (0, 100, 200, 300, 400, 511, 1023, 2047, 4095, 8291, 16e3, 32e3, 48e3, 64e3)


@dataclass(slots=True)
class Requests:
    """What one listener saw; `zone` is that of its server block, "" where it has several.

    `shed` are queries of clients that had too many waiting; they were not answered.
    Responses over HTTPS are counted by status, over QUIC by the error code of the stream (RFC 9250 §4.3, 0: none).
    A burst counts each of its queries with the burst's mean duration in seconds.
    """

    zone: str = ""
    durations: Histogram = field(default_factory=lambda: Histogram(DURATION_BUCKETS_S))
    unsent: int = 0
    panics: int = 0
    evicted: int = 0
    shed: int = 0
    https_responses: dict[int, int] = field(default_factory=dict)
    quic_responses: dict[int, int] = field(default_factory=dict)

    def observe(self, count: int, took_s: float) -> None:
        """Count the queries of a burst."""
        if count:
            self.durations.add(took_s / count, count)


class Sent(NamedTuple):
    """Responses of one kind: the labels of CoreDNS's counters, sizes in bytes, and how many there were."""

    server: str
    zone: str
    view: str
    proto: str
    family: str
    qtype: str
    rcode: str
    plugin: str
    do: bool
    request_bytes: int
    response_bytes: int
    times: int


class DnsCollector(Collector):
    """Exposes what the sources say at the moment of the scrape."""

    def __init__(self, sent: Callable[[], Iterable[Sent]], requests: dict[str, list[Requests]]) -> None:
        self._sent = sent
        self._requests = requests

    def collect(self) -> Iterator[Metric]:
        """All metrics of the DNS server (cluster-wide names: CoreDNS plugin/metrics)."""
        labels = ("server", "zone", "view")
        requests = CounterMetricFamily("coredns_dns_requests", "Queries.", labels=(*labels, "proto", "family", "type"))
        responses = CounterMetricFamily("coredns_dns_responses", "Responses.", labels=(*labels, "rcode", "plugin"))
        dnssec = CounterMetricFamily("coredns_dns_do_requests", "Queries with DNSSEC OK.", labels=labels)
        asked_by: dict[tuple[str, ...], float] = {}
        answered_by: dict[tuple[str, ...], float] = {}
        dnssec_by: dict[tuple[str, ...], float] = {}
        sizes: dict[tuple[str, ...], tuple[Histogram, Histogram]] = {}
        for sent in self._sent():
            base = (sent.server, sent.zone, sent.view)
            _add(asked_by, (*base, sent.proto, sent.family, sent.qtype), sent.times)
            _add(answered_by, (*base, sent.rcode, sent.plugin), sent.times)
            if sent.do:
                _add(dnssec_by, base, sent.times)
            asked, answered = sizes.setdefault(
                (*base, sent.proto), (Histogram(SIZE_BUCKETS_BYTES), Histogram(SIZE_BUCKETS_BYTES))
            )
            asked.add(sent.request_bytes, sent.times)
            answered.add(sent.response_bytes, sent.times)
        for family, rows in ((requests, asked_by), (responses, answered_by), (dnssec, dnssec_by)):
            for values, count in rows.items():
                family.add_metric(values, count)
            yield family
        yield from self._histograms(sizes)
        yield from self._listeners()

    def _histograms(self, sizes: dict[tuple[str, ...], tuple[Histogram, Histogram]]) -> Iterator[Metric]:
        labels = ("server", "zone", "view", "proto")
        for position, name in enumerate(("request", "response")):
            family = HistogramMetricFamily(f"coredns_dns_{name}_size_bytes", f"Size of a {name}.", labels=labels)
            for values, pair in sizes.items():
                family.add_metric(values, pair[position].buckets(), pair[position].sum)
            yield family

    def _listeners(self) -> Iterator[Metric]:
        took = HistogramMetricFamily(
            "coredns_dns_request_duration_seconds", "Time to answer.", labels=("server", "zone", "view")
        )
        panics = CounterMetricFamily("coredns_panics", "Queries that failed by a defect.")
        unsent = CounterMetricFamily(
            "kdns_dns_unsent_responses", "Responses the kernel did not take.", labels=("server",)
        )
        evicted = CounterMetricFamily(
            "kdns_dns_evicted_connections", "Connections closed to make room.", labels=("server",)
        )
        shed = CounterMetricFamily(
            "kdns_dns_shed_queries", "Queries of clients that had too many waiting.", labels=("server",)
        )
        for server, listeners in self._requests.items():
            merged = Histogram(DURATION_BUCKETS_S)
            for listener in listeners:
                merged.merge(listener.durations)
            took.add_metric((server, listeners[0].zone, ""), merged.buckets(), merged.sum)
            unsent.add_metric((server,), sum(listener.unsent for listener in listeners))
            evicted.add_metric((server,), sum(listener.evicted for listener in listeners))
            shed.add_metric((server,), sum(listener.shed for listener in listeners))
        yield from self._by_status()
        panics.add_metric((), sum(one.panics for listeners in self._requests.values() for one in listeners))
        yield from (took, panics, unsent, evicted, shed)

    def _by_status(self) -> Iterator[Metric]:
        """Responses over HTTPS and QUIC; families without any are left out."""
        for scheme in ("https", "quic"):
            family = CounterMetricFamily(
                f"coredns_dns_{scheme}_responses", f"Responses over {scheme.upper()}.", labels=("server", "status")
            )
            for server, listeners in self._requests.items():
                totals: dict[tuple[str, ...], float] = {}
                for listener in listeners:
                    counted: dict[int, int] = getattr(listener, f"{scheme}_responses")
                    for status, count in counted.items():
                        _add(totals, (server, str(status)), count)
                for labels, total in totals.items():
                    family.add_metric(labels, total)
            if family.samples:
                yield family


def _add(rows: dict[tuple[str, ...], float], labels: tuple[str, ...], count: float) -> None:
    rows[labels] = rows.get(labels, 0) + count
