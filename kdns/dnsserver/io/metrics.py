"""The registry of /metrics: CoreDNS's names if CoreDNS has the metric, otherwise `kdns_`."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.registry import Collector

import kdns
from kdns import logs
from kdns.cluster.io.clusters import Cluster
from kdns.dns.types import rcode_name, type_label
from kdns.dnsserver.blocks import Server
from kdns.dnsserver.io.burst.event_loop import is_compiled
from kdns.dnsserver.io.request_metrics import Sent
from kdns.runtime.http.sites import HealthProbe
from kdns.runtime.metrics import COUNTER, HISTOGRAM, Distribution, Histogram, Metric, MetricFamilies, Sample
from kdns.serverblocks.config import ServerConfig

PROTOCOLS: Final = {"quic": "udp"}
"""Transport → the label `proto`, which is tcp or udp in CoreDNS."""
NOT_LISTED: Final = frozenset(("bind", "debug"))
"""No plugins in CoreDNS, so coredns_plugin_enabled does not name them."""


class Enabled(NamedTuple):
    """A zone of a server, with the view and the directives of its block."""

    server: str
    zone: str
    view: str
    config: ServerConfig


def registry(*collectors: Collector, runtime_metrics: bool) -> CollectorRegistry:
    """Returns what one page shows, with the metrics of the process."""
    made = CollectorRegistry()
    for collector in collectors:
        made.register(collector)
    ProcessCollector(registry=made)
    if runtime_metrics:
        PlatformCollector(registry=made)
        GCCollector(registry=made)
    return made


def sent_by(servers: Iterable[Server]) -> Iterator[Sent]:
    """Yields all responses, by kind."""
    for server in servers:
        for partition in server.table.partitions.values():
            for kind, times in partition.totals():
                yield Sent(
                    server.label,
                    kind.zone,
                    kind.view,
                    PROTOCOLS.get(partition.transport, partition.transport),
                    "2" if partition.family == 6 else "1",
                    type_label(kind.qtype),
                    rcode_name(kind.rcode),
                    kind.plugin,
                    kind.do,
                    kind.request_bytes,
                    kind.response_bytes,
                    times,
                )


def gauges(
    clusters: Callable[[], tuple[Cluster, ...]], enabled: Iterable[Enabled], servers: Iterable[Server]
) -> MetricFamilies:
    """Returns the metrics of the build, of directives and of followed clusters."""
    rows = MetricFamilies()
    build = (kdns.__version__, "", f"python{platform.python_version()}")
    rows.add(
        Metric(
            "coredns_build_info",
            "The version of kdns; the value is 1.",
            ("version", "revision", "goversion"),
            lambda: [Sample(build, 1)],
        )
    )
    compiled = "1 if compiled code answers UDP queries."
    rows.add(Metric("kdns_dns_is_compiled", compiled, (), lambda: [Sample((), is_compiled())]))
    by_name = ("server", "zone", "view", "name")
    rows.add(Metric("coredns_plugin_enabled", "1 for each directive of a zone.", by_name, lambda: _directives(enabled)))
    by_kind = ("server", "kind")
    rows.add(
        Metric(
            "kdns_watch_connected", "1 while a watch is connected.", by_kind, lambda: _watched(clusters(), "connected")
        )
    )
    rows.add(
        Metric("kdns_watch_events", "Watch events received.", by_kind, lambda: _watched(clusters(), "events"), COUNTER)
    )
    rows.add(
        Metric("kdns_watch_lists", "Complete lists received.", by_kind, lambda: _watched(clusters(), "lists"), COUNTER)
    )
    rows.add(
        Metric(
            "kdns_watch_dropped_objects",
            "Objects that are not kept, because no more fit.",
            by_kind,
            lambda: _watched(clusters(), "dropped"),
        )
    )
    rows.add(
        Metric(
            "kdns_watch_staleness_seconds",
            "Time since the last message of the API server.",
            by_kind,
            lambda: _staleness(clusters()),
        )
    )
    rows.add(
        Metric(
            "kdns_snapshot_served", "1 while answers are made from a snapshot.", ("server",), lambda: _stale(clusters())
        )
    )
    rows.add(
        Metric(
            "kdns_snapshot_age_seconds",
            "Time since the snapshot was saved.",
            ("server",),
            lambda: _snapshot_ages(clusters()),
        )
    )
    name = "kdns_snapshot_failures"
    rows.add(
        Metric(
            name, "Writes of the snapshot that failed.", ("server",), lambda: _snapshot_failures(clusters()), COUNTER
        )
    )
    rows.add(Metric("kdns_objects", "Objects of the cluster in memory.", by_kind, lambda: _objects(clusters())))
    rows.add(Metric("kdns_answers", "Answers in the answer table.", ("server",), lambda: _answers(servers)))
    name, text = "kdns_lost_log_lines", "Log lines that could not be written."
    rows.add(Metric(name, text, (), lambda: [Sample((), logs.lost_lines())], COUNTER))
    rest = ("code", "method", "host")
    name = "coredns_kubernetes_rest_client_requests"
    rows.add(Metric(name, "Requests to the API server.", rest, lambda: _requests(clusters()), COUNTER))
    name, text = (
        "coredns_kubernetes_dns_programming_duration_seconds",
        "Time from a change of endpoints to the answer that shows it.",
    )
    rows.add(Metric(name, text, ("service_kind",), lambda: _programming(clusters()), HISTOGRAM))
    name, by_verb = "coredns_kubernetes_rest_client_{}_duration_seconds", ("verb", "host")
    rows.add(
        Metric(
            name.format("request"),
            "Time from a request to the API server to its response.",
            by_verb,
            lambda: _rest(clusters(), "durations"),
            HISTOGRAM,
        )
    )
    rows.add(
        Metric(
            name.format("rate_limiter"),
            "Time for which the rate limiter held requests to the API server.",
            by_verb,
            lambda: _rest(clusters(), "throttled"),
            HISTOGRAM,
        )
    )
    return rows


def probe_metrics(probe: HealthProbe) -> tuple[Metric, ...]:
    """Returns how long the process's questions to its own /health took, and how often none was answered."""
    name = "coredns_health_request"
    return (
        Metric(
            f"{name}_duration_seconds",
            "Time of a request to the process's own /health.",
            (),
            lambda: [((), probe.durations)],
            HISTOGRAM,
        ),
        Metric(
            f"{name}_failures",
            "Requests to the process's own /health that failed.",
            (),
            lambda: [((), probe.failures)],
            COUNTER,
        ),
    )


def _programming(clusters: tuple[Cluster, ...]) -> Iterable[Distribution]:
    return _merged(((kind,), each) for cluster in clusters for kind, each in cluster.programming.items())


def _rest(clusters: tuple[Cluster, ...], what: str) -> Iterable[Distribution]:
    return _merged(row for cluster in clusters for row in getattr(cluster.stats.rest, what).items())


def _merged(rows: Iterable[Distribution]) -> Iterable[Distribution]:
    """Returns the sum of the histograms that have the same label values."""
    totals: dict[tuple[str, ...], Histogram] = {}
    for labels, histogram in rows:
        totals.setdefault(labels, Histogram(histogram.bounds)).merge(histogram)
    return totals.items()


def _directives(enabled: Iterable[Enabled]) -> Iterator[Sample]:
    for server, zone, view, config in enabled:
        for row in config.rows:
            if row.name not in NOT_LISTED:
                yield Sample((server, zone, view, row.name), 1)


def _named(clusters: tuple[Cluster, ...]) -> Iterator[tuple[str, Cluster]]:
    """Returns each cluster with its API's name; the second watcher of one API is `NAME (2)`: samples must differ."""
    seen: Counter[str] = Counter()
    for cluster in clusters:
        source = cluster.spec.source
        name = source.kubeconfig or source.endpoint or "in-cluster"
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} ({seen[name]})", cluster


def _watched(clusters: tuple[Cluster, ...], what: str) -> Iterator[Sample]:
    for name, cluster in _named(clusters):
        for kind, stats in cluster.stats.kinds.items():
            yield Sample((name, kind.__name__), float(getattr(stats, what)))


def _staleness(clusters: tuple[Cluster, ...]) -> Iterator[Sample]:
    for name, cluster in _named(clusters):
        for kind, stats in cluster.stats.kinds.items():
            if stats.last_contact_s is not None:
                yield Sample((name, kind.__name__), time.monotonic() - stats.last_contact_s)


def _stale(clusters: tuple[Cluster, ...]) -> Iterator[Sample]:
    return (Sample((name,), bool(each.state.stale)) for name, each in _named(clusters) if each.keeper)


def _snapshot_ages(clusters: tuple[Cluster, ...]) -> Iterator[Sample]:
    for name, cluster in _named(clusters):
        if cluster.keeper and cluster.keeper.saved_s:
            yield Sample((name,), time.time() - cluster.keeper.saved_s)


def _snapshot_failures(clusters: tuple[Cluster, ...]) -> Iterator[Sample]:
    return (Sample((name,), each.keeper.failures) for name, each in _named(clusters) if each.keeper)


def _objects(clusters: tuple[Cluster, ...]) -> Iterator[Sample]:
    for name, cluster in _named(clusters):
        for kind in cluster.kinds:
            yield Sample((name, kind.__name__), len(cluster.state.objects(kind)))


def _answers(servers: Iterable[Server]) -> Iterator[Sample]:
    return (Sample((server.label,), len(server.table)) for server in servers)


def _requests(clusters: tuple[Cluster, ...]) -> Iterator[Sample]:
    totals: Counter[tuple[str, str, str]] = Counter()
    for cluster in clusters:
        totals.update(cluster.stats.rest.requests)
    return (Sample(labels, count) for labels, count in totals.items())
