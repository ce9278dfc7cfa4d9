"""Counters of DNS requests, and their metrics under CoreDNS's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kdns.dns.types import rcode_name, type_label
from kdns.dnsserver.blocks import Server
from kdns.runtime.metrics import COUNTER, HISTOGRAM, Distribution, Histogram, Metric, Sample

DURATION_BUCKETS_S: Final = tuple(0.00025 * 2**k for k in range(16))
SIZE_BUCKETS_BYTES: Final = (0, 100, 200, 300, 400, 511, 1023, 2047, 4095, 8291, 16e3, 32e3, 48e3, 64e3)
PROTOCOLS: Final = {"quic": "udp"}
"""Transport → the label `proto`, which is tcp or udp in CoreDNS."""


@dataclass(slots=True)
class Requests:
    """The counters of one listener; `zone` is that of its server block, "" if it has several.

    `shed` are dropped queries of clients with too many waiting ones. Responses over HTTPS are counted by status, over
    QUIC by the error code of the stream (RFC 9250 §4.3, 0: none). All queries of a burst count with its mean duration.
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
        if count:
            self.durations.add(took_s / count, count)


def sent_metrics(servers: Iterable[Server]) -> tuple[Metric, ...]:
    """Under the names of CoreDNS's plugin/metrics."""
    requests: Counter[tuple[str, ...]] = Counter()
    responses: Counter[tuple[str, ...]] = Counter()
    do_requests: Counter[tuple[str, ...]] = Counter()
    request_sizes: dict[tuple[str, ...], Histogram] = {}
    response_sizes: dict[tuple[str, ...], Histogram] = {}
    for server in servers:
        for partition in server.table.partitions.values():
            proto = PROTOCOLS.get(partition.transport, partition.transport)
            family = "2" if partition.family == 6 else "1"
            for kind, times in partition.totals():
                base = (server.label, kind.zone, kind.view)
                requests[*base, proto, family, type_label(kind.qtype)] += times
                responses[*base, rcode_name(kind.rcode), kind.plugin] += times
                if kind.do:
                    do_requests[base] += times
                for sizes, size_bytes in ((request_sizes, kind.request_bytes), (response_sizes, kind.response_bytes)):
                    sizes.setdefault((*base, proto), Histogram(SIZE_BUCKETS_BYTES)).add(size_bytes, times)
    labels, name = ("server", "zone", "view"), "coredns_dns"
    by_proto, by_type = (*labels, "proto"), (*labels, "proto", "family", "type")
    return (
        Metric(f"{name}_requests", "Queries, counted with their response.", by_type, requests.items, COUNTER),
        Metric(
            f"{name}_responses",
            "Responses, by rcode and by the directive that answered.",
            (*labels, "rcode", "plugin"),
            responses.items,
            COUNTER,
        ),
        Metric(f"{name}_do_requests", "Queries with the flag DO (DNSSEC OK).", labels, do_requests.items, COUNTER),
        Metric(f"{name}_request_size_bytes", "Size of queries.", by_proto, request_sizes.items, HISTOGRAM),
        Metric(f"{name}_response_size_bytes", "Size of responses.", by_proto, response_sizes.items, HISTOGRAM),
    )


def listener_metrics(requests: Mapping[str, Sequence[Requests]]) -> Iterator[Metric]:
    """`requests` are by the label of the server. HTTPS and QUIC are left out until there is a response over them."""
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


def _by_status(requests: Mapping[str, Sequence[Requests]], field: str) -> Counter[tuple[str, ...]]:
    totals: Counter[tuple[str, ...]] = Counter()
    for server, listeners in requests.items():
        for listener in listeners:
            counted: dict[int, int] = getattr(listener, field)
            totals.update({(server, str(status)): count for status, count in counted.items()})
    return totals
