"""/metrics of a node's dataplane: kube-proxy's names where kube-proxy has the figure, `kdns_` for the rest.

Differs: kube-proxy has sync metrics for each family (label ip_family). kdns syncs both families together, so both have
the same values. kubernetes_build_info is not there: alerts compare it over all of a cluster's components, and
kdns has a version of its own. Neither is anything that only Go has (go_…).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector

import kdns
from kdns.cluster.io.informer import FollowStats
from kdns.net import FAMILIES
from kdns.proxy.mode import Mode
from kdns.proxy.node.io.health import ProxyHealth
from kdns.proxy.plan.branches import Verdict
from kdns.proxy.plan.plan import Plan
from kdns.proxy.sync.io.conntrack import FlowStats
from kdns.proxy.sync.io.proxier import Counters
from kdns.proxy.sync.io.runner import SyncRunner
from kdns.proxy.sync.io.stats import Changes
from kdns.runtime.http.server import Handler
from kdns.runtime.http.sites import scraped
from kdns.runtime.metrics import COUNTER, GAUGE, HISTOGRAM, Distribution, Histogram, Metric, MetricFamilies, Sample

_PREFIX: Final = "kubeproxy_"
_SYNC: Final = f"{_PREFIX}sync_proxy_rules_"
_BY_FAMILY: Final = ("ip_family",)


@dataclass(frozen=True, slots=True)
class MetricSources:
    """Everything that has figures. `mode` is the mode at work, with its `counters`, in place of `configured_mode`."""

    mode: Mode
    configured_mode: str
    counters: Counters
    sync_runner: SyncRunner
    health: ProxyHealth
    follow: FollowStats
    flows: FlowStats


def metrics(sources: MetricSources) -> Handler:
    """Returns the handler of /metrics. The mode's counters are read for each scrape."""
    registry = CollectorRegistry()
    registry.register(rows(sources))
    ProcessCollector(registry=registry)

    async def answer(request: web.BaseRequest) -> web.Response:
        if sources.sync_runner.plan:
            await sources.counters.read(sources.sync_runner.plan)
        return scraped(registry, request.headers.get("Accept", ""))

    return answer


def rows(sources: MetricSources) -> MetricFamilies:
    """Returns the metrics but those of the process. The mode's counters are as of their last reading."""
    families = MetricFamilies()
    _add_syncs(families, sources.sync_runner, sources.mode)
    _add_health(families, sources.health)
    _add_flows(families, sources.flows)
    _add_own(families, sources)
    sources.counters.register(families)
    return families


def _per_family(value: Callable[[], float]) -> Callable[[], Iterable[Sample]]:
    """Returns the same value for both families."""
    return lambda: [Sample((family,), value()) for family in FAMILIES]


def _both(histogram: Histogram) -> Callable[[], Iterable[Distribution]]:
    return lambda: [((family,), histogram) for family in FAMILIES]


def _one(value: Callable[[], float]) -> Callable[[], Iterable[Sample]]:
    return lambda: [Sample((), value())]


def _add_syncs(rows: MetricFamilies, sync_runner: SyncRunner, mode: Mode) -> None:
    stats = sync_runner.stats
    for name, text, histogram in (
        (f"{_SYNC}duration_seconds", "Applying changes.", stats.runs),
        (f"{_PREFIX}sync_full_proxy_rules_duration_seconds", "Applying everything.", stats.full),
        (f"{_PREFIX}sync_partial_proxy_rules_duration_seconds", "Applying what changed.", stats.partial),
        (f"{_PREFIX}network_programming_duration_seconds", "From change to rules.", stats.programming),
    ):
        rows.add(Metric(name, text, _BY_FAMILY, _both(histogram), HISTOGRAM))
    by_family: tuple[tuple[str, str, Callable[[], float], bool], ...] = (
        (f"{_SYNC}last_timestamp_seconds", "When rules were applied last.", lambda: stats.last_sync_s, False),
        (f"{_SYNC}last_queued_timestamp_seconds", "When a change came last.", lambda: stats.last_queued_s, False),
        (mode.sync_failures, "Rules not applied.", lambda: stats.failures, True),
        (mode.cleanup_failures, "Unused rules not removed.", lambda: stats.cleanup_failures, True),
    )
    for name, text, value, is_counter in by_family:
        rows.add(Metric(name, text, _BY_FAMILY, _per_family(value), COUNTER if is_counter else GAUGE))
    for kind, changes in (("service", stats.services), ("endpoint", stats.endpoints)):
        pending, total = f"{_SYNC}{kind}_changes_pending", f"{_SYNC}{kind}_changes"
        rows.add(Metric(pending, "Changes not applied yet.", (), partial(_changes, changes, "pending")))
        rows.add(Metric(total, "Changes.", (), partial(_changes, changes, "total"), COUNTER))
    labels = (*_BY_FAMILY, "traffic_policy")
    text = "Service ports with policy Local and no endpoint here."
    rows.add(Metric(f"{_SYNC}no_local_endpoints_total", text, labels, lambda: _no_local_endpoints(sync_runner.plan)))
    rows.add(
        Metric(
            "kdns_proxy_rules_changed_by_others",
            "Foreign changes of the rules.",
            (),
            _one(lambda: stats.foreign_changes),
            COUNTER,
        )
    )
    text = "Services of which the kernel rejects rules."
    rows.add(Metric("kdns_proxy_services_left_out", text, (), _one(lambda: len(sync_runner.rejected))))


def _changes(changes: Changes, what: str) -> Iterator[Sample]:
    yield Sample((), float(getattr(changes, what)))


def _no_local_endpoints(plan: Plan | None) -> Iterator[Sample]:
    for family in FAMILIES if plan else ():
        ports = plan.of(family).ports.values() if plan else ()
        internal = sum(port.cluster_ip[-1].verdict is Verdict.DROP for port in ports)
        external = sum(port.external[-1].verdict is Verdict.DROP for port in ports)
        yield Sample((family, "internal"), internal)
        yield Sample((family, "external"), external)


def _add_health(rows: MetricFamilies, health: ProxyHealth) -> None:
    def by_code(counts: Counter[int]) -> Callable[[], Iterable[Sample]]:
        return lambda: [Sample((str(code),), count) for code, count in counts.items()]

    rows.add(Metric(f"{_PREFIX}proxy_healthz", "Answers of /healthz.", ("code",), by_code(health.healthz), COUNTER))
    rows.add(Metric(f"{_PREFIX}proxy_livez", "Answers of /livez.", ("code",), by_code(health.livez), COUNTER))


def _add_flows(rows: MetricFamilies, flows: FlowStats) -> None:
    name = f"{_PREFIX}conntrack_reconciler_"
    rows.add(
        Metric(
            f"{name}sync_duration_seconds",
            "Listing and deleting stale UDP flows.",
            _BY_FAMILY,
            lambda: [((family,), histogram) for family, histogram in flows.durations.items()],
            HISTOGRAM,
        )
    )
    rows.add(
        Metric(
            f"{name}deleted_entries",
            "Stale UDP flows deleted.",
            _BY_FAMILY,
            lambda: [Sample((family,), count) for family, count in flows.deleted.items()],
            COUNTER,
        )
    )


def _add_own(rows: MetricFamilies, sources: MetricSources) -> None:
    rows.add(Metric("kdns_build_info", "Version.", ("version",), lambda: [Sample((kdns.__version__,), 1)]))
    text, modes = "The mode at work, and that of the settings.", (sources.mode.name, sources.configured_mode)
    rows.add(Metric("kdns_proxy_mode", text, ("mode", "configured"), lambda: [Sample(modes, 1)]))
    rows.add(
        Metric("kdns_watch_connected", "Whether changes arrive.", ("kind",), lambda: _followed(sources, "connected"))
    )
    rows.add(Metric("kdns_watch_events", "Changes seen.", ("kind",), lambda: _followed(sources, "events"), COUNTER))
    rows.add(Metric("kdns_watch_lists", "Full lists.", ("kind",), lambda: _followed(sources, "lists"), COUNTER))
    rows.add(
        Metric("kdns_watch_dropped_objects", "Objects not kept.", ("kind",), lambda: _followed(sources, "dropped"))
    )
    rows.add(
        Metric(
            "kdns_watch_staleness_seconds",
            "Since the API server's last message.",
            ("kind",),
            lambda: _staleness(sources),
        )
    )
    labels = ("code", "method", "host")
    rows.add(Metric("rest_client_requests", "Requests to the API.", labels, lambda: _requests(sources), COUNTER))
    rest, by_verb = sources.follow.rest, ("verb", "host")
    text = "From a request to the API to the first byte of its response."
    rows.add(Metric("rest_client_request_duration_seconds", text, by_verb, rest.durations.items, HISTOGRAM))
    text = "How long the rate limiter held requests to the API."
    rows.add(Metric("rest_client_rate_limiter_duration_seconds", text, by_verb, rest.throttled.items, HISTOGRAM))


def _followed(sources: MetricSources, what: str) -> Iterator[Sample]:
    for kind, stats in sources.follow.kinds.items():
        yield Sample((kind.__name__,), float(getattr(stats, what)))


def _staleness(sources: MetricSources) -> Iterator[Sample]:
    for kind, stats in sources.follow.kinds.items():
        if stats.last_contact_s is not None:
            yield Sample((kind.__name__,), time.monotonic() - stats.last_contact_s)


def _requests(sources: MetricSources) -> Iterator[Sample]:
    return (Sample(labels, count) for labels, count in sources.follow.rest.requests.items())
