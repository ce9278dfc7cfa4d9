"""Counters of DNS requests, and their metrics under CoreDNS's names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from kdns.runtime.metrics import COUNTER, HISTOGRAM, Distribution, Histogram, Metric, Sample

DURATION_BUCKETS_S: Final = tuple(0.00025 * 2**k for k in range(16))
SIZE_BUCKETS_BYTES: Final = (0, 100, 200, 300, 400, 511, 1023, 2047, 4095, 8291, 16e3, 32e3, 48e3, 64e3)


@dataclass(slots=True)
class Requests:
    """The counters of one listener; `zone` is that of its server block, "" if it has several.

    `shed` are unanswered queries of clients with too many waiting ones. Responses over HTTPS are counted by status,
    over QUIC by the error code of the stream (RFC 9250 §4.3, 0: none). A burst counts each of its queries with the
    burst's mean duration in seconds.
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
        """Counts the queries of a burst."""
        if count:
            self.durations.add(took_s / count, count)


class Sent(NamedTuple):
    """Responses of one kind: the labels of CoreDNS's counters, sizes in bytes, and their number."""

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


def sent_metrics(responses: Iterable[Sent]) -> tuple[Metric, ...]:
    """Returns the metrics of everything that was sent up to now (cluster-wide names: CoreDNS plugin/metrics)."""
    asked_by: dict[tuple[str, ...], float] = {}
    answered_by: dict[tuple[str, ...], float] = {}
    dnssec_by: dict[tuple[str, ...], float] = {}
    request_sizes: dict[tuple[str, ...], Histogram] = {}
    response_sizes: dict[tuple[str, ...], Histogram] = {}
    for sent in responses:
        base = (sent.server, sent.zone, sent.view)
        _add(asked_by, (*base, sent.proto, sent.family, sent.qtype), sent.times)
        _add(answered_by, (*base, sent.rcode, sent.plugin), sent.times)
        if sent.do:
            _add(dnssec_by, base, sent.times)
        for sizes, size_bytes in ((request_sizes, sent.request_bytes), (response_sizes, sent.response_bytes)):
            sizes.setdefault((*base, sent.proto), Histogram(SIZE_BUCKETS_BYTES)).add(size_bytes, sent.times)
    labels, name = ("server", "zone", "view"), "coredns_dns"
    by_proto, by_type = (*labels, "proto"), (*labels, "proto", "family", "type")
    return (
        Metric(f"{name}_requests", "Queries, counted with their response.", by_type, asked_by.items, COUNTER),
        Metric(
            f"{name}_responses",
            "Responses, by rcode and by the directive that answered.",
            (*labels, "rcode", "plugin"),
            answered_by.items,
            COUNTER,
        ),
        Metric(f"{name}_do_requests", "Queries with the flag DO (DNSSEC OK).", labels, dnssec_by.items, COUNTER),
        Metric(f"{name}_request_size_bytes", "Size of queries.", by_proto, request_sizes.items, HISTOGRAM),
        Metric(f"{name}_response_size_bytes", "Size of responses.", by_proto, response_sizes.items, HISTOGRAM),
    )


def listener_metrics(requests: Mapping[str, Sequence[Requests]]) -> Iterator[Metric]:
    """Yields the metrics of listeners, given by the label of their server.

    Those of HTTPS and QUIC are left out while there were no responses over them.
    """
    for scheme in ("https", "quic"):
        totals = _by_status(requests, f"{scheme}_responses")
        name, text = f"coredns_dns_{scheme}_responses", f"Responses over {scheme.upper()}, by status."
        if totals:
            yield Metric(name, text, ("server", "status"), totals.items, COUNTER)
    name, labels = "coredns_dns_request_duration_seconds", ("server", "zone", "view")
    yield Metric(name, "Time from a query to its response.", labels, lambda: _durations(requests), HISTOGRAM)
    panics = sum(listener.panics for listeners in requests.values() for listener in listeners)
    yield Metric("coredns_panics", "Queries that failed because of a defect.", (), lambda: [((), panics)], COUNTER)
    for name, text, counted in (
        ("kdns_dns_unsent_responses", "Responses that the kernel did not accept.", "unsent"),
        ("kdns_dns_evicted_connections", "TCP connections that were closed to make room for others.", "evicted"),
        ("kdns_dns_shed_queries", "UDP queries that were dropped because too many of their client waited.", "shed"),
    ):
        yield Metric(name, text, ("server",), partial(_sums, requests, counted), COUNTER)


def _sums(requests: Mapping[str, Sequence[Requests]], counted: str) -> Iterator[Sample]:
    for server, listeners in requests.items():
        yield Sample((server,), sum(getattr(listener, counted) for listener in listeners))


def _durations(requests: Mapping[str, Sequence[Requests]]) -> Iterator[Distribution]:
    for server, listeners in requests.items():
        merged = Histogram(DURATION_BUCKETS_S)
        for listener in listeners:
            merged.merge(listener.durations)
        yield (server, listeners[0].zone, ""), merged


def _by_status(requests: Mapping[str, Sequence[Requests]], field: str) -> dict[tuple[str, ...], float]:
    totals: dict[tuple[str, ...], float] = {}
    for server, listeners in requests.items():
        for listener in listeners:
            counted: dict[int, int] = getattr(listener, field)
            for status, count in counted.items():
                _add(totals, (server, str(status)), count)
    return totals


def _add(rows: dict[tuple[str, ...], float], labels: tuple[str, ...], count: float) -> None:
    rows[labels] = rows.get(labels, 0) + count
