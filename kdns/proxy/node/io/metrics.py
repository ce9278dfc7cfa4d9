"""/metrics of a node's dataplane: kube-proxy's names where kube-proxy has the figure, `kdns_` for the rest.

Differs: kube-proxy has sync metrics for each family (label ip_family). kdns syncs both families together, so both have
the same values. kubernetes_build_info is not there: alerts compare it over all of a cluster's components, and
kdns has a version of its own. Neither is anything that only Go has (go_…).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector

import kdns
from kdns.cluster.io.informer import FollowStats
from kdns.cluster.io.reflector import WatchStats
from kdns.cluster.objects import Object
from kdns.net import FAMILIES
from kdns.proxy.mode import Mode
from kdns.proxy.node.io.health import ProxyHealth
from kdns.proxy.plan.branches import Verdict
from kdns.proxy.plan.plan import Plan
from kdns.proxy.sync.io.conntrack import ConntrackReconciler
from kdns.proxy.sync.io.proxier import Counters
from kdns.proxy.sync.io.runner import SyncRunner
from kdns.runtime.http.server import Handler
from kdns.runtime.http.sites import scraped
from kdns.runtime.metrics import COUNTER, GAUGE, HISTOGRAM, Histogram, Metric, MetricFamilies

_PREFIX: Final = "kubeproxy_"
_SYNC: Final = f"{_PREFIX}sync_proxy_rules_"
_BY_FAMILY: Final = ("ip_family",)

Row: TypeAlias = tuple[tuple[str, ...], float | Histogram]
"""The values of labels, and what is counted."""


@dataclass(frozen=True, slots=True)
class MetricSources:
    """Everything that has figures. `mode` is the mode at work, with its `counters`, in place of `configured_mode`."""

    mode: Mode
    configured_mode: str
    counters: Counters
    sync_runner: SyncRunner
    health: ProxyHealth
    follow: FollowStats
    flows: ConntrackReconciler


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
    for metric in (*_syncs(sources.sync_runner, sources.mode), *_of_node(sources), *_watches(sources)):
        families.add(metric)
    sources.counters.register(families)
    return families


def _by_family(value: Callable[[], float | Histogram]) -> Callable[[], Iterable[Row]]:
    return lambda: [((family,), value()) for family in FAMILIES]


def _alone(value: Callable[[], float]) -> Callable[[], Iterable[Row]]:
    return lambda: [((), value())]


def _by_label(values: Mapping[Any, float | Histogram]) -> Callable[[], Iterable[Row]]:
    return lambda: [((str(label),), value) for label, value in values.items()]


def _syncs(sync_runner: SyncRunner, mode: Mode) -> Iterator[Metric]:
    stats = sync_runner.stats
    for name, text, histogram in (
        (f"{_SYNC}duration_seconds", "Applying changes.", stats.runs),
        (f"{_PREFIX}sync_full_proxy_rules_duration_seconds", "Applying everything.", stats.full),
        (f"{_PREFIX}sync_partial_proxy_rules_duration_seconds", "Applying what changed.", stats.partial),
        (f"{_PREFIX}network_programming_duration_seconds", "From change to rules.", stats.programming),
    ):
        yield Metric(name, text, _BY_FAMILY, _by_label(dict.fromkeys(FAMILIES, histogram)), HISTOGRAM)
    last_sync, last_queued = _by_family(lambda: stats.last_sync_s), _by_family(lambda: stats.last_queued_s)
    failures, unremoved = _by_family(lambda: stats.failures), _by_family(lambda: stats.cleanup_failures)
    yield Metric(f"{_SYNC}last_timestamp_seconds", "When rules were applied last.", _BY_FAMILY, last_sync)
    yield Metric(f"{_SYNC}last_queued_timestamp_seconds", "When a change came last.", _BY_FAMILY, last_queued)
    yield Metric(mode.sync_failures, "Rules not applied.", _BY_FAMILY, failures, COUNTER)
    yield Metric(mode.cleanup_failures, "Unused rules not removed.", _BY_FAMILY, unremoved, COUNTER)
    for kind, changes in (("service", stats.services), ("endpoint", stats.endpoints)):
        name, pending, total = (
            f"{_SYNC}{kind}_changes",
            partial(getattr, changes, "pending"),
            partial(getattr, changes, "total"),
        )
        yield Metric(f"{name}_pending", "Changes not applied yet.", (), _alone(pending))
        yield Metric(name, "Changes.", (), _alone(total), COUNTER)
    labels, text = (*_BY_FAMILY, "traffic_policy"), "Service ports with policy Local and no endpoint here."
    yield Metric(f"{_SYNC}no_local_endpoints_total", text, labels, lambda: _no_local_endpoints(sync_runner.plan))
    foreign, text = _alone(lambda: stats.foreign_changes), "Foreign changes of the rules."
    yield Metric("kdns_proxy_rules_changed_by_others", text, (), foreign, COUNTER)
    text = "Services of which the kernel rejects rules."
    yield Metric("kdns_proxy_services_left_out", text, (), _alone(lambda: len(sync_runner.rejected)))


def _no_local_endpoints(plan: Plan | None) -> Iterator[Row]:
    for family_plan in (plan.ipv4, plan.ipv6) if plan else ():
        ports = family_plan.ports.values()
        yield (family_plan.family, "internal"), sum(port.cluster_ip[-1].verdict is Verdict.DROP for port in ports)
        yield (family_plan.family, "external"), sum(port.external[-1].verdict is Verdict.DROP for port in ports)


def _of_node(sources: MetricSources) -> Iterator[Metric]:
    health, flows = sources.health, sources.flows
    yield Metric(f"{_PREFIX}proxy_healthz", "Answers of /healthz.", ("code",), _by_label(health.healthz), COUNTER)
    yield Metric(f"{_PREFIX}proxy_livez", "Answers of /livez.", ("code",), _by_label(health.livez), COUNTER)
    name, text = f"{_PREFIX}conntrack_reconciler_", "Listing and deleting stale UDP flows."
    yield Metric(f"{name}sync_duration_seconds", text, _BY_FAMILY, _by_label(flows.durations), HISTOGRAM)
    yield Metric(f"{name}deleted_entries", "Stale UDP flows deleted.", _BY_FAMILY, _by_label(flows.deleted), COUNTER)
    yield Metric("kdns_build_info", "Version.", ("version",), lambda: [((kdns.__version__,), 1)])
    text, modes = "The mode at work, and that of the settings.", (sources.mode.name, sources.configured_mode)
    yield Metric("kdns_proxy_mode", text, ("mode", "configured"), lambda: [(modes, 1)])


def _watches(sources: MetricSources) -> Iterator[Metric]:
    kinds, rest = sources.follow.kinds, sources.follow.rest
    for name, text, what, kind in (
        ("connected", "Whether changes arrive.", "connected", GAUGE),
        ("events", "Changes seen.", "events", COUNTER),
        ("lists", "Full lists.", "lists", COUNTER),
        ("dropped_objects", "Objects not kept.", "dropped", GAUGE),
    ):
        yield Metric(f"kdns_watch_{name}", text, ("kind",), partial(_followed, kinds, what), kind)
    text = "Since the API server's last message."
    yield Metric("kdns_watch_staleness_seconds", text, ("kind",), lambda: _staleness(kinds))
    labels, by_verb = ("code", "method", "host"), ("verb", "host")
    yield Metric("rest_client_requests", "Requests to the API.", labels, rest.requests.items, COUNTER)
    text = "From a request to the API to the first byte of its response."
    yield Metric("rest_client_request_duration_seconds", text, by_verb, rest.durations.items, HISTOGRAM)
    text = "How long the rate limiter held requests to the API."
    yield Metric("rest_client_rate_limiter_duration_seconds", text, by_verb, rest.throttled.items, HISTOGRAM)


def _followed(kinds: Mapping[type[Object], WatchStats], what: str) -> Iterator[Row]:
    for kind, stats in kinds.items():
        yield (kind.__name__,), float(getattr(stats, what))


def _staleness(kinds: Mapping[type[Object], WatchStats]) -> Iterator[Row]:
    for kind, stats in kinds.items():
        if stats.last_contact_s is not None:
            yield (kind.__name__,), time.monotonic() - stats.last_contact_s
