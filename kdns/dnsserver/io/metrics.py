"""The registry of /metrics: CoreDNS's names if CoreDNS has the metric, otherwise `kdns_`."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.registry import Collector

import kdns
from kdns import logs
from kdns.cluster.io.cluster import Cluster
from kdns.cluster.io.reflector import WatchStats
from kdns.dnsserver.blocks import Server
from kdns.dnsserver.io.burst.event_loop import is_compiled
from kdns.runtime.http.sites import HealthProbe
from kdns.runtime.metrics import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    Distribution,
    Histogram,
    Kind,
    Metric,
    MetricFamilies,
    Sample,
)
from kdns.serverblocks.config import ServerConfig

Read: TypeAlias = Callable[[], Iterable[tuple[tuple[str, ...], float | Histogram]]]
NOT_LISTED: Final = frozenset(("bind", "debug"))
"""Not plugins in CoreDNS, so coredns_plugin_enabled does not list them."""


class Enabled(NamedTuple):
    """A zone of a server, with the view and the directives of its block."""

    server: str
    zone: str
    view: str
    config: ServerConfig


def registry(*collectors: Collector, runtime_metrics: bool) -> CollectorRegistry:
    metrics = CollectorRegistry()
    for collector in collectors:
        metrics.register(collector)
    ProcessCollector(registry=metrics)
    if runtime_metrics:
        PlatformCollector(registry=metrics)
        GCCollector(registry=metrics)
    return metrics


def gauges(
    clusters: Callable[[], tuple[Cluster, ...]], enabled: Iterable[Enabled], servers: Iterable[Server]
) -> MetricFamilies:

    def watched(value: Callable[[WatchStats], float | None]) -> Callable[[], Iterator[Sample]]:
        """One sample for each kind of a cluster, none for a value of None."""
        return lambda: (
            Sample((name, kind.__name__), float(measured))
            for name, cluster in _named(clusters())
            for kind, stats in cluster.stats.kinds.items()
            if (measured := value(stats)) is not None
        )

    def of_snapshots(value: Callable[[Cluster], float | None]) -> Callable[[], Iterator[Sample]]:
        """One sample for each cluster with a snapshot, none for a value of None."""
        return lambda: (
            Sample((name,), float(measured))
            for name, cluster in _named(clusters())
            if cluster.spec.snapshot and (measured := value(cluster)) is not None
        )

    rows = MetricFamilies()

    def add(name: str, text: str, labels: tuple[str, ...], read: Read, kind: Kind = GAUGE) -> None:
        rows.add(Metric(name, text, labels, read, kind))

    labels: tuple[str, ...]
    by_kind, by_server, rest = ("server", "kind"), ("server",), "coredns_kubernetes_rest_client"
    build = Sample((kdns.__version__, "", f"python{platform.python_version()}"), 1)
    text = "The version of kdns; the value is 1."
    add("coredns_build_info", text, ("version", "revision", "goversion"), lambda: [build])
    text = "1 if compiled code answers UDP queries."
    add("kdns_dns_is_compiled", text, (), lambda: [Sample((), is_compiled())])
    text, labels = "1 for each directive of a zone.", ("server", "zone", "view", "name")
    add("coredns_plugin_enabled", text, labels, lambda: _directives(enabled))
    text = "1 while a watch is connected."
    add("kdns_watch_connected", text, by_kind, watched(lambda stats: stats.connected))
    add("kdns_watch_events", "Watch events received.", by_kind, watched(lambda stats: stats.events), COUNTER)
    add("kdns_watch_lists", "Complete lists received.", by_kind, watched(lambda stats: stats.lists), COUNTER)
    text = "Objects that are not kept, because no more fit."
    add("kdns_watch_dropped_objects", text, by_kind, watched(lambda stats: stats.dropped))
    text = "Time since the last message of the API server."
    add("kdns_watch_staleness_seconds", text, by_kind, watched(_staleness_s))
    text = "1 while answers are made from a snapshot."
    add("kdns_snapshot_served", text, by_server, of_snapshots(lambda cluster: bool(cluster.state.stale)))
    text = "Time since the snapshot was saved."
    add("kdns_snapshot_age_seconds", text, by_server, of_snapshots(_snapshot_age_s))
    text = "Writes of the snapshot that failed."
    add("kdns_snapshot_failures", text, by_server, of_snapshots(lambda cluster: cluster.snapshot.failures), COUNTER)
    add("kdns_objects", "Objects of the cluster in memory.", by_kind, lambda: _objects(clusters()))
    text = "Answers in the answer table."
    add("kdns_answers", text, by_server, lambda: [Sample((server.label,), len(server.table)) for server in servers])
    text = "Log lines that could not be written."
    add("kdns_lost_log_lines", text, (), lambda: [Sample((), logs.lost_lines())], COUNTER)
    text, labels = "Requests to the API server.", ("code", "method", "host")
    add(f"{rest}_requests", text, labels, lambda: _requests(clusters()), COUNTER)
    text = "Time from a change of endpoints to the answer that shows it."
    name, labels = "coredns_kubernetes_dns_programming_duration_seconds", ("service_kind",)
    add(name, text, labels, lambda: _programming(clusters()), HISTOGRAM)
    text, labels = "Time from a request to the API server to its response.", ("verb", "host")
    add(f"{rest}_request_duration_seconds", text, labels, lambda: _rest(clusters(), "durations"), HISTOGRAM)
    text = "Time for which the rate limiter held requests to the API server."
    add(f"{rest}_rate_limiter_duration_seconds", text, labels, lambda: _rest(clusters(), "throttled"), HISTOGRAM)
    return rows


def probe_metrics(probe: HealthProbe) -> Iterator[Metric]:
    name, text = "coredns_health_request_duration_seconds", "Time of a request to the process's own /health."
    yield Metric(name, text, (), lambda: [((), probe.durations)], HISTOGRAM)
    name, text = "coredns_health_request_failures", "Requests to the process's own /health that failed."
    yield Metric(name, text, (), lambda: [((), probe.failures)], COUNTER)


def _programming(clusters: tuple[Cluster, ...]) -> Iterable[Distribution]:
    return _merged(((kind,), durations) for cluster in clusters for kind, durations in cluster.programming.items())


def _rest(clusters: tuple[Cluster, ...], field: str) -> Iterable[Distribution]:
    return _merged(row for cluster in clusters for row in getattr(cluster.stats.rest, field).items())


def _merged(rows: Iterable[Distribution]) -> Iterable[Distribution]:
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
    """Clusters with their API's name; the second watcher of one API is `NAME (2)`, because samples must differ."""
    seen: Counter[str] = Counter()
    for cluster in clusters:
        source = cluster.spec.source
        name = source.kubeconfig or source.endpoint or "in-cluster"
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} ({seen[name]})", cluster


def _staleness_s(stats: WatchStats) -> float | None:
    return None if stats.last_contact_s is None else time.monotonic() - stats.last_contact_s


def _snapshot_age_s(cluster: Cluster) -> float | None:
    return time.time() - cluster.snapshot.saved_s if cluster.snapshot.saved_s else None


def _objects(clusters: tuple[Cluster, ...]) -> Iterator[Sample]:
    for name, cluster in _named(clusters):
        for kind in cluster.kinds:
            yield Sample((name, kind.__name__), len(cluster.state.objects(kind)))


def _requests(clusters: tuple[Cluster, ...]) -> Iterator[Sample]:
    totals: Counter[tuple[str, str, str]] = Counter()
    for cluster in clusters:
        totals.update(cluster.stats.rest.requests)
    return (Sample(labels, count) for labels, count in totals.items())
